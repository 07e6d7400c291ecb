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
    BODY_AT,
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_HOST_IPV6,
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    HOST_IPV6_EXTRA_BYTES,
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_HOST_IPV6,
    SYS_FLAG_AT,
    U16,
    U32,
)

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: The fields before the born host.
FRONT = np.dtype(
    {
        "names": [
            *("size", "magic", "body_crc", "queue_id", "flag", "queue_offset"),
            *("physical_offset", "sys_flag", "born_timestamp"),
        ],
        "formats": [">u4", ">u4", ">u4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i8"],
        "offsets": [
            *(0, MAGIC_AT, BODY_CRC_AT, QUEUE_ID_AT, FLAG_AT, QUEUE_OFFSET_AT),
            *(PHYSICAL_OFFSET_AT, SYS_FLAG_AT, BORN_TIMESTAMP_AT),
        ],
        "itemsize": BORN_HOST_AT,
    }
)
_U16 = np.dtype(">u2")
_U32 = np.dtype(">u4")


class Spans(NamedTuple):
    """Where the parts of records lie, and which of them (`fit`) their parts fill exactly."""

    body_begins: Ints
    body_ends: Ints
    topic_begins: Ints
    topic_ends: Ints
    properties: Ints
    fit: Flags


class RecordColumns:
    """The fields of records that begin at `starts` in a buffer, and end there, as their sizes say.

    That must be so (`batch.record_starts`); nothing else is taken for granted.
    """

    def __init__(self, buffer: Buffer, starts: Ints) -> None:
        self.buffer = buffer
        self.starts = starts
        self.front: npt.NDArray[Any] = overlay(buffer, FRONT)[starts]
        self.ends: Ints = starts + self.front["size"]

    @cached_property
    def extra(self) -> Ints:
        """How many bytes more than those of two IPv4 hosts the hosts have."""
        flags = self.front["sys_flag"]
        wide: Ints = (flags & BORN_HOST_IPV6 != 0) * np.int64(1) + (flags & STORE_HOST_IPV6 != 0)
        return wide * HOST_IPV6_EXTRA_BYTES

    @cached_property
    def body_begins(self) -> Ints:
        """Where the bodies begin; beyond the end of a record that is too short for its hosts."""
        return self.starts + BODY_AT + self.extra

    @cached_property
    def body_lengths(self) -> Ints:
        """How large the records say that the bodies are: it may be too large."""
        places = np.minimum(self.body_begins, self.ends) - U32.size
        lengths: Ints = overlay(self.buffer, _U32)[places].astype(np.int64)
        return lengths

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
        sizes = overlay(self.buffer, _U16)[np.where(fit, topic_ends, 0)]
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


def overlay(buffer: Buffer, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """`buffer` as an array whose item i is what begins at byte i, aligned or not.

    Indexed by an array of places it gathers one item from each, or scatters one to each.
    """
    layout = np.dtype(dtype)
    return np.ndarray((len(buffer) - layout.itemsize + 1,), layout, buffer, strides=(1,))


@lru_cache(maxsize=TOPIC_BYTES_MAX)
def _tail(topic_bytes: int) -> np.dtype[np.void]:
    return np.dtype([("topic", f"V{1 + topic_bytes}"), ("properties_length", ">u2")])


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
