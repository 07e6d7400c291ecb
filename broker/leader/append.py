"""Appends of messages: once each, however often a producer asks.

A batch is known by its dedup key. One that is in the log already is answered with the first copy's
offsets. One that is on its way (a retry can overtake the answer to its first copy, or come over
another connection) waits for the same outcome as the first. Both looks happen on the leader, whose
window is complete: it has applied all that was in the log before its term, and every append since
is either applied or here.

The key alone is not proof enough to say "stored": a producer that starts anew may put other
messages behind a first one with a known key. A repeat must have the same bodies, or it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from broker.leader.drafts import MessagesDraft, stored_body_crcs
from broker.leader.log import Log
from broker.leader.role import Role
from broker.refusal import Refused
from broker.state.indexing import index_records
from broker.state.machine import Machine
from dledger.errors import AppendError
from dledger.log.entry import Kind
from dledger.raft.engine import Appended
from dledger.remoting.codes import ResponseCode


class Stored(NamedTuple):
    """Where a batch lies in the log. `positions` are those of its records, one by one."""

    positions: Sequence[int]
    offsets: Sequence[tuple[int, int]]
    """(queue id, queue offset of the first record), for each run."""
    store_timestamp_ms: int
    duplicate: bool


Done: TypeAlias = Callable[[Stored | Refused], None]


class Appender:
    """Puts message batches into the log."""

    def __init__(self, machine: Machine, log: Log, role: Role) -> None:
        self._machine = machine
        self._log = log
        self._role = role
        #: Why no messages are taken now, if they aren't.
        self.refusal: Callable[[], str | None] = lambda: None
        self._on_their_way: dict[bytes, list[tuple[list[int], Done]]] = {}

    def knows(self, key: bytes) -> bool:
        """Whether a batch of this key is in the log, or on its way there."""
        return key in self._on_their_way or self._machine.dedup.get(key) is not None

    def append(self, draft: MessagesDraft, key: bytes | None, on_done: Done) -> None:
        """Append a batch; `on_done` is called once, after it can be pulled, or with the refusal.

        Raises Refused if it is certain at once that nothing will be stored.
        """
        if key is None:
            self._submit(draft, on_done)
            return
        copy = self._machine.dedup.get(key)
        if copy is not None:
            on_done(self._first_copy(copy.position, copy.size, draft.body_crcs()))
            return
        waiting = self._on_their_way.get(key)
        if waiting is not None:
            waiting.append((draft.body_crcs(), on_done))
            return
        self._on_their_way[key] = []
        try:
            self._submit(draft, lambda outcome: self._finish(key, draft, outcome, on_done))
        except Refused:
            del self._on_their_way[key]
            raise

    def _submit(self, draft: MessagesDraft, on_done: Done) -> None:
        reason = self.refusal()
        if reason is not None:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, reason)

        def done(outcome: Appended | AppendError) -> None:
            if isinstance(outcome, AppendError):
                on_done(self._role.refusal_of(outcome))
                return
            start = outcome.body_position
            positions = [start + offset for offset in draft.starts]
            on_done(Stored(positions, draft.offsets, draft.store_timestamp_ms, duplicate=False))

        try:
            self._log.append_nowait(draft, Kind.MESSAGES, done)
        except AppendError as error:
            raise self._role.refusal_of(error) from error

    def _finish(
        self, key: bytes, draft: MessagesDraft, outcome: Stored | Refused, on_done: Done
    ) -> None:
        waiting = self._on_their_way.pop(key)
        on_done(outcome)
        for body_crcs, again in waiting:
            if isinstance(outcome, Refused):
                again(outcome)
            else:
                repeat = outcome._replace(duplicate=True)
                again(_same_batch(repeat, draft.body_crcs(), body_crcs))

    def _first_copy(self, position: int, size: int, body_crcs: list[int]) -> Stored | Refused:
        records = self._log.view(position, size)
        index = index_records(records, position)
        stored = Stored(
            positions=[int(at) for run in index.runs for at in run.decoded()["position"]],
            offsets=[(run.queue_id, run.first_offset) for run in index.runs],
            store_timestamp_ms=index.store_timestamp_ms,
            duplicate=True,
        )
        return _same_batch(stored, stored_body_crcs(records), body_crcs)


def _same_batch(stored: Stored, held: list[int], asked: list[int]) -> Stored | Refused:
    """A repeat must be the same batch again, or its offsets would be those of other messages."""
    if held == asked:
        return stored
    return Refused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"a batch of {len(asked)} messages begins with the unique key of another batch, of "
        f"{len(held)} messages: retry a batch unchanged, or give its messages new keys",
    )
