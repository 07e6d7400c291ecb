"""The messages that wait, the earliest first, in 16 bytes each. Pure.

A million of them as Python's numbers in a heap would take 150 MB. Here they are sorted arrays of
times and offsets: runs. What was added last is a short sorted list, which becomes a run when it is
long enough; a run that is not much longer than the next one is merged with it, so there are a dozen
at most. What waits no longer stays in its run until it is reached, or until half of all is gone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mqbroker import limits

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class _Run:
    """Times in their order, with the offsets; those before `head` were taken."""

    def __init__(self, at_ms: Numbers, offsets: Numbers) -> None:
        order = np.argsort(at_ms, kind="stable")
        self.at_ms, self.offsets = at_ms[order], offsets[order]
        self.head = 0

    def __len__(self) -> int:
        return len(self.at_ms) - self.head


class Schedule:
    """Offsets of waiting messages, by the times when they are due. `waits` says which of some
    offsets still wait."""

    def __init__(self, waits: Callable[[Numbers], Mask]) -> None:
        self._waits = waits
        self._recent: list[tuple[int, int]] = []
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return len(self._recent) + sum(map(len, self._runs))

    def add(self, at_ms: int, offset: int) -> None:
        """A message waits until then."""
        insort(self._recent, (at_ms, offset))
        if len(self._recent) > limits.RECENT_TIMES_MAX:
            recent = np.array(self._recent, np.int64)
            self._recent = []
            self._add_run(_Run(recent[:, 0], recent[:, 1]))

    def begin_again(self, at_ms: Numbers, offsets: Numbers) -> None:
        """Begin again with these messages, and no others."""
        self._recent = []
        self._runs = [_Run(at_ms, offsets)] if len(offsets) else []

    def next_ms(self) -> int | None:
        """The earliest time; None if nothing waits."""
        self._drop_gone()
        times = [int(run.at_ms[run.head]) for run in self._runs]
        times += [at_ms for at_ms, _ in self._recent[:1]]
        return min(times, default=None)

    def due(self, now_ms: int, count_max: int) -> list[int]:
        """The offsets whose time has come, the earliest first; they stay."""
        self._drop_gone()
        end = bisect_left(self._recent, (now_ms + 1, 0))
        recent = np.array(self._recent[:end], np.int64).reshape(-1, 2)
        found = [_waiting(_Run(recent[:, 0], recent[:, 1]), self._waits, now_ms, count_max)]
        found += [_waiting(run, self._waits, now_ms, count_max) for run in self._runs]
        at_ms, offsets = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((offsets, at_ms))[:count_max]
        return [int(offset) for offset in offsets[order]]

    def _add_run(self, run: _Run) -> None:
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last, before = self._runs.pop(), self._runs.pop()
            at_ms = np.concatenate([each.at_ms[each.head :] for each in (before, last)])
            offsets = np.concatenate([each.offsets[each.head :] for each in (before, last)])
            self._runs.append(_Run(at_ms, offsets))

    def _drop_gone(self) -> None:
        """Drop what is gone from the front of each run."""
        for run in self._runs:
            while len(run):
                part = run.offsets[run.head : run.head + limits.TIMES_LOOKED_AT]
                here = self._waits(part)
                run.head += int(here.argmax()) if here.any() else len(part)
                if here.any():
                    break
        self._runs = [run for run in self._runs if len(run)]
        while self._recent:
            first = self._recent[: limits.TIMES_LOOKED_AT]
            here = self._waits(np.array([offset for _, offset in first], np.int64))
            del self._recent[: int(here.argmax()) if here.any() else len(first)]
            if here.any():
                break


def _waiting(
    run: _Run, waits: Callable[[Numbers], Mask], now_ms: int, count_max: int
) -> tuple[Numbers, Numbers]:
    """The first of a run that wait and are due: times and offsets."""
    end = run.head + int(np.searchsorted(run.at_ms[run.head :], now_ms, "right"))
    times, found, count = [run.at_ms[:0]], [run.offsets[:0]], 0
    for start in range(run.head, end, count_max):
        stop = min(end, start + count_max)
        here = waits(run.offsets[start:stop])
        times.append(run.at_ms[start:stop][here])
        found.append(run.offsets[start:stop][here])
        count += len(found[-1])
        if count >= count_max:
            break
    return np.concatenate(times)[:count_max], np.concatenate(found)[:count_max]
