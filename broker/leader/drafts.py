"""Message batches waiting for their place in the log.

A record holds its own queue offset, position and store time, so its last bytes are known only when
the ledger has decided where the entry goes; it then calls `place`. Records that our producers made
are finished but for those fields, and are filled in all at once; those of stock clients are
encoded right there, with everything known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from broker.leader.assignments import Assignments
from dledger.checksum import crc32
from dledger.remoting.command import Buffer
from dledger.remoting.record import (
    BORN_HOST_IPV6,
    CRC_MASK,
    HOST_IPV4_BYTES,
    RECORD_OVERHEAD_BYTES,
    STORE_HOST_IPV6,
    Record,
    encode_record,
    walk,
)
from dledger.remoting.record.batch import RecordBatch
from dledger.remoting.record.lone import LoneRecord

_HOST_BITS: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6


class MessagesDraft(Protocol):
    """A draft of an entry of messages (see `dledger.log.entry.Draft`)."""

    offsets: list[tuple[int, int]]
    """Once placed: (queue id, queue offset of the first record), for each run."""
    store_timestamp_ms: int
    """Once placed: the store time of all records."""

    @property
    def size(self) -> int:
        """Bytes of all records."""

    @property
    def starts(self) -> Sequence[int]:
        """Where each record begins, from the first one's beginning."""

    def body_crcs(self) -> list[int]:
        """The records' body CRCs, in order: what tells a repeat from another batch."""

    def place(self, body_position: int, index: int, term: int) -> Buffer:
        """The finished records."""


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
        self.offsets: list[tuple[int, int]] = []
        self.store_timestamp_ms = 0
        self._batch = batch
        self._topic = topic
        self._runs = runs
        self._assignments = assignments
        self._store_host = store_host

    @property
    def starts(self) -> Sequence[int]:
        """Where each record begins."""
        return self._batch.starts

    def body_crcs(self) -> list[int]:
        """The records' body CRCs, in order."""
        return stored_body_crcs(self._batch.buffer)

    def place(self, body_position: int, index: int, term: int) -> Buffer:
        """Fill in what depends on the place, in the records' own bytes."""
        take, topic = self._assignments.take, self._topic
        firsts = [take(topic, queue_id, count) for queue_id, count in self._runs]
        self.offsets = [
            (queue_id, first) for (queue_id, _), first in zip(self._runs, firsts, strict=True)
        ]
        self.store_timestamp_ms = self._assignments.now_ms()
        self._batch.place(body_position, firsts, self.store_timestamp_ms, self._store_host)
        return self._batch.buffer


def stored_body_crcs(records: Buffer) -> list[int]:
    """The body CRCs of records that lie back to back."""
    view = memoryview(records)
    return [Record(view[start:]).body_crc for start in walk(view)]


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A message that the broker makes a record of; fields as in `record.encode_record`."""

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
            sys_flag=record.sys_flag & ~_HOST_BITS,
            reconsume_times=record.reconsume_times,
        )

    def size(self, topic: str, store_host: bytes) -> int:
        """Bytes of the record in a topic."""
        hosts_bytes = len(self.born_host) + len(store_host)
        fixed_bytes = RECORD_OVERHEAD_BYTES - 2 * HOST_IPV4_BYTES + hosts_bytes
        return fixed_bytes + len(topic.encode()) + len(self.body) + len(self.properties)

    def encode(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        position: int,
        store_timestamp_ms: int,
        store_host: bytes,
    ) -> bytes:
        """The record, once its place is known."""
        return encode_record(
            topic=topic.encode(),
            queue_id=queue_id,
            body=self.body,
            properties=self.properties,
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_timestamp_ms=self.born_timestamp_ms,
            born_host=self.born_host,
            reconsume_times=self.reconsume_times,
            prepared_offset=self.prepared_offset,
            queue_offset=queue_offset,
            physical_offset=position,
            store_timestamp_ms=store_timestamp_ms,
            store_host=store_host,
        )


class RecordsDraft:
    """Messages that are encoded when their place is known. `runs`: (queue id, count), in order."""

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
        self._store_host = store_host
        self.starts: list[int] = []
        self.size = 0
        for record in records:
            self.starts.append(self.size)
            self.size += record.size(topic, store_host)

    def body_crcs(self) -> list[int]:
        """The records' body CRCs, in order, as the records will have them."""
        return [crc32(record.body) & CRC_MASK for record in self._records]

    def place(self, body_position: int, index: int, term: int) -> Buffer:
        """Encode the records."""
        topic, store_host = self._topic, self._store_host
        self.store_timestamp_ms = now_ms = self._assignments.now_ms()
        encoded: list[bytes] = []
        for queue_id, count in self._runs:
            first = self._assignments.take(topic, queue_id, count)
            self.offsets.append((queue_id, first))
            for offset in range(first, first + count):
                record, at = self._records[len(encoded)], self.starts[len(encoded)]
                encoded.append(
                    record.encode(topic, queue_id, offset, body_position + at, now_ms, store_host)
                )
        return encoded[0] if len(encoded) == 1 else b"".join(encoded)
