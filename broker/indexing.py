"""What a committed entry of messages adds to the consume queues: pure, from its bytes alone.

An entry's body is message records back to back (reference: RocketMQ's stored message, see
`dledger.remoting.record`), all of one topic and one store time, since one request makes one entry.
Records of the same queue that stand next to each other form a run, with consecutive queue offsets.

This runs on every replica for every entry, so batches are taken apart by numpy: the fixed head of
all records is gathered at once, and only the tags are looked at one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from broker.consume_queue import UNIT, Units
from broker.dedup import dedup_key
from dledger.errors import StorageError
from dledger.remoting.message import TAGS, UNIQ_KEY, tags_code
from dledger.remoting.record import walk

#: The head of a record, up to the hosts, whose sizes depend on the sys flag.
_HEAD: Final = np.dtype(
    [
        ("size", ">u4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
_BORN_HOST_IPV6: Final = 0x10
_STORE_HOST_IPV6: Final = 0x20
_IPV6_EXTRA_BYTES: Final = 12
_BORN_HOST_AT: Final = 48
_BODY_LENGTH_AT: Final = 84
_U32: Final = struct.Struct(">I")
_I64: Final = struct.Struct(">q")
_TAGS: Final = TAGS.encode() + b"\x01"
_UNIQ_KEY: Final = UNIQ_KEY.encode() + b"\x01"
_END: Final = 0x02


class Run(NamedTuple):
    """Consecutive messages of one queue: where they begin in it, and their units."""

    queue_id: int
    first_offset: int
    units: Units


class EntryIndex(NamedTuple):
    """An entry of messages, taken apart."""

    topic: str
    store_timestamp_ms: int
    dedup_key: bytes | None
    runs: Sequence[Run]


def index_records(body: memoryview, position: int) -> EntryIndex:
    """Take apart the records in `body`, whose first byte is at `position` of the log.

    Raises StorageError if the records are none that a leader can have written.
    """
    raw = np.frombuffer(body, np.uint8)
    starts = np.array(walk(body), np.int64)
    rows = np.lib.stride_tricks.sliding_window_view(raw, _HEAD.itemsize)[starts]
    heads: Units = rows.view(_HEAD)[:, 0]
    first = _Tail.of(body, 0, int(heads["sys_flag"][0]))
    store_timestamp_ms = first.store_timestamp_ms

    units = np.empty(len(starts), UNIT)
    units["position"] = starts + position
    units["size"] = heads["size"]
    units["tags_code"] = _tags_codes(body, starts, heads, len(first.topic))
    units["store_timestamp_ms"] = store_timestamp_ms
    if not np.array_equal(heads["physical_offset"], units["position"].astype(np.int64)):
        raise StorageError(f"the entry at {position} holds records of another position")

    properties = bytes(body[first.properties_at : int(heads["size"][0])])
    unique_key = None
    if first.reconsume_times == 0:
        unique_key = _property(properties, _UNIQ_KEY, 0, len(properties))
    return EntryIndex(
        topic=first.topic.decode(),
        store_timestamp_ms=store_timestamp_ms,
        dedup_key=dedup_key(first.topic, unique_key) if unique_key else None,
        runs=_runs(heads["queue_id"], heads["queue_offset"], units),
    )


class _Tail(NamedTuple):
    """What stands behind the head of one record."""

    store_timestamp_ms: int
    reconsume_times: int
    topic: bytes
    properties_at: int

    @classmethod
    def of(cls, body: memoryview, start: int, sys_flag: int) -> _Tail:
        born_extra = _IPV6_EXTRA_BYTES if sys_flag & _BORN_HOST_IPV6 else 0
        extra = born_extra + (_IPV6_EXTRA_BYTES if sys_flag & _STORE_HOST_IPV6 else 0)
        (length,) = _U32.unpack_from(body, start + _BODY_LENGTH_AT + extra)
        topic_at = start + _BODY_LENGTH_AT + extra + 4 + length + 1
        topic_end = topic_at + body[topic_at - 1]
        return cls(
            store_timestamp_ms=_I64.unpack_from(body, start + _BORN_HOST_AT + 8 + born_extra)[0],
            reconsume_times=_U32.unpack_from(body, start + _BODY_LENGTH_AT - 12 + extra)[0],
            topic=bytes(body[topic_at:topic_end]),
            properties_at=topic_end + 2,
        )


def _runs(queue_ids: Units, offsets: Units, units: Units) -> list[Run]:
    breaks = np.flatnonzero(queue_ids[1:] != queue_ids[:-1]) + 1
    runs = []
    for part in np.split(np.arange(len(units)), breaks):
        first, last = int(part[0]), int(part[-1])
        first_offset = int(offsets[first])
        if int(offsets[last]) - first_offset != last - first:
            raise StorageError(f"records {first} to {last} do not have consecutive queue offsets")
        runs.append(Run(int(queue_ids[first]), first_offset, units[first : last + 1]))
    return runs


def _tags_codes(
    body: memoryview, starts: npt.NDArray[np.int64], heads: Units, topic_bytes: int
) -> list[int]:
    raw = np.frombuffer(body, np.uint8)
    flags = heads["sys_flag"]
    ipv6_hosts = ((flags & _BORN_HOST_IPV6) != 0).astype(np.int64)
    ipv6_hosts += (flags & _STORE_HOST_IPV6) != 0
    lengths_at = starts + _BODY_LENGTH_AT + _IPV6_EXTRA_BYTES * ipv6_hosts
    lengths = np.lib.stride_tricks.sliding_window_view(raw, 4)[lengths_at].view(">u4")[:, 0]
    begins = lengths_at + 4 + lengths + 1 + topic_bytes + 2
    ends = starts + heads["size"]
    data = bytes(body)  # find() over one copy beats a slice for each record
    return [
        _tags_code(_property(data, _TAGS, begin, end))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


def _property(data: bytes, key: bytes, begin: int, end: int) -> bytes | None:
    """The value behind `key`, which ends in 0x01, in the properties string data[begin:end]."""
    at = data.find(key, begin, end)
    while at > begin and data[at - 1] != _END:  # the end of a longer key, or within a value
        at = data.find(key, at + 1, end)
    if at < 0:
        return None
    value_end = data.find(b"\x02", at, end)
    return data[at + len(key) : value_end if value_end >= 0 else end]


@lru_cache(maxsize=1024)
def _tags_code(tag: bytes | None) -> int:
    return tags_code(tag.decode()) if tag else 0
