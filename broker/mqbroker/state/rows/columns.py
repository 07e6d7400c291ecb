"""Rows of a snapshot for messages that wait (`mqbroker.state.waiting`), piece by piece. Pure.

There may be a million of them: their arrays are copied, and packed and turned to big-endian later,
a part at a time. Owners stand in the order of their first messages, not by their numbers, which
tell what was free before: so all replicas keep the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqbroker.state.rows.picture import Bytes, Joined, Rows
from mqbroker.state.shares import Owner

TAKEN: Final = -1
"""The time of one that waits no longer."""
TIME_KEPT: Final = np.dtype(">i8")
OWNER_KEPT: Final = np.dtype(">u4")
_AT_ONCE: Final = 1 << 15
Column = npt.NDArray[Any]


def waiting_pictured(
    count: int, columns: Sequence[Column], known: Mapping[int, Owner]
) -> tuple[Bytes, Joined]:
    """The offsets and times of `count` that wait, and their owners. The columns, which nobody
    changes: offsets, times, numbers of owners."""
    offsets, at_ms, owned_by = columns

    def packed(column: Column) -> Iterator[Column]:
        for start in range(0, len(at_ms), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            yield column[part][at_ms[part] != TAKEN]

    def times() -> Iterator[bytes]:
        for column in (offsets, at_ms):
            for part in packed(column):
                yield part.astype(TIME_KEPT).tobytes()

    names = _Names(lambda: packed(owned_by), known)
    return (
        Bytes(2 * count * TIME_KEPT.itemsize, times),
        Joined(names, Bytes(count * OWNER_KEPT.itemsize, names.places)),
    )


class _Names:
    """The owners of messages, and then the place of each message's among them."""

    def __init__(self, numbers: Callable[[], Iterator[Column]], known: Mapping[int, Owner]) -> None:
        self._numbers = numbers
        self._known = known
        self._ranks = np.full(max(known, default=-1) + 1, -1)

    def pieces(self) -> Iterator[bytes]:
        """The names, in the order of their first messages."""
        names: list[list[str]] = []
        for part in self._numbers():
            new, firsts = np.unique(part[self._ranks[part] < 0], return_index=True)
            for number in new[np.argsort(firsts)].tolist():
                self._ranks[number] = len(names)
                names.append([*self._known[number]])
            yield b""
        yield from Rows(len(names), lambda: names).pieces()

    def places(self) -> Iterator[bytes]:
        """The places; only behind the names."""
        for part in self._numbers():
            yield self._ranks[part].astype(OWNER_KEPT).tobytes()
