"""Counts and latencies over time, in a bounded number of slots. Pure.

A run's length is not known before its end. So the slots begin narrow, and whenever the run gets too
long for them each two become one: what is kept does not grow with the run, and a short run is still
seen in steps of a tenth of a second. Latencies are counted in bins that are five per cent wide,
which is as good as a page can show.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mqchaos.limits import BUCKETS_MAX, SLOT_WIDTH_MIN_S

_STEP: Final = math.log(1.05)
_FINEST: Final = 1e-5


@dataclass(slots=True)
class Latencies:
    """Histogram of latencies in seconds, with bins of equal ratio."""

    bins: Counter[int] = field(default_factory=Counter)

    def add(self, seconds: float) -> None:
        """Count one latency; the finest bin takes all that are shorter."""
        self.bins[int(math.log(max(seconds, _FINEST) / _FINEST) / _STEP)] += 1

    def merge(self, other: Latencies) -> None:
        """Count all of the other's, too."""
        self.bins.update(other.bins)

    def quantiles(self, shares: Iterable[float]) -> list[float]:
        """Percentiles of the histogram, ascending; empty if it has no samples. Shares ascend."""
        found: list[float] = []
        some = sorted(self.bins.items())
        total, seen, at = sum(self.bins.values()), 0, 0
        for share in shares if some else ():
            while seen + some[at][1] < share * total:
                seen += some[at][1]
                at += 1
            found.append(_FINEST * math.exp((some[at][0] + 0.5) * _STEP))
        return found


@dataclass(slots=True)
class Slot:
    """The events of one span of time."""

    acked: int = 0
    delivered: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def merge(self, other: Slot) -> None:
        """Add the counts and latencies of another slot."""
        self.acked += other.acked
        self.delivered += other.delivered
        self.latencies.merge(other.latencies)


class Slots:
    """Slots of equal width from 0 on."""

    def __init__(self) -> None:
        self.width_s = SLOT_WIDTH_MIN_S
        self.all: list[Slot] = []

    def at(self, at_s: float) -> Slot:
        """The slot of a moment; earlier than 0 counts as 0."""
        while at_s >= self.width_s * BUCKETS_MAX:
            self._widen()
        number = max(0, int(at_s / self.width_s))
        while len(self.all) <= number:
            self.all.append(Slot())
        return self.all[number]

    def _widen(self) -> None:
        for first, second in zip(self.all[::2], self.all[1::2], strict=False):
            first.merge(second)
        self.all, self.width_s = self.all[::2], self.width_s * 2
