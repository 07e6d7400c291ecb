"""Which messages may be handled side by side, and which one after the other. Pure.

Messages of one lane are handled in the order in which they came, one at a time; lanes know nothing
of each other. A queue that is to keep its order is one lane; with order by key each key of a queue
is a lane of its own; without order each message is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, Literal, TypeAlias, TypeVar

from dledger.errors import BadInput
from dledger.remoting.message import SHARDING_KEY
from mqclient.models import ReceivedMessage

#: Messages that are handled one after the other: a queue's, a key's within a queue, or none.
Order: TypeAlias = Literal["queue", "key", "none"]
T = TypeVar("T")


def check_order(order: Order) -> Order:
    """Raises BadInput for another word."""
    if order not in ("queue", "key", "none"):
        raise BadInput(f"order={order!r}: expected 'queue', 'key' or 'none'")
    return order


def lane_of(message: ReceivedMessage, order: Order) -> Hashable:
    """A message's lane within its queue. With order by key, those without a key share one.

    The key is that of its send (`send(message, key=...)`, the property `__SHARDINGKEY`), else its
    keys as they are written.
    """
    if order == "none":
        return message.queue_offset
    if order == "key":
        return message.properties.get(SHARDING_KEY) or message.keys
    return None


class Lanes(Generic[T]):
    """Items under way, one in each lane, and the items that wait behind it."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[T]] = {}

    def __len__(self) -> int:
        """How many lanes have something under way."""
        return len(self._waiting)

    def is_busy(self, lane: Hashable) -> bool:
        """Whether something of this lane is under way."""
        return lane in self._waiting

    def enter(self, lane: Hashable, item: T) -> bool:
        """Whether `item` is under way now; else it waits for those before it."""
        if lane in self._waiting:
            self._waiting[lane].append(item)
            return False
        self._waiting[lane] = deque()
        return True

    def leave(self, lane: Hashable) -> T | None:
        """Begin the next item of a lane, since the one under way is through. Returns it, None if
        none waits."""
        waiting = self._waiting[lane]
        if waiting:
            return waiting.popleft()
        del self._waiting[lane]
        return None

    def waiting(self) -> list[T]:
        """All messages that wait in lanes."""
        return [item for items in self._waiting.values() for item in items]
