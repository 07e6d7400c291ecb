"""Many records read column by column: one field of all of them at once.

`FRONT` says where the fields lie whose places are fixed, `RecordColumns` where all others are. A
record's lengths may be any numbers, so what lies behind a length is looked at only where it is
within the record: that is what `spans` finds out for records of any topics, and `properties_of`
for those that should be of one.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dledger.buffers import Buffer
from dledger.limits import TOPIC_BYTES_MAX
from dledger.remoting.record.layout import (
    BACK_FIELDS,
    BODY_AT,
    BORN_HOST_IPV6,
    FRONT_FIELDS,
    HOST_IPV6_EXTRA_BYTES,
    I64,
    MAGIC,
    RECORD_OVERHEAD_BYTES,
    SIZE_AND_MAGIC,
    STORE_HOST_IPV6,
    STORE_TIMESTAMP_AT,
    U16,
)
from dledger.remoting.record.view import walk

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: The fields before the born host, and those before the body.
FRONT = np.dtype([(name, f">{kind}") for name, kind in FRONT_FIELDS.items()])
BACK = np.dtype([(name, f">{kind}") for name, kind in BACK_FIELDS.items()])


class Spans(NamedTuple):
    """Where the parts of records lie, and which of them (`fit`) their parts fill exactly."""

    body_begins: Ints
    body_ends: Ints
    topic_begins: Ints
    topic_ends: Ints
    properties: Ints
    fit: Flags


class Run(NamedTuple):
    """Records next to each other, of one queue."""

    queue_id: int
    first_offset: int
    records: int


class RecordColumns:
    """The fields of records that begin at `starts` in a buffer, and end there, as their sizes say.

    That must be so (`record_starts`); nothing else is taken for granted.
    """

    def __init__(self, buffer: Buffer, starts: Ints) -> None:
        self.buffer = buffer
        self.starts = starts
        self.front: npt.NDArray[Any] = overlay(buffer, FRONT)[starts]
        self.ends: Ints = starts + self.front["size"]

    @property
    def store_timestamps_at(self) -> Ints:
        """Where the store timestamps lie, behind the born hosts."""
        places: Ints = self.starts + STORE_TIMESTAMP_AT
        return places + self._wide(BORN_HOST_IPV6)

    @property
    def store_timestamps_ms(self) -> Ints:
        """When a broker stored each, by its clock."""
        times: Ints = overlay(self.buffer, I64.format)[self.store_timestamps_at].astype(np.int64)
        return times

    @cached_property
    def body_begins(self) -> Ints:
        """Where the bodies begin; beyond the end of a record that is too short for its hosts."""
        wide = self._wide(BORN_HOST_IPV6) + self._wide(STORE_HOST_IPV6)
        return self.starts + BODY_AT + wide

    def _wide(self, bit: int) -> Ints:
        """How many bytes more than that of an IPv4 host the hosts have that this flag bit is of."""
        wide: Ints = (self.front["sys_flag"] & bit != 0) * np.int64(HOST_IPV6_EXTRA_BYTES)
        return wide

    @property
    def back(self) -> npt.NDArray[Any]:
        """The fields before the bodies; any numbers if a record is too short for its hosts."""
        places = np.minimum(self.body_begins, self.ends) - BACK.itemsize
        fields: npt.NDArray[Any] = overlay(self.buffer, BACK)[places]
        return fields

    @cached_property
    def body_lengths(self) -> Ints:
        """How large the records say that the bodies are: it may be too large."""
        lengths: Ints = self.back["body_length"].astype(np.int64)
        return lengths

    @property
    def runs(self) -> list[Run]:
        """The runs of records of one queue, in order."""
        queue_ids = self.front["queue_id"]
        begins = np.flatnonzero(np.diff(queue_ids, prepend=-1))
        counts = np.diff(begins, append=len(queue_ids))
        columns = queue_ids[begins], self.front["queue_offset"][begins], counts
        return [*map(Run, *(column.tolist() for column in columns))]

    @property
    def body_crcs(self) -> list[int]:
        """The CRCs that the records say of their bodies, in order."""
        crcs: list[int] = self.front["body_crc"].tolist()
        return crcs

    @cached_property
    def spans(self) -> Spans:
        """Where the parts of each record lie."""
        begins, ends = self.body_begins, self.ends
        body_ends = begins + self.body_lengths
        fit = body_ends < ends
        lengths = overlay(self.buffer, np.uint8)[np.where(fit, body_ends, 0)].astype(np.int64)
        topic_begins = body_ends + 1
        topic_ends = topic_begins + lengths
        properties = topic_ends + U16.size
        fit &= properties <= ends
        sizes = overlay(self.buffer, U16.format)[np.where(fit, topic_ends, 0)]
        fit &= properties + sizes == ends
        return Spans(begins, body_ends, topic_begins, topic_ends, properties, fit)

    def properties_of(self, topic: bytes) -> Ints | None:
        """Where the properties begin, which go to each record's end. None unless all are of this
        topic, and fill their records exactly."""
        room = self.ends - self.body_begins - tail_bytes(topic) - self.body_lengths
        if not (room >= 0).all():
            return None
        body_ends = self.body_begins + self.body_lengths
        fields = tails(self.buffer, body_ends, topic)
        if not (fields["topic"] == topic_field(topic)).all():
            return None
        if not (fields["properties_length"] == room).all():
            return None
        return body_ends + tail_bytes(topic)


def record_starts(buffer: Buffer) -> Ints:
    """Where each record begins, as `walk` finds it. Raises RecordError.

    Records that are all as large as the first are found at once; others are walked.
    """
    size = SIZE_AND_MAGIC.unpack_from(buffer)[0] if len(buffer) >= RECORD_OVERHEAD_BYTES else 0
    if size >= RECORD_OVERHEAD_BYTES and len(buffer) % size == 0:
        heads: Ints = np.ndarray((len(buffer) // size,), ">u8", buffer, strides=(size,))
        if (heads == (size << 32 | MAGIC)).all():
            return np.arange(0, len(buffer), size, dtype=np.int64)
    return np.array(walk(buffer), np.int64)


def overlay(buffer: Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """`buffer` as an array whose item i is what begins at byte i, aligned or not.

    Indexed by an array of places it gathers one item from each, or scatters one to each.
    """
    layout = np.dtype(dtype)
    return np.ndarray((len(buffer) - layout.itemsize + 1,), layout, buffer, strides=(1,))


@lru_cache(maxsize=TOPIC_BYTES_MAX)
def _tail(topic_bytes: int) -> np.dtype[np.void]:
    return np.dtype([("topic", f"V{1 + topic_bytes}"), ("properties_length", U16.format)])


def tails(buffer: Buffer, body_ends: Ints, topic: bytes) -> npt.NDArray[Any]:
    """The fields between the bodies and the properties of records of one topic.

    Two columns: `topic`, with its length byte (compare with `topic_field`), and
    `properties_length` in bytes. The properties begin `tail_bytes` behind the body.
    """
    return overlay(buffer, _tail(len(topic)))[body_ends]


def topic_field(topic: bytes) -> np.void:
    """The topic as a record has it: with its length in the byte before."""
    return np.void(bytes((len(topic),)) + topic)


def tail_bytes(topic: bytes) -> int:
    """How many bytes lie between a body and the properties."""
    return _tail(len(topic)).itemsize
