"""Units of the files that are derived from the log, each with a check of its own.

A disk that rots tells nobody. What it does to the log is found by the log's checksums; consume
queues and the key index are read here and there, a few units at a time, so each unit says by
itself whether it is what was written, and at the place where it was written. A unit that does not
is `DamagedFiles`: nothing of it is used, and the files are made again from the log
(`broker.mending`).

A check is no CRC but some steps of multiplying and shifting, which numpy does for all units of a
read at once. It begins with the unit's number and the file's seed: zeros, another queue's units,
and units that slipped to another offset don't check.
"""

from __future__ import annotations

from typing import Final, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from dledger.errors import StorageError

UNIT: Final = np.dtype(
    [("position", ">u8"), ("size", ">u4"), ("tags_code", ">i8"), ("store_timestamp_ms", ">i8")]
)
"""A unit of a consume queue in memory."""
FILED: Final = np.dtype(
    [
        ("position", ">u8"),
        ("size", ">u4"),
        ("check", ">u4"),
        ("tags_code", ">i8"),
        ("store_timestamp_ms", ">i8"),
    ]
)
"""The same in a file."""
UNIT_BYTES: Final = UNIT.itemsize
FILED_BYTES: Final = FILED.itemsize
#: An array of units; fields by name, e.g. ``units["position"]``.
Units: TypeAlias = npt.NDArray[np.void]
Words: TypeAlias = npt.NDArray[np.uint64]

_WORDS: Final = np.dtype(">u8")
_WITHOUT_CHECK: Final = np.uint64(0xFFFF_FFFF_0000_0000)
_PRIME: Final = 0x9E37_79B9_7F4A_7C15
_SHIFT: Final = 29
_CHECK_SHIFT: Final = 32

assert (UNIT_BYTES, FILED_BYTES) == (28, 32)


class DamagedFiles(StorageError):
    """What is derived from the log and kept in files is not what was written."""


class Damage:
    """What was found to be damaged, until somebody sees to it. Threads may write it."""

    def __init__(self) -> None:
        self._reason: str | None = None

    def found(self, reason: str) -> NoReturn:
        """Note it, and raise DamagedFiles."""
        self._reason = reason
        raise DamagedFiles(f"{reason}; it is made again from the log")

    def take(self) -> str | None:
        """What was found since the last call."""
        reason, self._reason = self._reason, None
        return reason


def mixed(value: Words, word: Words) -> Words:
    """A step of a check, or of a hash."""
    value = (value ^ word) * np.uint64(_PRIME)
    value ^= value >> np.uint64(_SHIFT)
    return value


def filed(units: bytes, first: int, seed: int) -> bytes:
    """Units as a file holds them; the first one has the number `first`."""
    source = np.frombuffer(units, UNIT)
    target = np.zeros(len(source), FILED)
    for name in UNIT.names or ():
        target[name] = source[name]
    target["check"] = _checks(target, first, seed)
    return target.tobytes()


def unfiled(raw: bytes, first: int, seed: int, target: Units) -> int | None:
    """Put a file's units into `target`; the number of the first that does not check, if any."""
    source = np.frombuffer(raw, FILED)
    good = source["check"] == _checks(source, first, seed)
    if not good.all():
        return first + int(np.argmin(good))
    for name in UNIT.names or ():
        target[name] = source[name]
    return None


def _checks(units: Units, first: int, seed: int) -> Words:
    words = units.view(_WORDS).reshape(len(units), FILED_BYTES // 8).astype(np.uint64)
    words[:, 1] &= _WITHOUT_CHECK
    value = np.arange(first, first + len(units), dtype=np.uint64) ^ np.uint64(seed << 32 | 1)
    for column in words.T:
        value = mixed(value, column)
    return value >> np.uint64(_CHECK_SHIFT)
