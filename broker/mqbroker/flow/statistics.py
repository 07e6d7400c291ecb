"""Traffic by topic and group: over the last minute, hour and day. Pure.

RocketMQ's VIEW_BROKER_STATS_DATA names a figure (TOPIC_PUT_NUMS and the like) and a key. A row here
is one kind of traffic with one key, and counts three things: messages, bytes and operations. Every
10 s, 10 min and 1 h the running totals of all rows are copied into a column of a ring, in one
numpy operation; a window's sum is the total now less the oldest column.

Memory is bounded: `STATISTICS_ROWS_MAX` rows of 880 bytes. Each hour, rows without traffic for a
day are dropped; while all rows are taken, traffic with a new key is only counted for the broker.
Source: RocketMQ's BrokerStatsManager, StatsItem.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from mqbroker.flow import limits

MESSAGES, BYTES, OPERATIONS = range(3)
PUT, GET, SEND_BACK, BROKER_PUT, BROKER_GET = "put", "get", "send back", "broker put", "broker get"
SEND_HELD_BACK, READ_HELD_BACK = "send held back", "read held back"

#: The figures that can be asked for: kind of traffic, and what is counted.
FIGURES: Final = {
    "TOPIC_PUT_NUMS": (PUT, MESSAGES),
    "TOPIC_PUT_SIZE": (PUT, BYTES),
    "GROUP_GET_NUMS": (GET, MESSAGES),
    "GROUP_GET_SIZE": (GET, BYTES),
    "SNDBCK_PUT_NUMS": (SEND_BACK, MESSAGES),
    "BROKER_PUT_NUMS": (BROKER_PUT, MESSAGES),
    "BROKER_GET_NUMS": (BROKER_GET, MESSAGES),
    # Ours: requests that came too early for a rate.
    "TOPIC_HELD_BACK_TIMES": (SEND_HELD_BACK, OPERATIONS),
    "GROUP_HELD_BACK_TIMES": (READ_HELD_BACK, OPERATIONS),
}
_WINDOWS: Final = ((10.0, 6), (600.0, 6), (3600.0, 24))
"""Seconds between samples, and how many are kept: a minute, an hour, a day."""


class Window(NamedTuple):
    """A figure over one span: its sum, its sum per second, and per operation."""

    total: int
    per_second: float
    per_operation: float


class _Ring:
    """Samples of all rows' totals, taken every `interval_s`."""

    def __init__(self, interval_s: float, samples_max: int) -> None:
        self._interval_s = interval_s
        self._samples_max = samples_max
        self._taken_s: list[float] = []
        self.samples = np.zeros((samples_max, 0, 3), np.int64)

    @property
    def is_full(self) -> bool:
        """Whether it spans its whole time."""
        return len(self._taken_s) == self._samples_max

    def grow(self, rows: int) -> None:
        """Grow to this many rows; new rows are empty."""
        grown = np.zeros((self._samples_max, rows, 3), np.int64)
        grown[:, : self.samples.shape[1]] = self.samples
        self.samples = grown

    def sample(self, totals: np.ndarray, now_s: float) -> bool:
        """Take a sample if it is due; returns whether it was."""
        if self._taken_s and now_s - self._taken_s[-1] < self._interval_s:
            return False
        if self.is_full:
            self.samples = np.roll(self.samples, -1, axis=0)
            del self._taken_s[0]
        # The first sample stays zero, so that the windows include the traffic before it.
        if self._taken_s:
            self.samples[len(self._taken_s)] = totals
        self._taken_s.append(now_s)
        return True

    def window(self, row: int, counted: int, totals: np.ndarray, now_s: float) -> Window:
        """The traffic of a row since the oldest sample."""
        grown = totals[row] - self.samples[0, row]
        total, operations = int(grown[counted]), int(grown[OPERATIONS])
        span_s = now_s - self._taken_s[0] if self._taken_s else 0.0
        return Window(
            total,
            total / span_s if span_s > 0 else 0.0,
            total / operations if operations else 0.0,
        )


class Statistics:
    """Totals and windows of all counted keys, at most `rows_max`. Call `sample` once a second."""

    def __init__(self, rows_max: int = limits.STATISTICS_ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._rows: dict[tuple[str, str], int] = {}
        self._free: list[int] = []
        self._totals = np.zeros((0, 3), np.int64)
        self._rings = [_Ring(*shape) for shape in _WINDOWS]

    def __len__(self) -> int:
        return len(self._rows)

    def count(self, kind: str, key: str, messages: int, size_bytes: int) -> None:
        """Count one operation of `key`, with its messages and bytes. If the key is new and all rows
        are taken, it is not counted."""
        row = self._rows.get((kind, key))
        if row is None:
            if not self._free and not self._grow():
                return
            row = self._rows[kind, key] = self._free.pop()
        totals = self._totals[row]
        totals += (messages, size_bytes, 1)

    def sample(self, now_s: float) -> None:
        """Take the samples that are due; each hour, drop rows that had no traffic for a day."""
        *_, day = [ring.sample(self._totals, now_s) for ring in self._rings]
        if day:
            self._give_up_idle(self._rings[-1])

    def windows(self, figure: str, key: str, now_s: float) -> tuple[Window, Window, Window] | None:
        """A figure's last minute, hour and day; None if nothing with this key was counted."""
        kind, counted = FIGURES.get(figure, ("", MESSAGES))
        row = self._rows.get((kind, key))
        if row is None:
            return None
        minute, hour, day = (ring.window(row, counted, self._totals, now_s) for ring in self._rings)
        return minute, hour, day

    def totals(self, kind: str) -> Iterator[tuple[str, int, int]]:
        """(key, messages, bytes) of one kind of traffic, since a key was first counted. Others may
        count between two of them."""
        for each, row in list(self._rows.items()):
            its, key = each
            if its == kind and self._rows.get(each) == row:
                messages, size_bytes, _ = self._totals[row].tolist()
                yield key, messages, size_bytes

    def _give_up_idle(self, day: _Ring) -> None:
        if not day.is_full:
            return
        idle = (self._totals == day.samples[0]).all(axis=1)
        for key, row in list(self._rows.items()):
            if idle[row]:
                del self._rows[key]
                self._free.append(row)
        self._totals[idle] = 0
        for ring in self._rings:
            ring.samples[:, idle] = 0

    def _grow(self) -> bool:
        """Make room for more rows, as long as the bound allows it."""
        had = len(self._totals)
        rows = min(max(64, 2 * had), self._rows_max)
        if rows <= had:
            return False
        grown = np.zeros((rows, 3), np.int64)
        grown[:had] = self._totals
        self._totals = grown
        for ring in self._rings:
            ring.grow(rows)
        self._free.extend(reversed(range(had, rows)))
        return True
