"""Property 18: files that a broker makes from its log agree with it, unit by unit."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from dledger.checksum import crc32
from mqspark.source.planning import Replica
from mqspark.testing.rewriting import StoredMessage, read_log

SNAPSHOT: Final = "snapshot.msgpack"
HEADER: Final = struct.Struct(">8sQI")
MAGIC: Final = b"DLGSNAP1"
#: Position, size, check, and two words of which nothing is asked but that they check.
UNIT: Final = struct.Struct(">QIIQQ")
#: Hash, and a word of position and check.
KEY: Final = struct.Struct("<QQ")
POSITION_BITS: Final = 48
FORMAT: Final = 2
FIRST_FILE: Final = f"{0:020}"
_MOST: Final = 2**62
_ALL: Final = 2**64 - 1
_SHIFT: Final = 29
_PRIME: Final = 0x9E37_79B9_7F4A_7C15
_PRIMES: Final = (_PRIME, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9, 0xD6E8_FEB8_6659_FD93)
_OF_KEYS: Final = 0x6B65_7973
#: A file of a replica, and the number of a unit in it; of the snapshot, 0.
Unlike = tuple[str, int]
Records = Mapping[int, StoredMessage]


def unlike(replica: Replica) -> set[Unlike]:
    """Units that differ from the log. No file has more than 2^18 of them here."""
    store, entries = Path(replica.directory), read_log(replica)
    records = {message.position: message for entry in entries for message in entry.messages}
    if not (store / SNAPSHOT).exists():
        return set()
    try:
        claims = read_claims((store / SNAPSHOT).read_bytes())
    except (OSError, ValueError):
        return {(SNAPSHOT, 0)}
    found = {(SNAPSHOT, 0)} if claims["applied_index"] > entries[-1].index else set()
    if claims.get("units_format") != FORMAT:
        return found
    for topic, (made, ends) in claims["queues"].items():
        for queue_id, end in ends.items():
            begin = claims["begins"].get(topic, {}).get(queue_id, 0)
            if not 0 <= begin <= end < _MOST or {"/", "\0"} & {*topic} or queue_id < 0:
                found.add((SNAPSHOT, 0))
                continue
            name = f"{topic}.{made}/{queue_id}"
            raw = _bytes(store / "queues" / name / FIRST_FILE)
            for number in range(begin, end):
                own = raw[number * UNIT.size : (number + 1) * UNIT.size]
                if not _is_sound(own, name, number) or not _is_of(
                    records.get(UNIT.unpack(own)[0]), own, topic, queue_id, number
                ):
                    found.add((f"queues/{name}/{FIRST_FILE}", number))
    return found | {*_keys(store, records, replica.begin, *claims["keys"])}


def read_claims(raw: bytes) -> dict[str, Any]:
    """The claims of a snapshot. ValueError if it is none."""
    if len(raw) < HEADER.size:
        raise ValueError(raw)
    magic, length, crc = HEADER.unpack_from(raw)
    payload = raw[HEADER.size :]
    if (magic, length, crc) != (MAGIC, len(payload), crc32(payload)):
        raise ValueError(raw)
    claims: dict[str, Any] = msgspec.msgpack.decode(payload, type=dict[str, Any], strict=False)
    return {"queues": {}, "begins": {}, "keys": (0, 0)} | claims


def unit_check(position: int, size: int, more: tuple[int, int], name: str, number: int) -> int:
    """The check of a queue's unit, by what it says, and its file and number."""
    value = number ^ crc32(name.encode()) << 32
    for word, prime in zip((position, size << 32, *more), _PRIMES, strict=True):
        value ^= _mixed(word ^ prime >> 1, prime)
    return (value * _PRIME & _ALL) >> 32


def key_check(hashed: int, position: int) -> int:
    """The check of a key's unit."""
    return _mixed(hashed ^ _OF_KEYS ^ position, _PRIME) >> POSITION_BITS


def _mixed(word: int, prime: int) -> int:
    value = word * prime & _ALL
    return value ^ value >> _SHIFT


def _bytes(path: Path) -> bytes:
    """The content of a file, if there is one."""
    return path.read_bytes() if path.is_file() else b""


def _is_sound(own: bytes, name: str, number: int) -> bool:
    if len(own) < UNIT.size:
        return False
    position, size, check, *more = UNIT.unpack(own)
    return bool(check == unit_check(position, size, (more[0], more[1]), name, number))


def _is_of(
    record: StoredMessage | None, own: bytes, topic: str, queue_id: int, offset: int
) -> bool:
    """Whether a unit's record is there, and the one of this place."""
    return record is not None and (
        (record.topic, record.queue_id, record.queue_offset, len(record.raw))
        == (topic, queue_id, offset, UNIT.unpack(own)[1])
    )


def _keys(store: Path, records: Records, begin: int, first: int, end: int) -> Iterator[Unlike]:
    """The keys that are not there, do not check, or point to no message of the log; where it begins
    later, nothing is asked."""
    file = f"index/{FIRST_FILE}"
    raw = _bytes(store / file)
    if (store / f"{file}.sorted").exists():
        file = f"{file}.sorted"
        raw = _bytes(store / file)
        half = len(raw) // 2
        raw = b"".join(
            raw[at : at + 8] + raw[half + at : half + at + 8] for at in range(0, half, 8)
        )
    for number in range(first, end):
        own = raw[number * KEY.size : (number + 1) * KEY.size]
        if len(own) < KEY.size:
            yield file, number
            continue
        hashed, word = KEY.unpack(own)
        position = word & (1 << POSITION_BITS) - 1
        sound = word >> POSITION_BITS == key_check(hashed, position)
        if not sound or (position >= begin and position not in records):
            yield file, number
