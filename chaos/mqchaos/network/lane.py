"""A direction of a proxied connection: which bytes may go on, and when. Pure.

The shell hands in what it has read, with the rule of the moment, and asks what is due. Bytes never
overtake each other, and what was read before a cut waits like what comes after: TCP would send it
again. The end of the stream is a read of no bytes and goes the same way, so a process that dies
behind a cut is not missed before the cut is over.

Bound: a lane takes what fits in LANE_BYTES_MAX and then nothing, so its source's own buffers fill,
as they do when acknowledgements of packets fail to come.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from mqchaos.limits import LANE_BYTES_MAX, RETRANSMISSION_S, RETRANSMISSIONS_MAX
from mqchaos.network.rules import Rule


class Lane:
    """Bytes that were read and are not yet written. `uniform` draws a number between two."""

    def __init__(self, uniform: Callable[[float, float], float]) -> None:
        self._uniform = uniform
        self._waiting: deque[tuple[float, memoryview]] = deque()
        self._last_at = -math.inf
        self._line_free_at = -math.inf
        self.queued_bytes = 0
        self.ended = False
        """Whether the source has sent its last byte."""
        self.over = False
        """Whether the sink has the last byte."""

    @property
    def room(self) -> int:
        """How many bytes may be read now."""
        return 0 if self.ended else LANE_BYTES_MAX - self.queued_bytes

    def take(self, now: float, rule: Rule, chunk: bytes) -> None:
        """Something was read; b"" is the end of it."""
        due = now + rule.delay_s + (self._uniform(0.0, rule.jitter_s) if rule.jitter_s else 0.0)
        due += self._retransmissions_s(rule.loss)
        if rule.bytes_per_s:
            self._line_free_at = max(due, self._line_free_at) + len(chunk) / rule.bytes_per_s
            due = self._line_free_at
        self._last_at = max(due, self._last_at)
        self._waiting.append((self._last_at, memoryview(chunk)))
        self.queued_bytes += len(chunk)
        self.ended = not chunk

    def _retransmissions_s(self, loss: float) -> float:
        """How long it takes until a packet that may be lost, again and again, is through."""
        waited_s, timeout_s = 0.0, RETRANSMISSION_S
        for _ in range(RETRANSMISSIONS_MAX if loss else 0):
            if self._uniform(0.0, 1.0) >= loss:
                break
            waited_s, timeout_s = waited_s + timeout_s, 2 * timeout_s
        return waited_s

    def due(self, now: float, rule: Rule) -> memoryview | None:
        """Bytes to be written now, in order; empty at the end; None while there are none."""
        if not self._waiting or rule.cut or self._waiting[0][0] > now:
            return None
        return self._waiting[0][1]

    def wrote(self, count: int) -> None:
        """Note how many of the bytes that were due were written."""
        at, chunk = self._waiting.popleft()
        self.queued_bytes -= count
        if count < len(chunk):
            self._waiting.appendleft((at, chunk[count:]))
        elif not chunk:
            self.over = True

    def wake_at(self, rule: Rule) -> float:
        """When something will be due by this rule; never, perhaps."""
        return math.inf if rule.cut or not self._waiting else self._waiting[0][0]

    def drop(self) -> None:
        """The sink takes nothing more."""
        self._waiting.clear()
        self.queued_bytes = 0
        self.ended = self.over = True
