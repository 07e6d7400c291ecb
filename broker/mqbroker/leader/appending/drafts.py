"""Message batches that wait for their place in the log.

A record holds its own queue offset, position and store time, so its last bytes are known only when
the ledger has decided where the entry goes; it then calls `place`. Records of our producers are
finished except for those fields, which are filled in for all at once. Records of stock clients are
encoded here first. Either way nothing can fail any more once a message has taken its offset.

Messages may come with a note of what else their entry does. A mark says what kind of note is next
(`mqbroker.state.once`, `mqbroker.state.groups.given_up`); a move (`mqbroker.state.moves`) is a note
by itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record import (
    CRC_MASK,
    HOST_BITS,
    Record,
    encode_records,
    place_records,
)
from dledger.remoting.record.batch import RecordBatch
from dledger.remoting.record.lone import LoneRecord
from mqbroker.leader.assignments import Assignments


class BatchDraft:
    """Records that a producer of ours made. `runs`: (queue id, count) in the batch's order."""

    def __init__(
        self,
        batch: RecordBatch | LoneRecord,
        topic: str,
        runs: Sequence[tuple[int, int]],
        assignments: Assignments,
        store_host: bytes,
    ) -> None:
        self.size = len(batch.buffer)
        #: Once placed: (queue id, queue offset of the first record), for each run.
        self.offsets: list[tuple[int, int]] = []
        #: Once placed: the store time of all records.
        self.store_timestamp_ms = 0
        self._batch = batch
        self._topic = topic
        self._runs = runs
        self._assignments = assignments
        self._store_host = store_host

    @property
    def starts(self) -> Sequence[int]:
        """Offsets in the body, in bytes, at which the records begin."""
        return self._batch.starts

    @property
    def places(self) -> Sequence[tuple[str, int]]:
        """The topic and queues that the messages go to."""
        return [(self._topic, queue_id) for queue_id, _ in self._runs]

    def body_crcs(self) -> list[int]:
        """The records' body CRCs, in order: they tell a repeat from another batch."""
        return self._batch.body_crcs

    def place(self, body_position: int, index: int, term: int) -> Buffer:
        """Fill in what depends on the place, in the records' own bytes."""
        return self.fill_in(body_position, self._assignments.now_ms())

    def fill_in(self, body_position: int, now_ms: int) -> Buffer:
        """Fill in the place and a given store time. It may be done again, if an entry had no
        effect."""
        take, topic = self._assignments.take, self._topic
        firsts = [take(topic, queue_id, count) for queue_id, count in self._runs]
        self.offsets = [
            (queue_id, first) for (queue_id, _), first in zip(self._runs, firsts, strict=True)
        ]
        self.store_timestamp_ms = now_ms
        self._batch.place(body_position, firsts, now_ms, self._store_host)
        return self._batch.buffer


class NewRecord(NamedTuple):
    """A message that the broker makes a record of; fields as in `record.encode_record`, in the
    order of `record.encode.Fields`."""

    body: Buffer
    properties: bytes
    born_timestamp_ms: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0

    @classmethod
    def copy(cls, record: Record) -> NewRecord:
        """A record, to be stored once more."""
        return cls(
            body=bytes(record.body),
            properties=bytes(record.properties),
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=record.born_host,
            flag=record.flag,
            sys_flag=record.sys_flag & ~HOST_BITS,
            reconsume_times=record.reconsume_times,
        )

    def encode(self, topic: str, queue_id: int, store_host: bytes) -> bytearray:
        """The bytes of the record; its place is filled in later. Raises RecordError."""
        return encode_records([self], topic.encode(), [queue_id], store_host)[0]


class RecordsDraft:
    """Messages that the broker makes records of. `runs`: (queue id, count), in order.

    They are encoded here, before they take any offset. Raises RecordError for a message that can't
    be a record; then nothing has happened.
    """

    def __init__(
        self,
        records: Sequence[NewRecord],
        topic: str,
        runs: Sequence[tuple[int, int]],
        assignments: Assignments,
        store_host: bytes,
    ) -> None:
        self.offsets: list[tuple[int, int]] = []
        self.store_timestamp_ms = 0
        self._records = records
        self._topic = topic
        self._runs = runs
        self._assignments = assignments
        queue_ids = [queue_id for queue_id, count in runs for _ in range(count)]
        self._buffer, self.starts = encode_records(records, topic.encode(), queue_ids, store_host)
        self.size = len(self._buffer)

    @property
    def places(self) -> Sequence[tuple[str, int]]:
        """The topic and queues that the messages go to."""
        return [(self._topic, queue_id) for queue_id, _ in self._runs]

    def body_crcs(self) -> list[int]:
        """The records' body CRCs, in order."""
        return [crc32(record.body) & CRC_MASK for record in self._records]

    def place(self, body_position: int, index: int, term: int) -> Buffer:
        """Fill in where the records went."""
        return self.fill_in(body_position, self._assignments.now_ms())

    def fill_in(self, body_position: int, now_ms: int) -> Buffer:
        """Fill in the places and a given store time. It may be done again, if an entry had no
        effect."""
        self.store_timestamp_ms = now_ms
        self.offsets = []
        done = 0
        for queue_id, count in self._runs:
            first = self._assignments.take(self._topic, queue_id, count)
            self.offsets.append((queue_id, first))
            starts = self.starts[done : done + count]
            place_records(self._buffer, starts, first, body_position, now_ms)
            done += count
        return self._buffer


PlainDraft: TypeAlias = BatchDraft | RecordsDraft
"""A draft of messages and nothing else: others' may stand beside them in an entry."""


class NotedDraft:
    """An entry of notes and messages: each part is a draft of its topic's messages.

    The notes are encoded before anything takes an offset. Raises RecordError if they can't be. All
    of it has one store time.
    """

    def __init__(
        self,
        notes: Sequence[bytes],
        parts: Sequence[PlainDraft],
        assignments: Assignments,
        store_host: bytes,
    ) -> None:
        now_ms = assignments.now_ms()
        encoded = [
            NewRecord(body, b"", now_ms, store_host).encode(OP_TOPIC, 0, store_host)
            for body in notes
        ]
        self._notes = bytearray(b"".join(encoded))
        self._notes_at = [0, *accumulate(map(len, encoded[:-1]))]
        self._parts = parts
        self._assignments = assignments
        self.offsets: list[tuple[int, int]] = []
        self.store_timestamp_ms = 0
        self.places = [(OP_TOPIC, 0), *(place for part in parts for place in part.places)]
        #: Where each message begins; or the entry, if there is none.
        self.starts: list[int] = []
        at = len(self._notes)
        for part in parts:
            self.starts += [at + start for start in part.starts]
            at += part.size
        self.size = at

    def body_crcs(self) -> list[int]:
        """The messages' body CRCs, in order."""
        return [crc for part in self._parts for crc in part.body_crcs()]

    def place(self, body_position: int, index: int, term: int) -> Buffer:
        """Fill in where all of it went."""
        self.store_timestamp_ms = now_ms = self._assignments.now_ms()
        for start in self._notes_at:
            offset = self._assignments.take(OP_TOPIC, 0, 1)
            place_records(self._notes, (start,), offset, body_position, now_ms)
        pieces: list[Buffer] = [self._notes]
        at = len(self._notes)
        for part in self._parts:
            pieces.append(part.fill_in(body_position + at, now_ms))
            self.offsets += part.offsets
            at += part.size
        return b"".join(pieces)


MessagesDraft: TypeAlias = PlainDraft | NotedDraft
"""A draft of an entry of messages (see `dledger.log.entry.Draft`)."""


def new_unique_key() -> str:
    """A key for a message that its sender gave none."""
    return os.urandom(16).hex().upper()
