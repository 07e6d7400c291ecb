"""Messages of a queue that the application has in hand: offsets, kept as runs. Pure.

Messages are handed out in order and finished in any order. What may be committed is everything
below the lowest one that is not finished; no later one that is finished moves that. Neighbours are
one run, so a consumer that finishes nothing for a million messages keeps two numbers, and one that
finishes them at random keeps as many runs as it has gaps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Unfinished:
    """Offsets that were handed out and are not finished. A run is [start, end)."""

    __slots__ = ("_end", "_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._end = 0

    @property
    def lowest(self) -> int | None:
        """The offset that holds the commit back; None if nothing is in hand."""
        return self._starts[0] if self._starts else None

    @property
    def span(self) -> int:
        """How far it is from the lowest one to the last that was handed out, finished or not: what
        a crash now may deliver again."""
        return self._end - self._starts[0] if self._starts else 0

    @property
    def runs(self) -> int:
        """How many runs are kept."""
        return len(self._starts)

    def __contains__(self, offset: int) -> bool:
        run = bisect_right(self._ends, offset)
        return run < len(self._starts) and self._starts[run] <= offset

    def add(self, start: int, end: int) -> None:
        """A run was handed out. Offsets that are not above all earlier ones count as theirs."""
        start = max(start, self._end)
        if start >= end:
            return
        self._end = end
        if self._ends and self._ends[-1] == start:
            self._ends[-1] = end
        else:
            self._starts.append(start)
            self._ends.append(end)

    def remove(self, start: int, end: int) -> None:
        """Whatever of [start, end) was in hand is finished."""
        if self._starts and start <= self._starts[0] < end <= self._ends[0]:  # in their order
            self._starts[0] = end
            if end == self._ends[0]:
                del self._starts[0], self._ends[0]
            return
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        if first >= last:
            return
        below = (self._starts[first], start)
        above = (end, self._ends[last - 1])
        left = [run for run in (below, above) if run[0] < run[1]]
        self._starts[first:last] = [run[0] for run in left]
        self._ends[first:last] = [run[1] for run in left]

    def clear(self) -> None:
        """Nothing is in hand any more."""
        self._starts.clear()
        self._ends.clear()
        self._end = 0
