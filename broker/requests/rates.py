"""Counters of messages in and out, and their rates over the last 10 s, 1 min and 10 min. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

_WINDOWS_S: Final = (10, 60, 600)


class Counter:
    """A total, with samples of it taken every second for ten minutes."""

    def __init__(self) -> None:
        self.total = 0
        self._samples: deque[int] = deque(maxlen=_WINDOWS_S[-1] + 1)

    def sample(self) -> None:
        """Remember the total: call this once a second."""
        self._samples.append(self.total)

    def per_second(self) -> list[float]:
        """The mean rates over 10 s, 1 min and 10 min, or over what there is of them."""
        newest = len(self._samples) - 1
        spans = [min(window_s, newest) for window_s in _WINDOWS_S]
        return [
            (self._samples[newest] - self._samples[newest - span]) / span if span > 0 else 0.0
            for span in spans
        ]


class Rates:
    """What a broker counts."""

    def __init__(self) -> None:
        self.put_messages = Counter()
        self.put_bytes = Counter()
        self.got_messages = Counter()
        self.pulls_found = Counter()
        self.pulls_missed = Counter()

    def sample(self) -> None:
        """Call this once a second."""
        for counter in vars(self).values():
            counter.sample()
