"""The files that a broker makes from its log, compared with the log: queues, key index, snapshot.

A snapshot claims what queue files and the key index have: of each queue the offsets from one to
another, of the index its units up to a number. What it does not claim is cut off by the next start,
and says nothing; nor does a unit of the index that points before the log's beginning. Each unit
that is claimed must be as it was written (it has a check of its content and its place), and point
to a record that the same replica's log has: a queue's to the one of this topic, queue and offset,
as long as it says; the index's to any. A snapshot must be readable, and not ahead of its log.

Layout: ``snapshot.msgpack`` is magic u64, length u64, CRC-32 of the payload, and msgpack.
``queues/<topic>.<entry>/<queue>/<first offset>`` has units of 32 bytes, big-endian: position u64,
size u32, check u32, lives u32, tags i32, time i64. ``index/<first unit>`` has units of 16 bytes,
little-endian: hash u64, position u48, check u16; a ``.sorted`` one has all hashes first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dledger.checksum import crc32
from dledger.log.disk import mapped
from dledger.log.scanning.scan import scan_entries
from dledger.log.segments.segment import segment_path
from dledger.remoting.record import BORN_HOST_IPV6, MAGIC, STORE_HOST_IPV6
from dledger.remoting.record.columns import FRONT
from dledger.remoting.record.layout import (
    BODY_AT,
    BODY_LENGTH_AT,
    HOST_IPV6_EXTRA_BYTES,
)
from mqspark.limits import DERIVED_UNITS_MAX, DIFFERENCES_MAX
from mqspark.source.planning import Replica

SNAPSHOT: Final = "snapshot.msgpack"
UNITS_FORMAT: Final = 2
"""Files of another format are made anew by the broker, and are not looked at."""
_HEADER: Final = struct.Struct(">8sQI")
_MAGIC: Final = b"DLGSNAP1"
_PER_FILE: Final = 1 << 18
_UNIT: Final = np.dtype([("position", ">u8"), ("size", ">u4"), ("check", ">u4"), ("rest", "V16")])
_KEY: Final = np.dtype([("hash", "<u8"), ("word", "<u8")])
_POSITION_BITS: Final = np.uint64(48)
_KEYS_SEED: Final = np.uint64(0x6B65_7973)
_PRIME: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_SHIFT: Final = np.uint64(29)
_PRIMES: Final = np.array(
    [_PRIME, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9, 0xD6E8_FEB8_6659_FD93], np.uint64
)
_COUNTED: Final = np.array([2**64 - 1, (2**64 - 1) ^ 0xFFFF_FFFF, 2**64 - 1, 2**64 - 1], np.uint64)
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[Any]


class Difference(NamedTuple):
    """A range of units of one file that are not as the log has it; of the snapshot, (0, 0)."""

    file: str
    topic: str | None
    queue_id: int | None
    first: int
    last: int
    error: str


class _Claims(msgspec.Struct):
    """The claims of a snapshot about the files beside it."""

    applied_index: int = 0
    queues: dict[str, tuple[int, dict[int, int]]] = {}
    begins: dict[str, dict[int, int]] = {}
    keys: tuple[int, int] = (0, 0)
    units_format: int = 1


@dataclass
class Derived:
    """The derived files of one replica. `looked_at` counts units, and the snapshot as one."""

    directory: Path
    segment_bytes: int
    begin: int = 0
    looked_at: int = 0

    def differences(self, last_index: int) -> Iterator[Difference]:
        """Differences from the log, whose last entry has this index; 0 if that is not known."""
        try:
            raw = (self.directory / SNAPSHOT).read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            yield Difference(SNAPSHOT, None, None, 0, 0, f"it can't be read ({error.strerror})")
            return
        self.looked_at += 1
        claims = _claims(raw)
        if isinstance(claims, str):
            yield Difference(SNAPSHOT, None, None, 0, 0, claims)
            return
        if last_index and claims.applied_index > last_index:
            said = f"it has entry {claims.applied_index}, and the log ends with {last_index}"
            yield Difference(SNAPSHOT, None, None, 0, 0, said)
        if claims.units_format != UNITS_FORMAT:
            return
        for topic, (made, ends) in claims.queues.items():
            for queue_id, end in ends.items():
                begin = claims.begins.get(topic, {}).get(queue_id, 0)
                yield from self._queue(topic, made, queue_id, begin, end)
        yield from self._index(*claims.keys)

    def _queue(
        self, topic: str, made: int, queue_id: int, begin: int, end: int
    ) -> Iterator[Difference]:
        is_name = not {"/", "\0"} & {*topic} and 0 <= queue_id < 2**31
        if not 0 <= begin <= end < 2**62 or not is_name:
            said = f"it claims the offsets {begin} to {end} of {topic!r}, queue {queue_id}"
            yield Difference(SNAPSHOT, None, None, 0, 0, said)
            return
        name = f"{topic}.{made}/{queue_id}"
        seed, at = crc32(name.encode()), begin
        while at < end:
            within = at % _PER_FILE
            count = min(end - at, _PER_FILE - within, DERIVED_UNITS_MAX)
            file = f"queues/{name}/{at - within:020}"
            raw = self._part(file, within * _UNIT.itemsize, count * _UNIT.itemsize)
            units = np.frombuffer(raw[: len(raw) // _UNIT.itemsize * _UNIT.itemsize], _UNIT)
            self.looked_at += len(units)
            if len(units) < count:
                said = f"the file has {len(units)} of {count} units"
                yield Difference(file, topic, queue_id, at + len(units), at + count - 1, said)
            if len(units):
                bad = units["check"] != _checks(units, at, seed)
                yield from _ranges(bad, file, topic, queue_id, at, "its units do not check")
                wrong = ~bad & ~self._are_of(units, topic, queue_id, at)
                said = "the log has no such message where they point to"
                yield from _ranges(wrong, file, topic, queue_id, at, said)
            if len(raw) < count * _UNIT.itemsize and not raw:
                return  # more files would say the same of a queue that is not there
            at += count

    def _index(self, first: int, end: int) -> Iterator[Difference]:
        if not 0 <= first <= end < 2**62:
            said = f"it claims the keys {first} to {end}"
            yield Difference(SNAPSHOT, None, None, 0, 0, said)
            return
        for number in range(first - first % _PER_FILE, end, _PER_FILE):
            count, file = min(end - number, _PER_FILE), f"index/{number:020}"
            if (self.directory / f"{file}.sorted").exists():
                file += ".sorted"
                raw = self._part(file, 0, count * _KEY.itemsize)
                words = np.frombuffer(raw[: len(raw) // 16 * 16], "<u8")
                hashes, words = words[: len(words) // 2], words[len(words) // 2 :]
            else:
                raw = self._part(file, 0, count * _KEY.itemsize)
                units = np.frombuffer(raw[: len(raw) // 16 * 16], _KEY)
                hashes, words = units["hash"], units["word"]
            self.looked_at += len(words)
            if len(words) < count:
                said = f"the file has {len(words)} of {count} units"
                last = number + count - 1
                yield Difference(file, None, None, number + len(words), last, said)
                if not len(words) or file.endswith(".sorted"):
                    continue
            positions = words & ((np.uint64(1) << _POSITION_BITS) - np.uint64(1))
            bad = words >> _POSITION_BITS != _key_checks(hashes, positions)
            yield from _ranges(bad, file, None, None, number, "its units do not check")
            wrong = ~bad & ~self._are_records(positions) & (positions >= np.uint64(self.begin))
            said = "the log has no message where they point to"
            yield from _ranges(wrong, file, None, None, number, said)

    def _are_of(self, units: Rows, topic: str, queue_id: int, first: int) -> Flags:
        """Which units point to the message of this topic, queue and offset."""
        heads, there = self._heads(units["position"].astype(np.uint64))
        good: Flags = (
            there
            & (heads["magic"] == MAGIC)
            & (heads["physical_offset"] == units["position"])
            & (heads["size"] == units["size"])
            & (heads["queue_id"] == queue_id)
            & (heads["queue_offset"] == np.arange(first, first + len(units)))
        )
        flags = heads["sys_flag"]
        extra = np.where(flags & BORN_HOST_IPV6, HOST_IPV6_EXTRA_BYTES, 0)
        extra += np.where(flags & STORE_HOST_IPV6, HOST_IPV6_EXTRA_BYTES, 0)
        starts = units["position"].astype(np.int64) + extra
        body, known = self._bytes(starts + BODY_LENGTH_AT, 4, good)
        lengths = body.view(">u4")[:, 0].astype(np.int64)
        name = np.frombuffer(bytes([len(topic.encode()) & 255]) + topic.encode(), np.uint8)
        there_named, both = self._bytes(starts + BODY_AT + lengths, len(name), good & known)
        named: Flags = both & np.all(there_named == name, axis=1)
        return named

    def _are_records(self, positions: npt.NDArray[np.uint64]) -> Flags:
        """Whether records begin at these positions. Neighbours are of one message, mostly."""
        others = np.flatnonzero(np.concatenate(([True], positions[1:] != positions[:-1])))
        heads, good = self._heads(positions[others])
        good &= (heads["magic"] == MAGIC) & (heads["physical_offset"] == positions[others])
        return np.repeat(good, np.diff(np.concatenate((others, [len(positions)]))))

    def _heads(self, positions: npt.NDArray[np.uint64]) -> tuple[Rows, Flags]:
        """The fixed fields of the records at these positions, and which of them are in a file."""
        usable = positions < np.uint64(2**62)
        places = np.where(usable, positions, 0).astype(np.int64)
        found, known = self._bytes(places, FRONT.itemsize, usable)
        return found.view(FRONT)[:, 0], known

    def _bytes(self, places: Rows, width: int, wanted: Flags) -> tuple[Bytes, Flags]:
        """Numbers of bytes at each place of the log, and which of them are in a segment's file."""
        found = np.zeros((len(places), width), np.uint8)
        known = np.zeros(len(places), np.bool_)
        bases = places // self.segment_bytes * self.segment_bytes
        starts = np.flatnonzero(np.concatenate(([True], bases[1:] != bases[:-1])))
        for base in {*bases[starts].tolist()}:
            with mapped(segment_path(self.directory / "log", base)) as raw:
                if raw is None or len(raw) < width:
                    continue
                data = np.frombuffer(raw, np.uint8)
                inside = places - base <= len(data) - width
                chosen = np.flatnonzero(wanted & (bases == base) & inside)
                windows = np.lib.stride_tricks.sliding_window_view(data, width)
                found[chosen] = windows[places[chosen] - base]
                known[chosen] = True
                del windows, data
        return found, known

    def _part(self, file: str, at: int, size_bytes: int) -> bytes:
        """A part of a file, as much of it as is there."""
        try:
            with (self.directory / file).open("rb") as opened:
                opened.seek(at)
                return opened.read(size_bytes)
        except OSError:
            return b""


def look_at(replica: Replica) -> tuple[int, list[Difference]]:
    """How much of a replica's files was looked at, and the first of what is unlike its log."""
    derived = Derived(Path(replica.directory), replica.segment_bytes, replica.begin)
    found = [*islice(derived.differences(_last_index(replica)), DIFFERENCES_MAX)]
    return derived.looked_at, found


def _last_index(replica: Replica) -> int:
    """The index of the last sound entry in the files; 0 if there is none."""
    for base in reversed(replica.segments):
        with mapped(segment_path(Path(replica.directory) / "log", base)) as raw:
            if raw is None:
                continue
            found = scan_entries(raw, base, replica.segment_bytes, None, verify=False)
            last = max(
                (each.header.index for each in found if each.header and each.error is None),
                default=0,
            )
            if last:
                return last
    return 0


def _claims(raw: bytes) -> _Claims | str:
    """The claims of a snapshot, or the reason why it is not one."""
    if len(raw) < _HEADER.size:
        return f"it has {len(raw)} bytes, fewer than its header"
    magic, length, crc = _HEADER.unpack_from(raw)
    payload = raw[_HEADER.size :]
    if magic != _MAGIC or length != len(payload) or crc != crc32(payload):
        return "it does not match its own length or checksum"
    try:
        return msgspec.msgpack.decode(payload, type=_Claims)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "it says of queues and keys what can't be read"


def _ranges(
    bad: Flags, file: str, topic: str | None, queue_id: int | None, first: int, error: str
) -> Iterator[Difference]:
    """The runs of units that are bad."""
    if not bad.any():
        return
    edges = np.flatnonzero(np.diff(np.concatenate(([0], bad.astype(np.int8), [0]))))
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield Difference(file, topic, queue_id, first + begin, first + end - 1, error)


def _checks(units: Rows, first: int, seed: int) -> npt.NDArray[np.uint64]:
    words = units.view(">u8").reshape(-1, len(_PRIMES)).astype(np.uint64) & _COUNTED
    words = (words ^ (_PRIMES >> np.uint64(1))) * _PRIMES
    words ^= words >> _SHIFT
    value: npt.NDArray[np.uint64] = np.bitwise_xor.reduce(words, axis=1)
    value ^= np.arange(first, first + len(units), dtype=np.uint64) ^ np.uint64(seed << 32)
    return (value * _PRIME) >> np.uint64(32)


def _key_checks(hashes: Rows, positions: Rows) -> npt.NDArray[np.uint64]:
    value = (hashes.astype(np.uint64) ^ _KEYS_SEED ^ positions) * _PRIME
    checks: npt.NDArray[np.uint64] = (value ^ (value >> _SHIFT)) >> _POSITION_BITS
    return checks
