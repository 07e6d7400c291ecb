"""Messages of a queue that were handed out together: a first offset, and a bit for each. Pure.

`OfFence` finds those of some offsets, `Heap` the first of very many by a number of theirs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from mqbroker.state.groups.bits import bits_to_bytes, lowest_bit, offsets_in

#: (base, bits, fence, visible at ms, deliveries, attempt id), as a snapshot keeps it.
DeliveryRow: TypeAlias = tuple[int, bytes, int, int, int, str]

#: Ended deliveries that a heap keeps at least before it removes them.
STALE: Final = 64
#: Up to this many bits are looked up one by one.
FEW_BITS: Final = 8


@dataclass(slots=True, eq=False)
class Delivery:
    """Messages of a queue that were handed out together. Bit 0 is set while any is in flight."""

    queue_id: int
    base: int
    bits: int
    fence: int
    visible_ms: int
    deliveries: int
    attempt_id: str = ""

    def take_out(self, base: int, bits: int) -> int:
        """Remove those of [base, bits] that are here; returns them as bits from `base` on."""
        shift = self.base - base
        # However far apart they are, no more bits are made than there are.
        if shift >= bits.bit_length() or -shift >= self.bits.bit_length():
            return 0
        found = (self.bits << shift if shift >= 0 else self.bits >> -shift) & bits
        if found:
            self._clear(base, found)
        return found

    def _clear(self, base: int, found: int) -> None:
        shift = base - self.base
        self.bits &= ~(found << shift if shift >= 0 else found >> -shift)
        if self.bits:
            zeros = lowest_bit(self.bits)
            self.base += zeros
            self.bits >>= zeros

    def row(self) -> DeliveryRow:
        """The row of this delivery for a snapshot."""
        bits, times = bits_to_bytes(self.bits), (self.fence, self.visible_ms, self.deliveries)
        return (self.base, bits, *times, self.attempt_id)

    @property
    def end(self) -> int:
        """Queue offset behind the last message that is still in flight."""
        return self.base + self.bits.bit_length()

    def __len__(self) -> int:
        return self.bits.bit_count()


class OfFence:
    """The messages of a queue that were handed out under one fence and are in flight.

    A member may hide each message for another time of its own: then there are as many deliveries
    as messages, and each is found by its offset.
    """

    __slots__ = ("_end", "_first", "_single", "_wide")

    def __init__(self) -> None:
        self._wide: list[Delivery] = []
        self._single: dict[int, Delivery] = {}
        self._first, self._end = 1 << 63, 0

    def __iter__(self) -> Iterator[Delivery]:
        return iter([*self._wide, *self._single.values()])

    def __bool__(self) -> bool:
        return bool(self._wide or self._single)

    def add(self, delivery: Delivery) -> None:
        """Messages are in flight from now on."""
        self._first, self._end = min(self._first, delivery.base), max(self._end, delivery.end)
        if delivery.bits > 1 or delivery.base in self._single:
            self._wide.append(delivery)
        else:
            self._single[delivery.base] = delivery

    def take_out(self, base: int, bits: int) -> list[tuple[Delivery, int]]:
        """Take out the messages of [base, bits]: (whose they were, bits from `base` on)."""
        if base >= self._end or base + bits.bit_length() <= self._first:
            return []
        found = [(each, taken) for each in self._wide if (taken := each.take_out(base, bits)) != 0]
        if found:
            self._wide = [each for each in self._wide if each.bits]
        for offset in self._single_among(base, bits):
            single = self._single.pop(offset)
            single.bits = 0
            found.append((single, 1 << offset - base))
        return found

    def _single_among(self, base: int, bits: int) -> list[int]:
        if bits.bit_count() <= FEW_BITS:
            return [offset for offset in offsets_in(base, bits) if offset in self._single]
        data = bits_to_bytes(bits)
        return [
            offset
            for offset in self._single
            if 0 <= (number := offset - base) < 8 * len(data)
            and data[number >> 3] >> (number & 7) & 1
        ]


class Heap:
    """Deliveries by a number of theirs that never falls; those no longer in flight are skipped."""

    def __init__(self, number: Callable[[Delivery], int]) -> None:
        self._number = number
        self._heap: list[tuple[int, int, Delivery]] = []
        self._serial = 0
        self._room = STALE

    def add(self, delivery: Delivery) -> None:
        """Add a delivery; entries of ended ones are removed when there are too many."""
        self._serial += 1
        heapq.heappush(self._heap, (self._number(delivery), self._serial, delivery))
        if len(self._heap) > self._room:
            self._heap = [each for each in self._heap if each[2].bits]
            heapq.heapify(self._heap)
            self._room = 2 * len(self._heap) + STALE

    def first(self) -> Delivery | None:
        """A delivery with the lowest number; None if nothing is in flight."""
        heap = self._heap
        while heap:
            number, serial, delivery = heap[0]
            if not delivery.bits:
                heapq.heappop(heap)
            elif self._number(delivery) != number:
                heapq.heapreplace(heap, (self._number(delivery), serial, delivery))
            else:
                return delivery
        return None

    def up_to(
        self,
        number_max: int,
        count_max: int,
        wanted: Callable[[Delivery], bool],
        looked_at_max: int | None = None,
    ) -> list[Delivery] | None:
        """Up to `count_max` that are wanted and whose number is not above a limit, the lowest
        first. None if they are not among the first `looked_at_max`."""
        passed: list[tuple[int, int, Delivery]] = []
        found: list[Delivery] = []
        cut_short = False
        while (delivery := self.first()) is not None and self._number(delivery) <= number_max:
            if len(found) >= count_max:
                break
            if len(passed) == looked_at_max:
                cut_short = True
                break
            passed.append(heapq.heappop(self._heap))
            if wanted(delivery):
                found.append(delivery)
        for each in passed:
            heapq.heappush(self._heap, each)
        return None if cut_short else found
