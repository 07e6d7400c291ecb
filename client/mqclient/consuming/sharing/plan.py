"""Shares of queues: `Consumer(assign=...)`. Pure.

Members of a group share the queues of a topic: each member computes its share from the same two
sorted lists, so all members must use the same strategy. Or each member reads everything (RocketMQ's
broadcasting), or only the queues that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeAlias

from dledger.errors import BadInput
from dledger.remoting.allocation import (
    allocate_averagely,
    allocate_by_circle,
    allocate_by_hash,
    allocate_by_machine_room,
    allocate_nearby,
    allocate_stickily,
)
from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.signatures import checked


class Strategy(Protocol):
    """The share of `member`; `members` and `queues` are sorted, the same for every member."""

    def __call__(
        self, member: str, members: Sequence[str], queues: Sequence[MessageQueue], /
    ) -> tuple[MessageQueue, ...]:
        """The member's share; empty for a member that is not in the list."""


StrategyName: TypeAlias = Literal["averaged", "circular", "hashed", "sticky"]
Assign: TypeAlias = StrategyName | Literal["all"] | Strategy | Sequence[MessageQueue]


@checked
@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """RocketMQ's allocation by a consistent hash, with virtual nodes for each member."""

    virtual_nodes: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.virtual_nodes <= limits.VIRTUAL_NODES_MAX:
            raise BadInput(
                f"virtual_nodes={self.virtual_nodes} is not within 1 and {limits.VIRTUAL_NODES_MAX}"
            )

    def __call__(
        self, member: str, members: Sequence[str], queues: Sequence[MessageQueue], /
    ) -> tuple[MessageQueue, ...]:
        """The queues of this member."""
        return allocate_by_hash(member, members, queues, self.virtual_nodes)


@checked
@dataclass(frozen=True, slots=True)
class MachineRooms:
    """RocketMQ's allocation by machine room: queues on brokers named `room@name` in these rooms."""

    rooms: Sequence[str]

    def __call__(
        self, member: str, members: Sequence[str], queues: Sequence[MessageQueue], /
    ) -> tuple[MessageQueue, ...]:
        """The queues of this member."""
        return allocate_by_machine_room(member, members, queues, self.rooms)


@checked
@dataclass(frozen=True, slots=True)
class NearbyRooms:
    """RocketMQ's allocation by nearness: members share the queues in their own machine room, and
    all members share the queues of rooms without members. `within` is the strategy for both.

    `room_of_queue` gives the room of a queue's broker (mostly by `queue.broker_name`);
    `room_of_member` gives the room of a member by its client id, which begins with its IP address.
    Both must give the same result in every member. If either gives "", the member keeps the queues
    that it has, and logs a warning.
    """

    room_of_queue: Callable[[MessageQueue], str]
    room_of_member: Callable[[str], str]
    within: StrategyName | Strategy = "averaged"

    def __post_init__(self) -> None:
        if Plan.of(self.within).strategy is None:
            raise BadInput(f"within={self.within!r} shares nothing out: name a strategy")

    def __call__(
        self, member: str, members: Sequence[str], queues: Sequence[MessageQueue], /
    ) -> tuple[MessageQueue, ...]:
        """The member's share of the queues. Raises BadInput if a room is not known."""
        within = Plan.of(self.within).strategy
        assert within is not None, "looked at when this was made"
        return allocate_nearby(
            member,
            members,
            queues,
            within=within,
            room_of_queue=self.room_of_queue,
            room_of_member=self.room_of_member,
        )


_STRATEGIES: dict[str, Strategy] = {
    "averaged": allocate_averagely,
    "circular": allocate_by_circle,
    "hashed": partial(allocate_by_hash, virtual_nodes=10),
    "sticky": allocate_stickily,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The meaning of `assign`: a strategy, or a list of queues, or neither for all queues.

    Members compare their strategies by `name`.
    """

    name: str
    strategy: Strategy | None = None
    queues: tuple[MessageQueue, ...] | None = None

    @classmethod
    def of(cls, assign: Assign) -> Plan:
        """The plan for an `assign`. Raises BadInput for any other value."""
        if isinstance(assign, str):
            if assign == "all":
                return cls("all")
            if assign not in _STRATEGIES:
                names = ", ".join(map(repr, _STRATEGIES))
                raise BadInput(
                    f"assign={assign!r}: it is {names}, 'all', a strategy or a list of queues"
                )
            return cls(assign, _STRATEGIES[assign])
        if isinstance(assign, Sequence):
            return cls("chosen", None, _checked(assign))
        if not callable(assign):
            raise BadInput(f"assign={assign!r} is neither a strategy nor a list of queues")
        if isinstance(assign, ConsistentHash | MachineRooms):
            return cls(repr(assign), assign)
        if isinstance(assign, NearbyRooms):
            return cls(f"NearbyRooms({cls.of(assign.within).name})", assign)
        return cls(str(getattr(assign, "__qualname__", type(assign).__qualname__)), assign)

    @property
    def is_shared(self) -> bool:
        """Whether the members of the group must be known."""
        return self.strategy is not None

    @property
    def is_broadcast(self) -> bool:
        """Whether each member reads everything."""
        return self.strategy is None and self.queues is None

    def chosen(self, queues: Sequence[MessageQueue]) -> tuple[MessageQueue, ...]:
        """The queues of a topic that are read, if they do not depend on other members."""
        if self.queues is None:
            return tuple(queues)
        return tuple(queue for queue in queues if queue in self.queues)


def _checked(given: Sequence[object]) -> tuple[MessageQueue, ...]:
    queues: dict[MessageQueue, None] = {}
    for queue in given:
        if not isinstance(queue, MessageQueue):
            raise BadInput(f"assign: {queue!r} is not a MessageQueue(topic, broker_name, queue_id)")
        queues[queue] = None
    if not 0 < len(queues) <= limits.QUEUES_PER_TOPIC_MAX:
        raise BadInput(f"assign: {len(queues)} queues, not 1 to {limits.QUEUES_PER_TOPIC_MAX}")
    return tuple(queues)
