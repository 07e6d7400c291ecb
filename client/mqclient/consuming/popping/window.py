"""How far ahead messages are popped, and when one that was not handled comes again. Pure.

What is popped ahead is hidden from other members, so it is little: what handlers get through in a
moment, by how fast they were so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.consuming.popping.message import PoppedMessage


class Window:
    """How many messages a run has in hand and ahead, at most."""

    def __init__(self, concurrency: int, now_s: float) -> None:
        self._least = concurrency
        self._count = 0
        self._since_s = now_s
        self._per_s = 0.0

    def handled(self, count: int, now_s: float) -> None:
        """Count so many more as handled."""
        self._count += count
        passed_s = now_s - self._since_s
        if passed_s >= limits.POP_RATE_S:
            rate = self._count / passed_s
            self._per_s = max(rate, (self._per_s + rate) / 2)
            self._count, self._since_s = 0, now_s

    @property
    def size(self) -> int:
        """The window's size, in messages."""
        ahead = int(self._per_s * limits.POP_AHEAD_S)
        return min(max(2 * self._least, ahead), limits.POP_AHEAD_MESSAGES_MAX)


def retry_delay_s(schedule: Sequence[float], message: PoppedMessage) -> float:
    """When a message comes again that was not handled this time: the schedule's next."""
    return schedule[min(message.deliveries, len(schedule)) - 1]


def lane_of(message: PoppedMessage, *, ordered: bool) -> MessageQueue | PoppedMessage:
    """The lane in which a message is handled, one after the other: its queue if messages are
    ordered, else itself."""
    return message.queue if ordered else message
