"""Times of entries of messages, from the append until they are applied, and of reads. Pure.

One count for each entry, and not for each message. RocketMQ's tools are shown how the times of the
last minute were distributed, and the longest one.
"""

from __future__ import annotations

from typing import Final

from dledger.metrics.text import Buckets
from mqbroker.flow import limits

_WORDS: Final = (
    ("<=0ms", 0.001),
    ("0~10ms", 0.01),
    ("10~50ms", 0.05),
    ("50~100ms", 0.1),
    ("100~200ms", 0.2),
    ("200~500ms", 0.5),
    ("500ms~1s", 1.0),
    ("1~2s", 2.0),
    ("2~3s", 3.0),
    ("3~4s", 4.0),
    ("4~5s", 5.0),
    ("5~10s", 10.0),
    ("10s~", float("inf")),
)
"""RocketMQ's words, and up to how many seconds each goes. The first means: less than 1 ms."""


class Times:
    """The times of one process."""

    def __init__(self) -> None:
        self.appends = Buckets(limits.APPEND_BOUNDS_S)
        #: The longest append, and the longest read of a queue.
        self.append_max_s = self.read_max_s = 0.0
        self._before = self._last = tuple(self.appends.counts)
        self._minute_s = float("-inf")

    def appended(self, took_s: float) -> None:
        """An entry of messages was applied."""
        self.appends.add(took_s)
        self.append_max_s = max(self.append_max_s, took_s)

    def read(self, took_s: float) -> None:
        """A pull has looked for messages."""
        self.read_max_s = max(self.read_max_s, took_s)

    def sample(self, now_s: float) -> None:
        """Call this once a second: a minute may end here."""
        if now_s - self._minute_s >= limits.APPEND_WINDOW_S:
            self._before, self._last = self._last, tuple(self.appends.counts)
            self._minute_s = now_s

    @property
    def distribution(self) -> str:
        """How many appends of the last whole minute took how long, in RocketMQ's words."""
        counts = [now - then for now, then in zip(self._last, self._before, strict=True)]
        bounds = [*self.appends.bounds, float("inf")]
        words, low = [], 0.0
        for word, high in _WORDS:
            among = (n for bound, n in zip(bounds, counts, strict=True) if low < bound <= high)
            words.append(f"[{word}]:{sum(among)}")
            low = high
        return " ".join(words)
