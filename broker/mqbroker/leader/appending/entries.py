"""Appends the leader's entries to the log, and tells the callers what became of them.

An entry that is committed and then set aside (see `mqbroker.state.aside`) has no effect, and its
sender is told so. The offsets that it had taken are given out again. Entries behind it that took
later offsets are set aside too, since those offsets no longer follow. Callers are told while the
entry is being applied. An exception of such a callback is a fault of the callback, never of the
log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from dledger.buffers import Buffer
from dledger.errors import AppendError, OutcomeUnknown
from dledger.ledger.config import LedgerStatus
from dledger.ledger.exporting import ExportPlan
from dledger.log.entry import Draft, Kind
from dledger.raft.appends import Appended
from mqbroker import limits
from mqbroker.leader.appending.drafts import PlainDraft
from mqbroker.leader.appending.together import OnDone, Send, Together, Waiting
from mqbroker.leader.assignments import Assignments
from mqbroker.leader.log import Log
from mqbroker.refusal import NotApplied
from mqbroker.state.aside import SetAside


@runtime_checkable
class TakesOffsets(Protocol):
    """A draft of messages."""

    places: Sequence[tuple[str, int]]
    """The topic and queue of each offset that the draft takes."""


class Entries:
    """A `Log` that reports entries set aside, and catches exceptions of callbacks.

    `on_fault` is called with an exception of a callback.
    """

    def __init__(
        self, log: Log, assignments: Assignments, on_fault: Callable[[Exception], None]
    ) -> None:
        self._log = log
        self._assignments = assignments
        self._on_fault = on_fault
        self._under_way = 0
        self._waiting = Waiting()

    def append_nowait(self, body: Buffer | Draft, kind: int, on_done: OnDone) -> None:
        """Append; `on_done` is called once, after the entry was applied. Raises NotLeader and the
        like at once."""
        self._append_waiting()  # they came first
        self._append(body, kind, on_done)

    def send_nowait(self, draft: PlainDraft, on_done: OnDone) -> None:
        """Append one message or a few, maybe with others (`mqbroker.leader.appending.together`).

        As `append_nowait`, but what that raises may be told to `on_done` instead.
        """
        alone = self._under_way < limits.SENDS_TOGETHER_FROM and not self._waiting
        if alone or draft.size >= limits.SENDS_TOGETHER_BYTES:
            self.append_nowait(draft, Kind.MESSAGES, on_done)
        elif self._waiting.add(Send(draft, on_done)):
            self._append_waiting()

    async def append(self, body: Buffer | Draft, kind: int = Kind.MESSAGES) -> Appended:
        """Append and wait until the entry was applied."""
        self._append_waiting()
        judged = self._judged(await self._log.append(body, kind), body)
        if isinstance(judged, AppendError):
            raise judged
        return judged

    async def read_index(self, timeout_s: float | None = None) -> int:
        """See `Log`."""
        return await (
            self._log.read_index() if timeout_s is None else self._log.read_index(timeout_s)
        )

    async def transfer_leadership(self, target: str | None = None) -> str:
        """See `Log`."""
        return await self._log.transfer_leadership(target)

    async def add_member(self, node_id: str, host: str, port: int, service: str = "") -> None:
        """See `Log`."""
        await self._log.add_member(node_id, host, port, service)

    async def remove_member(self, node_id: str) -> None:
        """See `Log`."""
        await self._log.remove_member(node_id)

    def export_plan(self) -> ExportPlan:
        """See `Log`."""
        return self._log.export_plan()

    @property
    def sends_waiting(self) -> int:
        """How many sends are to be appended together."""
        return len(self._waiting)

    def view(self, position: int, size: int) -> memoryview:
        """See `Log`."""
        return self._log.view(position, size)

    @property
    def status(self) -> LedgerStatus:
        """See `Log`."""
        return self._log.status

    @property
    def unapplied_bytes(self) -> int:
        """See `Log`."""
        return self._log.unapplied_bytes

    def _append(self, body: Buffer | Draft, kind: int, on_done: OnDone) -> None:
        def done(outcome: Appended | AppendError) -> None:
            self._under_way -= 1
            self._tell(on_done, self._judged(outcome, body))
            self._append_waiting()

        self._log.append_nowait(body, kind, done)
        self._under_way += 1

    def _append_waiting(self) -> None:
        """Append the sends that wait for each other. They are told what this would raise."""
        sends = self._waiting.take()
        if len(sends) <= 1:
            self._append_each(sends)
            return
        together = Together(sends, self._assignments)

        def done(outcome: Appended | AppendError) -> None:
            if isinstance(outcome, NotApplied):
                # One of them may be at fault. Nothing of the entry is stored, so each is judged by
                # itself.
                self._append_each(together.sends)
            elif isinstance(outcome, AppendError):
                self._tell_all(sends, outcome)
            else:
                for send, place in zip(together.sends, together.outcomes(outcome), strict=True):
                    self._tell(send.on_done, place)

        self._append_for(sends, together, Kind.SENDS, done)

    def _append_each(self, sends: Sequence[Send]) -> None:
        for send in sends:
            self._append_for([send], send.draft, Kind.MESSAGES, send.on_done)

    def _append_for(self, sends: Sequence[Send], body: Draft, kind: int, on_done: OnDone) -> None:
        """Append sends that have waited. They are told if that fails, and nothing is raised: the
        caller may be the log, which applies an entry, and no fault here may reach it."""
        try:
            self._append(body, kind, on_done)
        except AppendError as error:
            self._tell_all(sends, error)
        except Exception as error:
            self._on_fault(error)
            self._tell_all(sends, OutcomeUnknown(f"the broker has a fault: {error}"))

    def _tell_all(self, sends: Sequence[Send], error: AppendError) -> None:
        for send in sends:
            self._tell(send.on_done, error)

    def _tell(self, on_done: OnDone, outcome: Appended | AppendError) -> None:
        try:
            on_done(outcome)
        except Exception as error:
            self._on_fault(error)

    def _judged(
        self, outcome: Appended | AppendError, body: Buffer | Draft
    ) -> Appended | AppendError:
        if not isinstance(outcome, Appended) or not isinstance(outcome.result, SetAside):
            return outcome
        if not isinstance(body, bytes | bytearray | memoryview) and isinstance(body, TakesOffsets):
            self._assignments.withdraw(body.places, outcome.index, self._log.status.last_index)
        return NotApplied(f"entry {outcome.index} is set aside: {outcome.result.reason}")
