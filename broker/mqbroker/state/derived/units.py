"""Units of the files that are derived from the log, each with its own check.

Disks rot silently. In the log, checksums find that. Consume queues and the key index are read a few
units at a time, so each unit has a check of its content and of its place. If the check does not
fit, `DamagedFiles` is raised: the unit is not used, and the files are rebuilt from the log
(`mqbroker.upkeep.mending`).

A check is no CRC but some steps of multiplying and shifting, which numpy does for all units of a
read at once. It includes the unit's number and the file's seed: so zeros, another queue's units,
and units at another offset are found.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from dledger.errors import StorageError
from dledger.log.disk import is_loss
from mqbroker import limits

UNIT_FIELDS: Final = {
    "position": "Q",
    "size": "I",
    "check": "I",
    "lives": "I",
    "tags_code": "i",
    "store_timestamp_ms": "q",
}
"""The fields of a unit of a consume queue, each with its type as `struct` and numpy name it.

`lives` is how long after its store time the message is delivered: 0 for ever, else one more than
so many times `limits.LIVES_STEP_MS`. Earlier versions wrote the tags code with 64 bits, so all ones
stand there before a negative one: that is for ever, too.
"""
UNIT: Final = np.dtype([(name, f">{kind}") for name, kind in UNIT_FIELDS.items()])
"""A unit of a consume queue. Its check is set in a file; in memory it is 0."""
UNIT_BYTES: Final = UNIT.itemsize
#: An array of units; fields by name, e.g. ``units["position"]``.
Units: TypeAlias = npt.NDArray[np.void]
Words: TypeAlias = npt.NDArray[np.uint64]

_WORDS: Final = np.dtype(">u8")
_ALL: Final = (1 << 64) - 1
#: The second word holds the check itself.
_COUNTING: Final = np.array([_ALL, _ALL ^ 0xFFFF_FFFF, _ALL, _ALL], np.uint64)
_PRIME: Final = 0x9E37_79B9_7F4A_7C15
_SHIFT: Final = 29
_CHECK_SHIFT: Final = 32
_PRIMES: Final = np.array(
    [_PRIME, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9, 0xD6E8_FEB8_6659_FD93], np.uint64
)
_SALTS: Final = _PRIMES >> np.uint64(1)

assert UNIT_BYTES == 32


_FOR_EVER: Final = 0xFFFF_FFFF


def lives(expires_ms: int | None, store_timestamp_ms: int) -> int:
    """The field of a message that expires at a time; never too short, by a step at most too
    long."""
    if expires_ms is None:
        return 0
    steps = -((store_timestamp_ms - expires_ms) // limits.LIVES_STEP_MS)
    return 1 + max(0, steps) if steps < _FOR_EVER - 1 else 0


def expired(units: Units, now_ms: int) -> npt.NDArray[np.bool_] | None:
    """Which messages are delivered no more; None if all are."""
    field = units["lives"]
    if not field.any():
        return None
    steps = field.astype(np.int64) - 1
    until_ms = units["store_timestamp_ms"].astype(np.int64) + steps * limits.LIVES_STEP_MS
    gone = (field != 0) & (field != _FOR_EVER) & (until_ms <= now_ms)
    return gone if gone.any() else None


class DamagedFiles(StorageError):
    """A file that is derived from the log is damaged."""


class Damage:
    """The damage that was found last, until it is taken. Threads may set it."""

    def __init__(self) -> None:
        self._reason: str | None = None

    def found(self, reason: str) -> NoReturn:
        """Note it, and raise DamagedFiles."""
        self._reason = reason
        raise DamagedFiles(f"{reason}; it is made again from the log")

    def read(self, path: Path, descriptor: int, size_bytes: int, offset: int) -> bytes:
        """A part of an open file. Raises DamagedFiles if the file ends before, or the disk has lost
        it; OSError."""
        try:
            raw = os.pread(descriptor, size_bytes, offset)
        except OSError as error:
            self.look_at(error, path)
            raise
        if len(raw) != size_bytes:
            self.found(f"{path}: {len(raw)} of {size_bytes} bytes can be read from {offset} on")
        return raw

    def look_at(self, error: OSError, path: Path) -> None:
        """Raise DamagedFiles if an error of a read says that the disk has lost a part of a file."""
        if is_loss(error):
            self.found(f"{path}: the disk can't read it ({error.strerror})")

    def take(self) -> str | None:
        """The damage found since the last call."""
        reason, self._reason = self._reason, None
        return reason


def mixed(value: Words, word: Words) -> Words:
    """A step of a check, or of a hash."""
    value = (value ^ word) * np.uint64(_PRIME)
    value ^= value >> np.uint64(_SHIFT)
    return value


def filed(units: bytes, first: int, seed: int) -> bytes:
    """Units as a file holds them; the first one has the number `first`."""
    target = np.frombuffer(bytearray(units), UNIT)
    target["check"] = _checks(target, first, seed)
    return target.tobytes()


def unfiled(raw: bytes, first: int, seed: int) -> tuple[Units, int | None]:
    """A file's units, and the number of the first that does not check, if any."""
    units = np.frombuffer(bytearray(raw), UNIT)
    good = units["check"] == _checks(units, first, seed)
    units["check"] = 0
    return units, None if good.all() else first + int(np.argmin(good))


def _checks(units: Units, first: int, seed: int) -> Words:
    words = units.view(_WORDS).reshape(-1, len(_PRIMES)).astype(np.uint64)
    words &= _COUNTING
    words ^= _SALTS
    words *= _PRIMES
    words ^= words >> np.uint64(_SHIFT)
    value: Words = np.bitwise_xor.reduce(words, axis=1)
    value ^= np.arange(first, first + len(units), dtype=np.uint64)
    value ^= np.uint64(seed << 32)
    value *= np.uint64(_PRIME)
    value >>= np.uint64(_CHECK_SHIFT)
    return value
