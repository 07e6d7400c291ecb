"""A token bucket that may be overdrawn. Pure.

It holds a second's worth at most. Whatever comes while there is a token in it passes as a whole,
since a batch is one entry of the log and can't be split; what it takes too much is a debt, which is
paid off before anything else passes. So over any time no more passes than the rate allows, a
second's worth, and the last batch. Who finds it empty comes again when a tenth of a second's worth
is there: a batch then, and not message by message.
"""

from __future__ import annotations

from mqbroker.flow import limits


class Bucket:
    """Tokens come in at `per_s`; it is full at first."""

    def __init__(self, per_s: int, now_s: float) -> None:
        self.per_s = per_s
        self._full = max(1.0, per_s * limits.FLOW_BURST_S)
        self._tokens = self._full
        self._at_s = now_s

    def room(self, now_s: float) -> int:
        """How many tokens there are; 0 if something must wait."""
        return max(0, int(self._now(now_s)))

    def wait_s(self, now_s: float) -> float:
        """How long to wait for room; 0 if there is some."""
        tokens = self._now(now_s)
        if tokens >= 1:
            return 0.0
        wait_s = (max(1.0, self.per_s * limits.FLOW_GATHER_S) - tokens) / self.per_s
        return max(wait_s, limits.FLOW_WAIT_S_MIN)

    def take(self, count: int, now_s: float) -> None:
        """Take so much out of the bucket."""
        self._tokens = self._now(now_s) - count
        self._at_s = max(now_s, self._at_s)

    def _now(self, now_s: float) -> float:
        passed_s = max(0.0, now_s - self._at_s)
        return min(self._full, self._tokens + passed_s * self.per_s)
