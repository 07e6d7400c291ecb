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

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from dledger.errors import AppendError, RecordError, StorageError
from dledger.failpoints import failpoint
from dledger.log.entry import Kind
from dledger.remoting.codes import ResponseCode
from dledger.remoting.record import Record, walk
from dledger.remoting.record.columns import RecordColumns, record_starts
from mqbroker import limits
from mqbroker.leader.appending.drafts import (
    MessagesDraft,
    NewRecord,
    PlainDraft,
)
from mqbroker.leader.appending.entries import Entries
from mqbroker.leader.appending.in_flight import Flight, InFlight, Stored, Tell
from mqbroker.leader.appending.resends import (
    Asker,
    Copy,
    Send,
    Unheard,
    in_span,
    same_send,
    waits_in_vain,
)
from mqbroker.refusal import Refused, illegal_message
from mqbroker.state.dedup import StoredCopy
from mqbroker.state.groups.places import is_of_life
from mqbroker.state.machine import Machine

Admit: TypeAlias = Callable[[], None]
"""Raises Refused if messages can't be taken now; only called for what is not stored already."""


def always() -> None:
    """Admit all messages; the check for appends that are never held back."""


class Appender:
    """Puts message batches into the log."""

    def __init__(self, machine: Machine, entries: Entries) -> None:
        self._machine = machine
        self._entries = entries
        self._log = entries.log
        #: Why no messages are taken now; None if they are.
        self.refusal: Callable[[], str | None] = lambda: None
        #: By dedup key, and what stock clients sent by the copy that it makes.
        self._batches: InFlight[bytes, Flight] = InFlight()
        self._sends: InFlight[Copy, Flight] = InFlight()
        self._unheard = Unheard()

    def reset(self) -> None:
        """A leadership begins: it is not known which sends earlier leaders answered."""
        self._unheard.reset(self._machine.dedup.last_position)

    def knows(self, key: bytes, topic: str) -> bool:
        """Whether a batch of this key for a topic is in the log, or on its way there."""
        return self._batches.get(key) is not None or self._copy(key, topic) is not None

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
        tell: Tell[Stored],
        admit: Admit = always,
        topic: str = "",
    ) -> None:
        """Append a batch; `tell` is called once, after it can be pulled, or with why it can't.
        `topic` is the one that it was sent to.

        Raises Refused or an AppendError if it is certain at once that nothing will be stored.
        """
        flight = Flight(draft, tell)
        if key is not None:
            copy = self._copy(key, topic)
            if copy is not None:
                tell(self._first_copy(copy, draft))
                return
            first = self._batches.get(key)
            if first is not None:
                held, asked = first.draft.body_crcs(), draft.body_crcs()
                first.join(tell, lambda stored: _same_batch(stored, held, asked))
                return
            self._batches.add(key, flight)
        self.submit(flight, admit, shares_up_to=limits.BATCH_SHARES_UP_TO)

    def send(
        self, draft: MessagesDraft, send: Send, tell: Tell[Stored], admit: Admit = always
    ) -> None:
        """Append what a stock client sends, unless it is a retry of stored messages.

        `tell` and errors are as with `append`. The caller that answers calls `answered`.
        """
        if not send.keys:
            self.submit(Flight(draft, tell), admit)
            return
        copy = self._found(send)
        if copy is not None:
            self._unheard.take_over(copy, send.asker)
            first = self._sends.get(copy)
            if first is not None:
                first.join(tell)
                return
            assert copy.place is not None, "it is stored or on its way"
            records = self._log.view(*copy.place)
            tell(_stored_in(_columns(records), copy.place.position))
            return
        copy = self._unheard.open(send)
        flight = Flight(draft, partial(self._landed, copy, draft.size), tell)
        self._sends.add(copy, flight)
        try:
            self.submit(flight, admit)
        except BaseException:
            self._unheard.close(copy)
            raise

    def _landed(self, copy: Copy, size: int, outcome: Stored | Refused | AppendError) -> None:
        """The append of a copy is done; its sender is answered next, then those of its retries."""
        if isinstance(outcome, Stored):
            copy.send, copy.place = None, StoredCopy(outcome.positions[0], size)
        else:
            self._unheard.close(copy)

    def answered(self, asker: Asker, reached: bool) -> None:
        """The answer of a send was written to an open connection (`reached`), or it was gone."""
        self._unheard.answered(asker, reached=reached)

    def submit(self, flight: Flight, admit: Admit = always, shares_up_to: int = 1) -> None:
        """Append a draft that nothing stored is like; it leaves its table if that fails. One with
        so many messages at most may share an entry with others. Raises as `append`."""
        draft = flight.draft
        try:
            self._check(admit)
            failpoint("batch.take")
            if not (
                len(draft.starts) <= shares_up_to
                and isinstance(draft, PlainDraft)
                and self._entries.gathers(draft, flight.land)
            ):
                self._entries.append_nowait(draft, Kind.MESSAGES, flight.land)
            failpoint("batch.appended")
        except BaseException:
            flight.leave()
            raise

    def _check(self, admit: Admit) -> None:
        """Refuse what can't be taken now."""
        reason = self.refusal()
        if reason is not None:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, reason)
        admit()

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

    def _first_copy(self, copy: StoredCopy, draft: MessagesDraft) -> Stored | Refused:
        """Where a batch is stored that begins with the message of this copy.

        Of a batch that shares an entry with others each message has a copy of its own. Then its
        other messages follow in the same entry, and are those of the draft.
        """
        asked = draft.body_crcs()
        if copy.size < draft.size:
            with suppress(StorageError, RecordError):  # fewer follow: it is another batch
                records = _columns(self._log.view(copy.position, draft.size))
                if records.body_crcs == asked:
                    return _stored_in(records, copy.position)
        records = _columns(self._log.view(*copy))
        return _same_batch(_stored_in(records, copy.position), records.body_crcs, asked)


def _columns(records: memoryview) -> RecordColumns:
    return RecordColumns(records, record_starts(records))


def _stored_in(records: RecordColumns, position: int) -> Stored:
    """Where a batch of the log lies, from its records."""
    return Stored(
        positions=(records.starts + position).tolist(),
        offsets=[(run.queue_id, run.first_offset) for run in records.runs],
        store_timestamp_ms=Record(records.buffer).store_timestamp_ms,
        duplicate=True,
    )


def _same_batch(stored: Stored, held: list[int], asked: list[int]) -> Stored | Refused:
    """A repeat must be the same batch again, or its offsets would be those of other messages."""
    if held == asked:
        return stored
    return illegal_message(
        f"a batch of {len(asked)} messages begins with the unique key of another batch, of "
        f"{len(held)} messages: retry a batch unchanged, or give its messages new keys"
    )
