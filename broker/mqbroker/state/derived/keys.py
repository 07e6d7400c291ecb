"""The units of the key index, one for each key of a message. Pure.

A key is identified by a 64-bit hash of topic and key. A unit is 16 bytes, little-endian: hash u64,
position of the record u48, check u16 of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dledger.checksum import crc32
from dledger.remoting.record.columns import overlay
from mqbroker.state.derived.units import Words, mixed

UNIT: Final = np.dtype([("hash", "<u8"), ("position", "<u8")])
U64: Final = np.dtype("<u8")
_MASK: Final = (1 << 64) - 1
_POSITION_BITS: Final = 48
POSITION_MASK: Final = np.uint64((1 << _POSITION_BITS) - 1)
_CHECK_SEED: Final = np.uint64(0x6B65_7973)
_PRIME: Final = 0x9E37_79B9_7F4A_7C15
_SHIFT: Final = 29
#: Masks that keep the lowest 0 to 7 bytes of a word.
_KEPT: Final = np.array([(1 << 8 * count) - 1 for count in range(8)], np.uint64)

Hashes: TypeAlias = npt.NDArray[np.uint64]


class Key(NamedTuple):
    """A key of one message: its topic, the key, the position of its record."""

    topic: bytes
    key: bytes
    position: int


#: Keys as they come in: one by one, or as finished units of many.
Keys: TypeAlias = "Sequence[Key | bytes]"


def key_hashes(topic: bytes, keys: npt.NDArray[np.uint8]) -> Hashes:
    """The hashes of keys of a topic. All keys have one length: a row of bytes for each."""
    count, length = keys.shape
    padded = np.zeros((count, -(-length // 8) * 8), np.uint8)
    padded[:, :length] = keys
    return _mixed(np.full(count, _seed(topic, length), np.uint64), padded)


def _mixed(values: Hashes, padded: npt.NDArray[np.uint8]) -> Hashes:
    """Seeds, one for each row, with the rows mixed in, eight bytes at a time."""
    for words in padded.view(U64).T:
        values = mixed(values, words)
    return values


def _checked_words(hashes: Hashes, positions: Words) -> Words:
    """Positions, each with the check of its unit."""
    return positions | (_checks(hashes, positions) << np.uint64(_POSITION_BITS))


def _checks(hashes: Hashes, positions: Words) -> Words:
    return mixed(hashes ^ _CHECK_SEED, positions) >> np.uint64(_POSITION_BITS)


def all_check(hashes: Hashes, words: Words) -> bool:
    """Whether each word (position and check) belongs to its hash."""
    return bool(
        (words >> np.uint64(_POSITION_BITS) == _checks(hashes, words & POSITION_MASK)).all()
    )


def checks(hashed: int, word: int) -> bool:
    """Whether a word belongs to its hash: `all_check` for one unit, since in a binary search
    numpy's fixed cost matters."""
    once = ((hashed ^ int(_CHECK_SEED) ^ word & int(POSITION_MASK)) * _PRIME) & _MASK
    return (once ^ once >> _SHIFT) >> _POSITION_BITS == word >> _POSITION_BITS


def key_units(hashes: Hashes, positions: npt.NDArray[np.int64]) -> bytes:
    """Packed units of many messages: the hash of a key, and a log position each."""
    units = np.empty(len(hashes), UNIT)
    units["hash"], units["position"] = hashes, _checked_words(hashes, positions.astype(np.uint64))
    return units.tobytes()


def encode_keys(keys: Keys) -> bytes:
    """The units of keys, in their order."""
    pieces: list[bytes] = []
    single: list[Key] = []
    for key in keys:
        if isinstance(key, Key):
            single.append(key)
        else:
            pieces += (_units_of(single), key)
            single = []
    return b"".join((*pieces, _units_of(single)))


def hashes_of(topic: bytes, keys: Sequence[bytes]) -> Hashes:
    """The hashes of keys of a topic, of any lengths."""
    lengths = _lengths(keys)
    seeds = np.uint64(crc32(topic) << 16) | lengths.astype(np.uint64) & np.uint64(0xFFFF)
    return _ragged(seeds * np.uint64(_PRIME), keys, lengths)


def _units_of(keys: Sequence[Key]) -> bytes:
    seeds = np.array([_seed(key.topic, len(key.key)) for key in keys], np.uint64)
    positions = np.array([key.position for key in keys], np.int64)
    texts = [key.key for key in keys]
    return key_units(_ragged(seeds, texts, _lengths(texts)), positions)


def _lengths(keys: Sequence[bytes]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(len, keys), np.int64, len(keys))


def _ragged(seeds: Hashes, keys: Sequence[bytes], lengths: npt.NDArray[np.int64]) -> Hashes:
    """Seeds, one for each key, with the keys mixed in, eight bytes of all at a time.

    Not a length after the other: there may be as many lengths as keys, and each has thousands of
    steps. The longest are first, so that those that a step is for stand together.
    """
    longest_first = np.argsort(-lengths, kind="stable")
    begins = (np.cumsum(lengths) - lengths)[longest_first]
    hashes, lengths = seeds[longest_first], lengths[longest_first]
    words = overlay(b"".join((*keys, bytes(U64.itemsize))), U64)
    steps = np.arange(0, lengths[0] if len(keys) else 0, U64.itemsize)
    counts = np.searchsorted(-lengths, -steps)
    whole = np.searchsorted(-lengths, -steps - U64.itemsize, "right")
    for at, count, full in zip(steps.tolist(), counts.tolist(), whole.tolist(), strict=True):
        part = words[begins[:count] + at]
        if full < count:
            part[full:] &= _KEPT[lengths[full:count] - at]
        hashes[:count] = mixed(hashes[:count], part)
    ordered = np.empty_like(hashes)
    ordered[longest_first] = hashes
    return ordered


def _seed(topic: bytes, key_length: int) -> int:
    return ((crc32(topic) << 16 | key_length & 0xFFFF) * _PRIME) & _MASK
