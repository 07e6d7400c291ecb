"""Long polling: pulls that found nothing wait here for a message that passes their filter. Pure.

A held pull is run again when a matching message arrives in its queue (any message, with a SQL92
filter), when its time is up, or when the leadership ends. The caller runs it a moment later, once
for all messages that arrived until then. Pulls are kept by queue and by connection, since a hundred
thousand may be held, and may all become due at once.

A member that is to take a queue over waits here, too, until the one that has it gives it up: with
its question for the offset, or for the queue's lock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from mqbroker import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Set

    from mqbroker.requests.filters import MessageFilter
    from mqbroker.state.derived.entry_index import EntryIndex


class Takes(Enum):
    """The part of a queue that another member has to give up: its place there, or the lock."""

    PLACE = 1
    LOCK = 2


@dataclass(eq=False, slots=True)
class HeldPull:
    """A pull that waits, or the question of a member that `takes` the queue over. `again` runs it
    once more, without waiting; it is given the pull, since one that kept it would make a cycle for
    the garbage collector."""

    connection_id: int
    group: str
    topic: str
    queue_id: int
    until_s: float
    wanted: MessageFilter
    again: Callable[[HeldPull], None]
    takes: Takes | None = None


class HeldPulls:
    """All held pulls by topic and queue. `wake` is called when one is due; `expires` is called for
    each new one, with the time until which it is held."""

    def __init__(self, wake: Callable[[], None], expires: Callable[[float], None]) -> None:
        self._wake = wake
        self._expires = expires
        #: By topic, queue, and what they take: a message looks at no question.
        self._held: dict[tuple[str, int, Takes | None], dict[HeldPull, None]] = {}
        self._due: dict[HeldPull, None] = {}
        self._of_connection: dict[int, dict[HeldPull, None]] = {}
        self._taking: dict[str, dict[HeldPull, None]] = {}
        self._count = 0
        self._takers = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, pull: HeldPull) -> bool:
        """Keep a pull until it is due. False if too many are held: answer it at once instead."""
        if self._count >= limits.PULLS_HELD_MAX:
            return False
        if pull.takes and self._takers >= limits.TAKERS_HELD_MAX:
            return False
        self._held.setdefault((pull.topic, pull.queue_id, pull.takes), {})[pull] = None
        self._of_connection.setdefault(pull.connection_id, {})[pull] = None
        if pull.takes:
            self._takers += 1
            self._taking.setdefault(pull.group, {})[pull] = None
        self._count += 1
        self._expires(pull.until_s)
        return True

    @property
    def next_s(self) -> float:
        """When the first of them expires."""
        held = (pull.until_s for pulls in self._held.values() for pull in pulls)
        return min(held, default=math.inf)

    def arrived(self, index: EntryIndex) -> None:
        """Messages were applied: the pulls that wait for one of them are due."""
        if not self._held:
            return
        for run in index.runs:
            held = self._held.get((index.topic, run.queue_id, None))
            if held:
                codes = set(run.decoded()["tags_code"].tolist())
                self._move(
                    [
                        pull
                        for pull in held
                        if not isinstance(pull.wanted, frozenset)
                        or not codes.isdisjoint(pull.wanted)
                    ]
                )

    def expire(self, now_s: float) -> None:
        """Pulls that waited long enough are due."""
        self._move([pull for held in self._held.values() for pull in held if pull.until_s <= now_s])

    def release(self, topics: Set[str], groups: Set[str]) -> None:
        """The pulls of these topics and groups are due: they may not be allowed any more."""
        self._move(
            [
                pull
                for (topic, *_), held in self._held.items()
                for pull in held
                if topic in topics or pull.group in groups
            ]
        )

    def release_all(self) -> None:
        """All pulls are due: the leadership ended, or the broker stops."""
        self._move([pull for held in self._held.values() for pull in held])

    def given_up(self, group: str, topic: str, queue_id: int, takes: Takes = Takes.PLACE) -> None:
        """A member has given a queue up: who waits for that is due."""
        wanted = (takes, topic, queue_id)
        taking = self._taking.get(group, ())
        self._move([each for each in taking if (each.takes, each.topic, each.queue_id) == wanted])

    def withdraw(self, connection_id: int, group: str, topic: str, queue_id: int) -> None:
        """A member that waited for a queue wants it no more: its question is due, and takes
        nothing, though the queue may be free by now."""
        queue = (group, topic, queue_id)
        its = self._of_connection.get(connection_id, ())
        self._withdraw([p for p in its if p.takes and (p.group, p.topic, p.queue_id) == queue])

    def left(self, connection_id: int, group: str) -> None:
        """A member leaves its group, and takes no queue of it."""
        its = self._of_connection.get(connection_id, ())
        self._withdraw([pull for pull in its if pull.takes and pull.group == group])

    def _withdraw(self, pulls: Iterable[HeldPull]) -> None:
        for pull in pulls:
            if pull not in self._due:
                self._move([pull])
            pull.takes = None

    def members_changed(self, group: str) -> None:
        """Answer the readers that wait for a member of this group: that member may be gone."""
        self._move([*self._taking.get(group, ())])

    def disconnected(self, connection_id: int) -> None:
        """Forget the pulls of a connection that is gone."""
        for pull in list(self._of_connection.get(connection_id, ())):
            if pull in self._due:
                del self._due[pull]
                self._forget(pull)
            else:
                self._remove(pull)

    def take_due(self) -> Iterator[HeldPull]:
        """The pulls to run again now, one by one, without those whose connections end meanwhile."""
        while self._due:
            pull = next(iter(self._due))
            del self._due[pull]
            self._forget(pull)
            yield pull

    def _move(self, pulls: list[HeldPull]) -> None:
        for pull in pulls:
            self._take_out(pull)
        self._due.update(dict.fromkeys(pulls))
        if pulls:
            self._wake()

    def _remove(self, pull: HeldPull) -> None:
        self._take_out(pull)
        self._forget(pull)

    def _take_out(self, pull: HeldPull) -> None:
        """Remove a pull that is due, or whose connection is gone."""
        key = (pull.topic, pull.queue_id, pull.takes)
        del self._held[key][pull]
        self._count -= 1
        if not self._held[key]:
            del self._held[key]
        if pull.takes:
            self._takers -= 1
            taking = self._taking[pull.group]
            del taking[pull]
            if not taking:
                del self._taking[pull.group]

    def _forget(self, pull: HeldPull) -> None:
        its = self._of_connection[pull.connection_id]
        del its[pull]
        if not its:
            del self._of_connection[pull.connection_id]
