"""Bodies in parts: whether all that a message names is there, and is its body. Pure.

Such a message has no body of its own, but a property that says where its parts are, how many bytes
they are together, and their CRC-32. That property proves nothing of the parts. So they are looked
for: on each replica that holds the message, as parts of this very body, and whole. CRCs of parts
make the CRC of the whole, without a byte of them being read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dledger.remoting.message import PARTS_PREFIX
from mqspark.limits import PARTS_MAX

_POLYNOMIAL: Final = 0xEDB88320
_FIELDS: Final = 7


class Large(msgspec.Struct, frozen=True, array_like=True):
    """A record that names parts, or is one. `large` is what it says of that."""

    broker: str
    holders: int
    topic: str
    queue_id: int
    queue_offset: int
    position: int
    message_id: str | None
    crc: int | None
    is_whole: bool
    large: str

    @property
    def is_part(self) -> bool:
        """Whether it is a part of another message's body."""
        return self.topic.startswith(PARTS_PREFIX)


class Lacking(NamedTuple):
    """The fault of a large body on a replica, by its bit."""

    message: Large
    bit: int
    what: str
    detail: str


class _Named(NamedTuple):
    set_id: str
    size_bytes: int
    crc: int
    broker: str
    topic: str
    queue_id: int
    offsets: list[int]


def large_in(records: pa.Table) -> list[Large]:
    """The records that are about large bodies; mostly there is none."""
    if records["large"].null_count == len(records):
        return []
    rows = records.filter(pc.is_valid(records["large"]))
    return [
        Large(
            row["broker"],
            row["holders"],
            row["topic"],
            row["queue_id"],
            row["queue_offset"],
            row["position"],
            row["unique_key"],
            row["content_crc"],
            row["error"] is None,
            row["large"],
        )
        for row in rows.to_pylist()
        if not row["moved"]
    ]


def lacking(
    found: Sequence[Large],
    topics: Sequence[str],
    members: Mapping[str, int],
    removed: Mapping[str, bool],
) -> Iterator[Lacking]:
    """The faults of the large bodies of messages in these topics.

    `members`: how many replicas each broker has. `removed`: whether old segments were, from the
    log of any of them: then parts that are older than all that is left may have been there.
    """
    parts: dict[tuple[str, str, int, int], list[Large]] = {}
    first: dict[tuple[str, str, int], int] = {}
    for each in found:
        if each.is_part and each.is_whole:
            queue = (each.broker, each.topic, each.queue_id)
            parts.setdefault((*queue, each.queue_offset), []).append(each)
            first[queue] = min(each.queue_offset, first.get(queue, each.queue_offset))
    for message in found:
        if message.is_part or message.topic not in topics or not message.is_whole:
            continue
        named = _named(message.large)
        if named is None:
            yield Lacking(message, -1, "altered", f"it names no parts: {message.large[:200]}")
            continue
        queue = named[3:6]
        if named.broker not in members or (
            removed[named.broker] and named.offsets[0] < first.get(queue, 2**63)
        ):
            continue
        for bit in range(members[named.broker]):
            if named.broker != message.broker or message.holders & 1 << bit:
                said = _fault(
                    named, [parts.get((*queue, offset), []) for offset in named.offsets], bit
                )
                if said is not None:
                    yield Lacking(message, bit, *said)


def _fault(named: _Named, places: list[list[Large]], bit: int) -> tuple[str, str] | None:
    """The fault of the parts on one replica."""
    crc, size_bytes = 0, 0
    for offset, candidates in zip(named.offsets, places, strict=True):
        held = [each for each in candidates if each.holders & 1 << bit]
        where = f"its part at {named.topic}/{named.queue_id} offset {offset}"
        if not held:
            return "lost", f"{where} is not there, or can't be read"
        set_id, _, length = held[0].large.rpartition(" ")
        if set_id != named.set_id:
            return "lost", f"{where} is a part of another body"
        part_crc = held[0].crc
        if part_crc is None:
            return "altered", f"{where} can't be inflated"
        crc = crc_of_both(crc, part_crc, int(length))
        size_bytes += int(length)
    if size_bytes != named.size_bytes:
        return "altered", f"its parts have {size_bytes} bytes of {named.size_bytes}"
    if crc != named.crc:
        return "altered", f"its parts have CRC {crc:#010x}, it says {named.crc:#010x}"
    return None


def _named(text: str) -> _Named | None:
    """The parts that a property names."""
    fields = text.split(" ")
    if len(fields) != _FIELDS:
        return None
    set_id, size, crc, topic, broker, queue_id, places = fields
    try:
        runs = [[int(end) for end in run.split("-")] for run in places.split(",")]
        if not all(0 <= run[0] <= run[-1] for run in runs):
            return None
        if sum(run[-1] - run[0] + 1 for run in runs) > PARTS_MAX:
            return None
        offsets = [*chain.from_iterable(range(run[0], run[-1] + 1) for run in runs)]
        named = _Named(set_id, int(size), int(crc, 16), broker, topic, int(queue_id), offsets)
    except ValueError:
        return None
    return named if offsets else None


def crc_of_both(first: int, second: int, second_bytes: int) -> int:
    """The CRC-32 of two byte strings, from theirs and how long the second one is.

    A CRC is linear: bytes of zeros behind the first string are a matrix, which is squared for each
    bit of their number.
    """
    odd = [_POLYNOMIAL, *(1 << bit for bit in range(31))]  # one bit of zeros
    power = _squared(_squared(_squared(odd)))  # a byte of them
    while second_bytes:
        if second_bytes & 1:
            first = _times(power, first)
        power = _squared(power)
        second_bytes >>= 1
    return first ^ second


def _times(matrix: Sequence[int], vector: int) -> int:
    total = 0
    for bit in range(vector.bit_length()):
        if vector >> bit & 1:
            total ^= matrix[bit]
    return total


def _squared(matrix: Sequence[int]) -> list[int]:
    return [_times(matrix, row) for row in matrix]
