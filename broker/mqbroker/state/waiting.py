"""Messages of one queue that wait, in no particular order: timed ones, and half messages. Pure.

They are part of the replicated state: a message waits from the entry that stored it until the move
(see `mqbroker.state.moves`) that takes it. The schedule that finds the next ones is derived from
this.

There may be a million of them, so they are arrays: offsets, which only grow, times, and the numbers
of their owners (`mqbroker.state.shares`). One that is taken leaves a gap, and the arrays are packed
when gaps are the half of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dledger.slices import drained
from mqbroker import limits
from mqbroker.state.aside import Unusable
from mqbroker.state.derived.schedule import Mask, Numbers, Schedule
from mqbroker.state.moves import Move
from mqbroker.state.rows.columns import OWNER_KEPT, TAKEN, TIME_KEPT, waiting_pictured
from mqbroker.state.rows.picture import Bytes, Joined
from mqbroker.state.shares import Owner, Owners

#: The owners, and the place of each message's among them, as a snapshot keeps them.
OwnersKept: TypeAlias = tuple[list[list[str]], bytes]


class Waiting:
    """Queue offset -> a time in ms: when the message is due, or since when it waits."""

    def __init__(self, owners: Owners | None = None) -> None:
        #: The owners of the waiting messages.
        self.owners = owners or Owners()
        self._offsets = array("q")
        self._at_ms = array("q")
        self._owned_by = array("I")
        self._first = self._count = 0
        self._schedule = Schedule(self._waits)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, offset: int) -> bool:
        return self._find(offset) is not None

    def items(self) -> Iterator[tuple[int, int]]:
        """(offset, time in ms) of all, in the order in which they came."""
        offsets, at_ms, _ = self._packed()
        return zip(offsets.tolist(), at_ms.tolist(), strict=True)

    def first_offset(self) -> int | None:
        """The oldest message that waits."""
        return self._offsets[self._first] if self._count else None

    def earliest(self, begin_ms: int, count_max: int) -> list[tuple[int, int]]:
        """(time in ms, offset) of the first ones due then or later, the earliest first."""
        offsets, times, _ = self._packed()
        wanted = times >= begin_ms
        offsets, times = offsets[wanted], times[wanted]
        if len(times) > count_max > 0:
            first = np.argpartition(times, count_max - 1)[:count_max]
            offsets, times = offsets[first], times[first]
        return sorted(zip(times.tolist(), offsets.tolist(), strict=True))[:count_max]

    def later_than(self, at_ms: int, count_max: int) -> list[int]:
        """The first messages, in the order in which they came, whose time is after that."""
        offsets, times, _ = self._packed()
        found: list[int] = offsets[np.flatnonzero(times > at_ms)[:count_max]].tolist()
        return found

    def add(self, offset: int, at_ms: int, owner: Owner = ()) -> None:
        """A message waits from now on. It came after all others."""
        self._offsets.append(offset)
        self._at_ms.append(at_ms)
        self._owned_by.append(self.owners.add(owner))
        self._count += 1
        self._schedule.add(at_ms, offset)

    def check(self, move: Move) -> None:
        """Raise Unusable if one of the messages does not wait."""
        if sum(max(0, end - first) for first, end in move.ranges) > self._count:
            raise Unusable(f"it takes more messages of {move.topic} than wait there")
        taken: set[int] = set()
        for first, end in move.ranges:
            for offset in range(first, end):
                if offset not in self or offset in taken:
                    raise Unusable(
                        f"it takes message {offset} of {move.topic}, which does not wait there"
                    )
                taken.add(offset)

    def take(self, move: Move) -> None:
        """Remove messages that no longer wait; it was checked that they do."""
        for first, end in move.ranges:
            for offset in range(first, end):
                place = self._find(offset)
                assert place is not None, f"{offset} was checked"
                self._at_ms[place] = TAKEN
                self.owners.remove(self._owned_by[place])
                self._count -= 1
        while self._first < len(self._at_ms) and self._at_ms[self._first] == TAKEN:
            self._first += 1
        if len(self._offsets) > 2 * self._count + limits.RECENT_TIMES_MAX:
            self._replace(*self._packed())
        elif len(self._schedule) > 2 * self._count + limits.RECENT_TIMES_MAX:
            offsets, at_ms, _ = self._packed()
            self._schedule.begin_again(at_ms, offsets)

    def next_ms(self) -> int | None:
        """The earliest time; None if none waits."""
        return self._schedule.next_ms()

    def before(self, at_ms: int) -> int:
        """How many messages have an earlier time."""
        _, times, _ = self._views()
        return int(np.count_nonzero(times < at_ms)) - (len(times) - self._count)

    def due(self, now_ms: int, count_max: int) -> list[int]:
        """The offsets whose time has come, the earliest first; they keep waiting."""
        return self._schedule.due(now_ms, count_max)

    def picture(self) -> tuple[Bytes, Joined]:
        """The rows for a snapshot: all offsets, then all times; and of the owners, their names, and
        the place of each message's among them."""
        columns = [np.asarray(each[:]) for each in (self._offsets, self._at_ms, self._owned_by)]
        return waiting_pictured(self._count, columns, self.owners.known())

    def restore(
        self, kept: bytes | Iterable[Sequence[int]], owners: OwnersKept = ([], b"")
    ) -> None:
        """Take over what a snapshot kept."""
        drained(self.restoring(kept, owners))

    def restoring(
        self, kept: bytes | Iterable[Sequence[int]], owners: OwnersKept
    ) -> Generator[None, None, None]:
        """Take over a snapshot's rows, in steps. Older versions kept pairs, and no owners."""
        if isinstance(kept, bytes):
            both = np.frombuffer(kept, TIME_KEPT)
            offsets = both[: len(both) // 2].astype(np.int64)
            yield
            at_ms = both[len(both) // 2 :].astype(np.int64)
        else:
            pairs = np.array(sorted(map(tuple, kept)), np.int64).reshape(-1, 2)
            offsets, at_ms = pairs[:, 0], pairs[:, 1]
        yield
        if len(owners[1]) == len(offsets) * OWNER_KEPT.itemsize:
            numbers = np.frombuffer(owners[1], OWNER_KEPT).astype(np.int64)
        else:
            numbers = np.full(len(offsets), -1)
        yield
        numbers = yield from self.owners.restoring(owners[0], numbers)
        yield
        self._replace(offsets, at_ms, numbers)

    def _find(self, offset: int) -> int | None:
        place = bisect_left(self._offsets, offset, self._first)
        if place == len(self._offsets) or self._offsets[place] != offset:
            return None
        return None if self._at_ms[place] == TAKEN else place

    def _waits(self, offsets: Numbers) -> Mask:
        """Which of some offsets wait, each of which has waited once."""
        known, at_ms, _ = self._views()
        places = np.searchsorted(known, offsets)
        places[places == len(known)] = 0
        if not len(known):
            return np.zeros(len(offsets), np.bool_)
        here: Mask = (known[places] == offsets) & (at_ms[places] != TAKEN)
        return here

    def _packed(self) -> tuple[Numbers, Numbers, Numbers]:
        """Offsets, times and owners of those that wait."""
        offsets, at_ms, owned_by = self._views()
        here = at_ms != TAKEN
        return offsets[here], at_ms[here], owned_by[here].astype(np.int64)

    def _views(self) -> tuple[Numbers, Numbers, npt.NDArray[np.uintc]]:
        """Views of the arrays as numpy's. They can't grow while one of these is kept."""
        return (
            np.frombuffer(self._offsets, np.int64),
            np.frombuffer(self._at_ms, np.int64),
            np.frombuffer(self._owned_by, np.uintc),
        )

    def _replace(self, offsets: Numbers, at_ms: Numbers, owned_by: Numbers) -> None:
        self._offsets, self._at_ms = array("q", offsets.tobytes()), array("q", at_ms.tobytes())
        self._owned_by = array("I", owned_by.astype(np.uintc).tobytes())
        self._first, self._count = 0, len(offsets)
        self._schedule.begin_again(at_ms, offsets)
