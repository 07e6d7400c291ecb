"""Message records in an entry's body, as columns. Pure.

One pass in Python finds where each record and its variable parts are, and checks what only a walk
can check; it goes around what is damaged. Where nothing is, :mod:`mqspark.source.plain` looks at
many entries at once instead. The fixed fields of a whole batch are then cut out by numpy, and only
those that are asked for. Layout: RocketMQ's stored message, all big-endian::

    0 size, 4 magic, 8 body CRC, 12 queue, 16 flag, 20 queue offset, 28 physical offset,
    36 system flag, 40 born time, 48 born host (8 or 20), store time 8, store host (8 or 20),
    reconsume times 4, prepared offset 8, body length 4, body, topic length 1, topic,
    properties length 2, properties

Bits 0x10 and 0x20 of the system flag say which of the two hosts has an IPv6 address, that is, 20
bytes. The body CRC has 31 bits.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dledger.checksum import crc32
from dledger.remoting.message import ADDED
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record.layout import (
    BODY_AT,
    COMPRESSED,
    COMPRESSION_TYPE,
    CRC_MASK,
    FRONT,
    I64,
    MAGIC,
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    U16,
    U32,
    body_at,
)
from mqspark.limits import INFLATED_BODY_BYTES_MAX, INFLATED_WINDOW_BYTES_MAX

_CODECS_ZLIB: Final = (0x000, 0x300)
_CODEC_LZ4: Final = 0x100
_CODEC_ZSTD: Final = 0x200

_MAGIC_AS_STORED: Final = MAGIC.to_bytes(4, "big")
#: Stands between two properties. One more in front lets each pattern begin with fixed bytes, which
#: halves the time of a search.
_BETWEEN: Final = b"\x02"
_NAME_END: Final = b"\x01"
_ADDED: Final = frozenset(name.encode() for name in ADDED)
_UNIQUE_KEY: Final = re.compile(rb"\x02UNIQ_KEY\x01([^\x02]*)")
#: The third word of what names the parts of a body is the CRC-32 of the whole.
_PARTS: Final = re.compile(rb"\x02LARGE_BODY\x01[^ \x02]* [0-9]+ ([0-9a-f]{8}) ")


class Place(NamedTuple):
    """The values that all rows of one entry share: its place, and the mask of its holders."""

    entry_index: int | None
    term: int | None
    holders: int


@dataclass
class RecordColumns:
    """Records of one segment, column by column. Offsets are bytes within the segment.

    A row with a size and no `topic` is damaged bytes: its error says of what kind. `errors` and
    `moved` name rows by their numbers: few have an error, or were moved by the broker.
    """

    places: list[Place] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    bodies: list[tuple[int, int]] = field(default_factory=list)
    topics: list[str | None] = field(default_factory=list)
    properties: list[tuple[int, int]] = field(default_factory=list)
    unique_keys: list[str | None] = field(default_factory=list)
    content_crcs: list[int | None] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    bytes_held: int = 0

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def whole(self) -> npt.NDArray[np.bool_]:
        """Which rows are readable records. To be asked for when all rows are there."""
        return np.array([topic is not None for topic in self.topics], np.bool_)

    def add_damage(self, place: Place, start: int, size: int, error: str) -> None:
        """A row for bytes that hold no readable record, or for an entry with a fault."""
        self.errors[len(self)] = error
        self.places.append(place)
        self.starts.append(start)
        self.sizes.append(size)
        self.bodies.append((0, 0))
        self.topics.append(None)
        self.properties.append((0, 0))
        self.unique_keys.append(None)
        self.content_crcs.append(None)


class RecordWalk:
    """Walks entry bodies of one segment, whose first byte has `base_position`."""

    def __init__(self, raw: memoryview, base_position: int, *, verify: bool) -> None:
        self._raw = raw
        self._base_position = base_position
        self._verify = verify
        self._topics: dict[bytes, str] = {}

    def walk(self, rows: RecordColumns, place: Place, start: int, end: int) -> None:
        """Append a row for each record from `start` to `end`, and one for what lies between."""
        at, first = start, len(rows)
        while at < end:
            size = self._append(rows, place, at, end)
            if size == 0:
                size = self._bytes_to_next_record(at, end)
                rows.add_damage(place, at, size, "no message record can be read here")
            at += size
        if len(rows) > first and rows.topics[first] == OP_TOPIC:
            rows.moved.update(range(first + 1, len(rows)))

    def _bytes_to_next_record(self, start: int, end: int) -> int:
        """How far the next record is: a magic, in a record that says its own position."""
        rest = bytes(self._raw[start:end])
        found = rest.find(_MAGIC_AS_STORED, MAGIC_AT + 1)
        while found >= 0:
            at = start + found - MAGIC_AT
            if end - at >= BODY_AT:
                (physical_offset,) = I64.unpack_from(self._raw, at + PHYSICAL_OFFSET_AT)
                if physical_offset == self._base_position + at:
                    return at - start
            found = rest.find(_MAGIC_AS_STORED, found + 1)
        return end - start

    def _append(self, rows: RecordColumns, place: Place, at: int, end: int) -> int:
        """Append the row of one record. Returns its size, or 0 if there is no well-formed
        record."""
        raw = self._raw
        if end - at < BODY_AT:
            return 0
        size: int
        size, magic, body_crc, _, _, _, physical_offset, sys_flag, _ = FRONT.unpack_from(raw, at)
        record_end = at + size
        body = at + body_at(raw[at:end])
        if magic != MAGIC or record_end > end or body > record_end:
            return 0
        (body_length,) = U32.unpack_from(raw, body - U32.size)
        topic_at = body + body_length + 1
        if topic_at > record_end:
            return 0
        topic_end = topic_at + raw[topic_at - 1]
        properties_at = topic_end + 2
        if properties_at > record_end:
            return 0
        if properties_at + U16.unpack_from(raw, topic_end)[0] != record_end:
            return 0
        tail = bytes(raw[topic_at:record_end])
        properties = tail[properties_at - topic_at :]
        key = unique_key_in(properties)
        crc = crc32(raw[body : body + body_length]) if self._verify else None
        if crc is not None and crc & CRC_MASK != body_crc:
            rows.errors[len(rows)] = (
                f"message body has CRC {crc & CRC_MASK:#010x}, its record says {body_crc:#010x}"
            )
        elif crc is not None and sys_flag & COMPRESSED:
            crc = content_crc(raw[body : body + body_length], sys_flag)
        if physical_offset != self._base_position + at:
            said = f"record says that it stands at position {physical_offset}"
            rows.errors.setdefault(len(rows), said)
        if not body_length and crc is not None:
            crc = crc_of_parts(properties, crc)
        rows.places.append(place)
        rows.starts.append(at)
        rows.sizes.append(size)
        rows.bodies.append((body, body_length))
        rows.topics.append(self._topic(tail[: topic_end - topic_at]))
        rows.properties.append((properties_at, len(properties)))
        rows.unique_keys.append(key and properties[slice(*key)].decode("utf-8", "replace"))
        rows.content_crcs.append(crc)
        rows.bytes_held += size
        return size

    def _topic(self, raw: bytes) -> str:
        known = self._topics.get(raw)
        if known is None:
            known = self._topics[raw] = raw.decode("utf-8", "replace")
        return known


def unique_key_in(properties: bytes) -> tuple[int, int] | None:
    """Where the first unique key among properties begins and ends; None if there is none."""
    found = _UNIQUE_KEY.search(_BETWEEN + properties)
    return found and (found.start(1) - len(_BETWEEN), found.end(1) - len(_BETWEEN))


def sender_crc_in(properties: bytes, flag: int) -> int:
    """`dledger.remoting.message.sender_crc` of a record's bytes."""
    own = {}
    for piece in properties.split(_BETWEEN):
        name, _, value = piece.partition(_NAME_END)
        if value and name not in _ADDED:
            own[name] = piece + _BETWEEN
    return crc32(b"".join(sorted(own.values())), crc32((flag & 0xFFFFFFFF).to_bytes(4, "big")))


def crc_of_parts(properties: bytes, crc: int) -> int:
    """The CRC of the body whose parts the properties name; `crc` if they name none."""
    parts = _PARTS.search(_BETWEEN + properties)
    return crc if parts is None else int(parts[1], 16)


def content_crc(body: memoryview, sys_flag: int) -> int | None:
    """The CRC of a compressed body's content. None if it is no such content, or too much."""
    codec = sys_flag & COMPRESSION_TYPE
    if codec in _CODECS_ZLIB:
        content = _from_zlib(body)
    elif codec == _CODEC_LZ4:
        content = _from_lz4(body)
    else:
        content = _from_zstd(body) if codec == _CODEC_ZSTD else None
    return None if content is None else crc32(content)


def _from_zlib(body: memoryview) -> bytes | None:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(body, INFLATED_BODY_BYTES_MAX)
    except zlib.error:
        return None
    return content if inflater.eof else None


def _from_lz4(body: memoryview) -> bytes | None:
    import lz4.frame  # noqa: PLC0415 - few logs need it

    inflater = lz4.frame.LZ4FrameDecompressor()
    try:
        content: bytes = inflater.decompress(bytes(body), INFLATED_BODY_BYTES_MAX)
    except (RuntimeError, EOFError):
        return None
    return content if inflater.eof else None


def _from_zstd(body: memoryview) -> bytes | None:
    import zstandard  # noqa: PLC0415 - as above

    inflater = zstandard.ZstdDecompressor(max_window_size=INFLATED_WINDOW_BYTES_MAX)
    try:
        with inflater.stream_reader(bytes(body)) as reader:
            content: bytes = reader.read(INFLATED_BODY_BYTES_MAX + 1)
    except zstandard.ZstdError:
        return None
    return content if len(content) <= INFLATED_BODY_BYTES_MAX else None
