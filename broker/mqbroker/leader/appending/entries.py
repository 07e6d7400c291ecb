"""Appends the leader's entries to the log, and tells the callers what became of them.

An entry that is committed and then set aside (see `mqbroker.state.aside`) has no effect, and its
sender is told so. The offsets that it had taken are given out again. Entries behind it that took
later offsets are set aside too, since those offsets no longer follow. Callers are told while the
entry is being applied. An exception of such a callback is a fault of the callback, never of the
log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from dledger.buffers import Buffer
from dledger.errors import AppendError, OutcomeUnknown
from dledger.log.entry import OF_MESSAGES, Draft, Kind
from dledger.raft.appends import Appended, OnDone
from dledger.world import steady_s
from mqbroker import limits
from mqbroker.leader.appending.drafts import PlainDraft
from mqbroker.leader.appending.times import Times
from mqbroker.leader.appending.together import Send, Together, Waiting
from mqbroker.leader.assignments import Assignments
from mqbroker.leader.log import Log
from mqbroker.refusal import NotApplied
from mqbroker.state.aside import SetAside


@runtime_checkable
class TakesOffsets(Protocol):
    """A draft of messages, each of which takes the next offset of a queue."""

    places: Sequence[tuple[str, int]]
    """The topic and queue of each offset that the draft takes."""


class Entries:
    """Appends to a `Log`, reports entries set aside, and catches exceptions of callbacks.

    `on_fault` is called with an exception of a callback.
    """

    def __init__(
        self,
        log: Log,
        assignments: Assignments,
        on_fault: Callable[[Exception], None],
        clock_s: Callable[[], float] = steady_s,
    ) -> None:
        #: The replicated log, for what is read.
        self.log = log
        self._assignments = assignments
        self._on_fault = on_fault
        self._under_way = 0
        self._waiting = Waiting()
        self._clock_s = clock_s
        #: How long entries take.
        self.times = Times()

    def append_nowait(self, body: Buffer | Draft, kind: int, on_done: OnDone) -> None:
        """Append; `on_done` is called once, after the entry was applied. Raises NotLeader and the
        like at once."""
        if self._waiting:
            self._append_waiting()  # they came first
        began_s = self._clock_s() if kind in OF_MESSAGES else None
        self.log.append_nowait(body, kind, partial(self._applied, body, on_done, began_s))
        self._under_way += 1

    def gathers(self, draft: PlainDraft, on_done: OnDone) -> bool:
        """Whether one message or a few wait to share an entry, as much is under way
        (`mqbroker.leader.appending.together`). Then `on_done` gets what `append_nowait` would
        raise, too."""
        alone = self._under_way < limits.SENDS_TOGETHER_FROM and not self._waiting
        if alone or draft.size >= limits.SENDS_TOGETHER_BYTES:
            return False
        if self._waiting.add(Send(draft, on_done)):
            self._append_waiting()
        return True

    @property
    def sends_waiting(self) -> int:
        """How many sends are to be appended together."""
        return len(self._waiting)

    def _applied(
        self,
        body: Buffer | Draft,
        on_done: OnDone,
        began_s: float | None,
        outcome: Appended | AppendError,
    ) -> None:
        """An entry was applied, or failed. No fault of a callback reaches the log."""
        self._under_way -= 1
        if began_s is not None and isinstance(outcome, Appended):
            self.times.appended(self._clock_s() - began_s)
        if isinstance(outcome, Appended) and isinstance(outcome.result, SetAside):
            outcome = self._set_aside(body, outcome, outcome.result)
        try:
            on_done(outcome)
        except Exception as error:
            self._on_fault(error)
        if self._waiting:
            self._append_waiting()

    def _append_waiting(self) -> None:
        """Append the sends that wait for each other. They get what this would raise."""
        sends = self._waiting.take()
        if len(sends) <= 1:
            self._append_each(sends)
            return
        together = Together(sends, self._assignments)

        def done(outcome: Appended | AppendError) -> None:
            if isinstance(outcome, NotApplied):
                # A single send may be at fault. Nothing of the entry is stored, so each
                # send is judged by itself.
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
            self.append_nowait(body, kind, on_done)
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

    def _set_aside(self, body: Buffer | Draft, appended: Appended, aside: SetAside) -> NotApplied:
        """An entry has no effect: the offsets that it took are given out again."""
        if not isinstance(body, bytes | bytearray | memoryview) and isinstance(body, TakesOffsets):
            self._assignments.withdraw(body.places, appended.index, self.log.status.last_index)
        return NotApplied(f"entry {appended.index} is set aside: {aside.reason}")
