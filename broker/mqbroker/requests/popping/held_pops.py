"""Long polling: pops that found nothing wait here, in the order in which they came. Pure.

They are kept by group and topic. What can end the wait of one (a new message, one that is visible
again, an ordered batch that is done) makes its group's topic due; then those that wait there are
tried one after the other, as long as there is something left. So a message wakes one member, and
not a thousand. NOTIFICATION waits in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import TypeAlias

from mqbroker import limits

#: Group and topic.
Key: TypeAlias = tuple[str, str]


@dataclass(eq=False, slots=True)
class HeldPop:
    """A pop that waits for messages. `again(is_last)` runs the pop once more and returns whether it
    was answered, as it must be with `is_last`."""

    connection_id: int
    key: Key
    queue_id: int
    until_s: float
    is_open: bool
    """Whether it takes whatever there is: if there is nothing for it, nobody else gets anything."""
    again: Callable[[bool], bool]


class HeldPops:
    """Waiting pops by group and topic, up to bounds. `wake` is called when a group's topic is
    due."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._held: dict[Key, dict[HeldPop, None]] = {}
        self._groups: dict[str, dict[str, None]] = {}
        self._of_connection: dict[int, dict[HeldPop, None]] = {}
        self._of_queue: Counter[tuple[Key, int]] = Counter()
        self._due: dict[Key, None] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: Key) -> bool:
        return key in self._held

    def waiting(self, key: Key, queue_id: int) -> int:
        """How many wait with this queue (-1: any) in their request."""
        return self._of_queue[key, queue_id]

    def keys(self) -> Iterator[Key]:
        """The groups and topics that somebody waits for."""
        return iter(self._held)

    def hold(self, pop: HeldPop) -> bool:
        """Keep a pop until messages come or its time is over. False if too many are held."""
        of_queue = (pop.key, pop.queue_id)
        if (
            self._of_queue[of_queue] >= limits.POPS_HELD_PER_QUEUE_MAX
            or self._count >= limits.POPS_HELD_MAX
        ):
            return False
        self._of_queue[of_queue] += 1
        self._count += 1
        self._held.setdefault(pop.key, {})[pop] = None
        self._groups.setdefault(pop.key[1], {})[pop.key[0]] = None
        self._of_connection.setdefault(pop.connection_id, {})[pop] = None
        return True

    def arrived(self, topic: str) -> None:
        """Messages of a topic were applied: all groups that wait for it are due."""
        for group in self._groups.get(topic, ()):
            self.look((group, topic))

    def look(self, key: Key) -> None:
        """There may be something for who waits there."""
        if key in self._held:
            self._due[key] = None
            self._wake()

    def look_at(self, topics: Set[str], groups: Set[str]) -> None:
        """Look at pops of these topics or groups: they may not be allowed to wait any more."""
        for group, topic in [*self._held]:
            if topic in topics or group in groups:
                self.look((group, topic))

    def look_at_all(self) -> None:
        """Look at all pops: it may be that none may wait any more."""
        for key in [*self._held]:
            self.look(key)

    def take_due(self) -> list[Key]:
        """The pops that are due; they are held no more."""
        due, self._due = [*self._due], {}
        return due

    def of(self, key: Key) -> list[HeldPop]:
        """Held pops of a key, oldest first."""
        return [*self._held.get(key, ())]

    @property
    def next_s(self) -> float:
        """When the first of them has waited long enough."""
        return min((pop.until_s for held in self._held.values() for pop in held), default=math.inf)

    def expired(self, now_s: float) -> list[HeldPop]:
        """Held pops that have waited long enough; by an infinite time, all."""
        return [pop for held in self._held.values() for pop in held if pop.until_s <= now_s]

    def of_connection(self, connection_id: int) -> list[HeldPop]:
        """The pops of a connection."""
        return [*self._of_connection.get(connection_id, ())]

    def disconnected(self, connection_id: int) -> None:
        """Forget the pops of a connection that is gone."""
        for pop in self.of_connection(connection_id):
            self.drop(pop)

    def holds(self, pop: HeldPop) -> bool:
        """Whether a pop has neither been answered nor dropped."""
        return pop in self._held.get(pop.key, ())

    def drop(self, pop: HeldPop) -> None:
        """Drop a pop that waits no longer."""
        held = self._held.get(pop.key, {})
        if pop not in held:
            return
        del held[pop]
        of_queue = (pop.key, pop.queue_id)
        self._of_queue[of_queue] -= 1
        self._count -= 1
        if not self._of_queue[of_queue]:
            del self._of_queue[of_queue]
        if not held:
            del self._held[pop.key]
            group, topic = pop.key
            del self._groups[topic][group]
            if not self._groups[topic]:
                del self._groups[topic]
        its = self._of_connection[pop.connection_id]
        del its[pop]
        if not its:
            del self._of_connection[pop.connection_id]
