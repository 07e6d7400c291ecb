"""Appends messages: each once, even if a producer repeats the send.

A batch is identified by its dedup key. If it is in the log already, the answer has the first copy's
offsets. If it is on its way (a retry can overtake the answer to its first copy, or come over
another connection), it waits for the first copy's outcome. The leader can check both, as it knows
all keys: it has applied all that was in the log before its term, and every append since is either
applied or kept here.

The key alone does not prove that the batch was stored: a restarted producer may send a batch that
begins with a known key and then has other messages. So a repeat must have the same bodies, or it is
refused.

That holds for our producers, which give each send a key of its own. A stock client's key comes
again with a retry, or with another send of the same message object.
`mqbroker.leader.appending.resends` tells which; only a retry is answered with the first copy's
place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeAlias

from dledger.errors import AppendError, RecordError, StorageError
from dledger.failpoints import failpoint
from dledger.log.entry import Kind
from dledger.raft.appends import Appended
from dledger.remoting.codes import ResponseCode
from dledger.remoting.record import Record, walk
from dledger.remoting.record.batch import body_crcs, stored_places
from mqbroker import limits
from mqbroker.leader.appending.drafts import (
    MessagesDraft,
    NewRecord,
    PlainDraft,
)
from mqbroker.leader.appending.entries import Entries
from mqbroker.leader.appending.resends import (
    Asker,
    Copy,
    Send,
    Unheard,
    in_span,
    same_send,
    waits_in_vain,
)
from mqbroker.leader.role import Role
from mqbroker.refusal import Refused
from mqbroker.state.dedup import StoredCopy
from mqbroker.state.groups.places import is_of_life
from mqbroker.state.machine import Machine


class Stored(NamedTuple):
    """Where a batch lies in the log. `positions` are those of its records, one by one."""

    positions: Sequence[int]
    offsets: Sequence[tuple[int, int]]
    """(queue id, queue offset of the first record), for each run."""
    store_timestamp_ms: int
    duplicate: bool


Done: TypeAlias = Callable[[Stored | Refused], None]


class Sent(NamedTuple):
    """Where the messages of a stock client's send lie: stored by this try, or by an earlier one."""

    stored: Stored
    told: Callable[[bool], None]
    """Must be called with whether the answer was written to an open connection."""


SentDone: TypeAlias = Callable[[Sent | Refused], None]
Admit: TypeAlias = Callable[[], None]
"""Raises Refused if messages can't be taken now; only called for what is not stored already."""


def always() -> None:
    """Nothing is held back."""


class Appender:
    """Puts message batches into the log."""

    def __init__(self, machine: Machine, log: Entries, role: Role) -> None:
        self._machine = machine
        self._log = log
        self._role = role
        #: Why no messages are taken now; None if they are.
        self.refusal: Callable[[], str | None] = lambda: None
        self._on_their_way: dict[bytes, list[tuple[list[int], Done]]] = {}
        self._unheard = Unheard()
        self._retries: dict[Copy, list[tuple[Asker, SentDone]]] = {}

    def reset(self) -> None:
        """A leadership begins: it is not known which sends earlier leaders answered."""
        self._unheard.reset(self._machine.dedup.last_position)

    def knows(self, key: bytes, topic: str) -> bool:
        """Whether a batch of this key for a topic is in the log, or on its way there."""
        return key in self._on_their_way or self._copy(key, topic) is not None

    def _copy(self, key: bytes, topic: str) -> StoredCopy | None:
        """The first copy of a batch that is in the log; none of an earlier life of its topic, which
        ended with it."""
        dedup = self._machine.dedup
        copy = dedup.get(key)
        if copy is not None and topic and not is_of_life(self._machine, topic, copy.position):
            copy = dedup.newest(key)
            if copy is not None and not is_of_life(self._machine, topic, copy.position):
                return None
        return copy

    def append(
        self,
        draft: MessagesDraft,
        key: bytes | None,
        on_done: Done,
        admit: Admit = always,
        topic: str = "",
    ) -> None:
        """Append a batch; `on_done` is called once, after it can be pulled, or with the refusal.
        `topic` is the one that it was sent to.

        Raises Refused if it is certain at once that nothing will be stored.
        """
        if key is None:
            self._submit(draft, on_done, admit, shares_up_to=limits.BATCH_SHARES_UP_TO)
            return
        copy = self._copy(key, topic)
        if copy is not None:
            on_done(self._first_copy(copy, draft))
            return
        waiting = self._on_their_way.get(key)
        if waiting is not None:
            waiting.append((draft.body_crcs(), on_done))
            return
        self._on_their_way[key] = []

        def done(outcome: Stored | Refused) -> None:
            self._finish(key, draft, outcome, on_done)

        try:
            self._submit(draft, done, admit, shares_up_to=limits.BATCH_SHARES_UP_TO)
        except BaseException:
            self._on_their_way.pop(key, None)
            raise

    def send(
        self, draft: MessagesDraft, send: Send, on_done: SentDone, admit: Admit = always
    ) -> None:
        """Append what a stock client sends, unless it is a retry of stored messages.

        `on_done` and errors are as with `append`. The caller that answers calls `Sent.told`.
        """
        if not send.keys:
            self._submit(draft, lambda outcome: on_done(sent(outcome)), admit)
            return
        copy = self._found(send)
        if copy is not None:
            self._unheard.take_over(copy, send.asker)
            if copy.place is None:
                self._retries[copy].append((send.asker, on_done))
            else:
                records = self._log.view(*copy.place)
                stored = _stored_in(records, copy.place.position)
                on_done(sent(stored, partial(self._told, copy, send.asker)))
            return
        copy = self._unheard.open(send)
        self._retries[copy] = [(send.asker, on_done)]
        try:
            self._submit(draft, lambda outcome: self._stored(copy, draft.size, outcome), admit)
        except BaseException:
            self._unheard.close(copy)
            self._retries.pop(copy, None)
            raise

    def _found(self, send: Send) -> Copy | None:
        """The copy that a send is a retry of, if it is one."""
        for key in send.keys:
            for copy in self._unheard.of(key):
                if waits_in_vain(copy.asker, send.asker) and self._same(copy, send):
                    return copy
        for key in send.keys:
            place = self._machine.dedup.newest(key)
            if place is not None and self._unheard.unknown(key, place):
                copy = Copy(key, None, None, place)
                if self._same(copy, send):
                    self._unheard.add(copy)
                    return copy
        return None

    def _same(self, copy: Copy, send: Send) -> bool:
        """Whether a copy may be of the same send."""
        if copy.send is not None:
            return same_send(copy.send.records, send.records)
        if copy.place is None or copy.place.position < self._machine.first_position:
            return False
        if send.topic and not is_of_life(self._machine, send.topic, copy.place.position):
            return False
        view = self._log.view(*copy.place)
        records = [Record(view[start:]) for start in walk(view)]
        return in_span(records[0].store_timestamp_ms, send.now_ms) and same_send(
            [NewRecord.copy(record) for record in records], send.records
        )

    def _stored(self, copy: Copy, size: int, outcome: Stored | Refused) -> None:
        """An append is done: answer its sender, then those of its retries."""
        waiting = self._retries.pop(copy)
        if isinstance(outcome, Refused):
            self._unheard.close(copy)
        else:
            copy.send, copy.place = None, StoredCopy(outcome.positions[0], size)
        (asker, on_done), *retries = waiting
        on_done(sent(outcome, partial(self._told, copy, asker)))
        if retries and isinstance(outcome, Stored):
            outcome = outcome._replace(duplicate=True)
        for asker, on_done in retries:
            on_done(sent(outcome, partial(self._told, copy, asker)))

    def _told(self, copy: Copy, asker: Asker, reached: bool) -> None:
        self._unheard.answered(copy, asker, reached=reached)

    def _submit(
        self, draft: MessagesDraft, on_done: Done, admit: Admit, shares_up_to: int = 1
    ) -> None:
        """Append. One with so many messages at most may share an entry with others."""
        reason = self.refusal()
        if reason is not None:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, reason)
        admit()

        def done(outcome: Appended | AppendError) -> None:
            failpoint("batch.applied")
            if isinstance(outcome, AppendError):
                on_done(self._role.refusal_of(outcome))
                return
            start = outcome.body_position
            positions = [start + offset for offset in draft.starts]
            on_done(Stored(positions, draft.offsets, draft.store_timestamp_ms, duplicate=False))
            failpoint("batch.answered")

        failpoint("batch.take")
        try:
            if len(draft.starts) <= shares_up_to and isinstance(draft, PlainDraft):
                self._log.send_nowait(draft, done)
            else:
                self._log.append_nowait(draft, Kind.MESSAGES, done)
        except AppendError as error:
            raise self._role.refusal_of(error) from error
        failpoint("batch.appended")

    def _finish(
        self, key: bytes, draft: MessagesDraft, outcome: Stored | Refused, on_done: Done
    ) -> None:
        waiting = self._on_their_way.pop(key)
        on_done(outcome)
        for crcs, again in waiting:
            if isinstance(outcome, Refused):
                again(outcome)
            else:
                repeat = outcome._replace(duplicate=True)
                again(_same_batch(repeat, draft.body_crcs(), crcs))

    def _first_copy(self, copy: StoredCopy, draft: MessagesDraft) -> Stored | Refused:
        """Where a batch is stored that begins with the message of this copy.

        Of a batch that shares an entry with others each message has a copy of its own. Then its
        other messages follow in the same entry, and are those of the draft.
        """
        asked = draft.body_crcs()
        if copy.size < draft.size:
            with suppress(StorageError, RecordError):  # fewer follow: it is another batch
                records = self._log.view(copy.position, draft.size)
                if body_crcs(records) == asked:
                    return _stored_in(records, copy.position)
        records = self._log.view(*copy)
        stored = _stored_in(records, copy.position)
        return _same_batch(stored, body_crcs(records), asked)


def _stored_in(records: memoryview, position: int) -> Stored:
    """Where a batch of the log lies, from its records."""
    starts, offsets = stored_places(records)
    return Stored(
        positions=[position + start for start in starts],
        offsets=offsets,
        store_timestamp_ms=Record(records).store_timestamp_ms,
        duplicate=True,
    )


def sent(
    outcome: Stored | Refused, told: Callable[[bool], None] = lambda reached: None
) -> Sent | Refused:
    """Add to an outcome the callback that wants to know whether it was answered."""
    return outcome if isinstance(outcome, Refused) else Sent(outcome, told)


def _same_batch(stored: Stored, held: list[int], asked: list[int]) -> Stored | Refused:
    """A repeat must be the same batch again, or its offsets would be those of other messages."""
    if held == asked:
        return stored
    return Refused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"a batch of {len(asked)} messages begins with the unique key of another batch, of "
        f"{len(held)} messages: retry a batch unchanged, or give its messages new keys",
    )
