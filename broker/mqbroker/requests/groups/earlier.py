"""Clients that hold positions of a topic's earlier life. Pure.

Our clients name the life of a topic with their positions. Stock ones know none. When a topic is
deleted, every replica notes the connections over which its queues were pulled, and those of members
that subscribe to it: their positions ended with the topic. If it is made again, the first pull of
each such connection from another offset than the group's place is answered with that place (code
21), and a commit of another offset does not count. After the answer the client may pull from where
it likes, as after a reset (`mqbroker.requests.groups.readers`).

A client that asks over a new connection is not known by this; there it helps that a pull beyond the
queue's end is answered with the group's place, too, and that no such commit counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from mqbroker import limits
from mqbroker.state.groups.locks import QueueKey


class Earlier:
    """The connections that pull each topic, and what is left of earlier lives."""

    def __init__(self) -> None:
        #: topic -> group -> connections
        self._pulling: dict[str, dict[str, dict[int, None]]] = {}
        self._pairs = 0
        #: connection -> (group, topic) -> queue -> whether its reader still has to learn it
        self._left: dict[int, dict[tuple[str, str], dict[int, bool]]] = {}

    def pulled(self, key: QueueKey, connection_id: int) -> None:
        """A connection pulls a queue."""
        group, topic, _ = key
        pulling = self._pulling.get(topic, {}).get(group)
        if pulling is not None and connection_id in pulling:
            return
        if pulling is None:
            if self._pairs >= limits.PULLING_GROUPS_MAX:
                self._pulling.clear()  # who pulls is noted again with the next pull
                self._pairs = 0
            self._pairs += 1
        pulling = self._pulling.setdefault(topic, {}).setdefault(group, {})
        if len(pulling) >= limits.PULLING_PER_GROUP_MAX:
            del pulling[next(iter(pulling))]
        pulling[connection_id] = None

    def topic_ended(self, topic: str, members: Iterable[tuple[str, int]]) -> None:
        """A topic was deleted; `members` are (group, connection) of its subscribers."""
        pulling = self._pulling.pop(topic, {})
        self._pairs -= len(pulling)
        pulled = ((group, each) for group, connections in pulling.items() for each in connections)
        for group, connection_id in (*members, *pulled):
            left = self._left.setdefault(connection_id, {})
            if len(left) < limits.LEFT_BEHIND_PER_CONNECTION_MAX:
                left[group, topic] = {}

    def is_behind(self, key: QueueKey, connection_id: int) -> bool:
        """Whether a connection may have a position of an earlier life."""
        if not self._left:
            return False
        queues = self._left.get(connection_id, {}).get(key[:2])
        return queues is not None and queues.get(key.queue_id, True)

    def corrects(self, key: QueueKey, connection_id: int, offset: int, place: int) -> bool:
        """Whether a pull of a connection that is behind is to be answered with the group's
        place."""
        queues = self._left[connection_id][key[:2]]
        is_known = offset == place or key.queue_id in queues
        queues[key.queue_id] = not is_known
        return not is_known

    def disconnected(self, connection_id: int) -> None:
        """Drop the notes about a connection that has closed."""
        self._left.pop(connection_id, None)
