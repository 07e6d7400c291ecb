"""Queue locks of orderly consumers: at most one client of a group holds a queue. Pure.

Locks are part of the replicated state, so a failover does not give a locked queue to a second
client. Each request has the leader's clock in its entry, so all replicas agree on which locks have
ended. A client renews its locks every 20 s; one that is not renewed ends after `LOCK_S`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from mqbroker import limits

_LOCK_MS = int(limits.LOCK_S * 1000)


class QueueKey(NamedTuple):
    """A queue, for one consumer group."""

    group: str
    topic: str
    queue_id: int


#: (group, topic, queue id, client id, end in ms), as a snapshot keeps it.
LockRow: TypeAlias = tuple[str, str, int, str, int]


class QueueLocks:
    """The client that holds each queue, and until when."""

    def __init__(self) -> None:
        self._held: dict[QueueKey, tuple[str, int]] = {}

    def acquire(self, client_id: str, keys: Iterable[QueueKey], now_ms: int) -> list[QueueKey]:
        """Lock or renew the queues that are free or held by this client. Returns those that it now
        holds."""
        granted = []
        for key in keys:
            owner, end_ms = self._held.get(key, (client_id, 0))
            if owner == client_id or end_ms <= now_ms:
                self._held[key] = (client_id, now_ms + _LOCK_MS)
                granted.append(key)
        return granted

    def release(self, client_id: str, keys: Iterable[QueueKey]) -> None:
        """Give up locks. One that another client holds stays."""
        for key in keys:
            if self._held.get(key, (None, 0))[0] == client_id:
                del self._held[key]

    def delete_topic(self, topic: str) -> None:
        """Forget the locks on a topic's queues."""
        for key in [key for key in self._held if key.topic == topic]:
            del self._held[key]

    def delete_group(self, group: str) -> None:
        """Forget the locks of a group."""
        for key in [key for key in self._held if key.group == group]:
            del self._held[key]

    def dump(self) -> list[LockRow]:
        """What a snapshot keeps."""
        return [(*key, owner, end_ms) for key, (owner, end_ms) in self._held.items()]

    def restore(self, rows: Iterable[LockRow]) -> None:
        """Take over what a snapshot kept."""
        self._held = {
            QueueKey(group, topic, queue_id): (owner, end_ms)
            for group, topic, queue_id, owner, end_ms in rows
        }
