"""Queue locks of orderly consumers: at most one client of a group holds a queue. Pure.

Locks are part of the replicated state, so a failover does not give a locked queue to a second
client. Each request has the locks' time in its entry (`mqbroker.leader.lock_clock`), so all
replicas agree on which locks have ended. A client renews its locks every 20 s; one that is not
renewed ends after `LOCK_S`. It is known for a while longer, should its client come back; then the
leader has it given up (`mqbroker.leader.locking`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from dledger.slices import drained
from mqbroker import limits
from mqbroker.state.rows.picture import Rows
from mqbroker.state.shares import Shares

_LOCK_MS = int(limits.LOCK_S * 1000)


class QueueKey(NamedTuple):
    """A queue, for one consumer group."""

    group: str
    topic: str
    queue_id: int


#: (group, topic, queue id, client id, end in ms), as a snapshot keeps it; tokens stand beside.
LockRow: TypeAlias = tuple[str, str, int, str, int]


class Lock(NamedTuple):
    """The owner of a queue, until when, and the token of the ownership."""

    client_id: str
    end_ms: int
    token: int


class QueueLocks:
    """The client that holds each queue, and until when."""

    def __init__(self) -> None:
        # The one that was renewed last stands last.
        self._held: dict[QueueKey, Lock] = {}
        #: How many each group has.
        self.shares = Shares("queue locks", "group", limits.LOCKS_MAX, limits.GROUPS_MAX)
        #: The time of the last request.
        self.clock_ms = 0

    def acquire(
        self, client_id: str, keys: Iterable[QueueKey], now_ms: int, token: int
    ) -> list[QueueKey]:
        """Lock or renew the queues that are free or held by this client. Returns those that it now
        holds; those that it did not hold before, it holds by `token`."""
        granted = []
        self.clock_ms = now_ms = max(self.clock_ms, now_ms)
        for key in keys:
            held = self._held.get(key)
            if held is not None and held.client_id == client_id:
                token_now = held.token
            elif held is None or held.end_ms <= now_ms:
                token_now = token
            else:
                continue
            if self._held.pop(key, None) is None:
                self.shares.change(key.group, 1)
            self._held[key] = Lock(client_id, now_ms + _LOCK_MS, token_now)
            granted.append(key)
        return granted

    def held(self, key: QueueKey) -> Lock | None:
        """The lock of a queue, which may have ended."""
        return self._held.get(key)

    def owner(self, key: QueueKey) -> str | None:
        """The client that has a queue's lock, or had it last."""
        held = self._held.get(key)
        return None if held is None else held.client_id

    def ended_before(self, at_ms: int) -> Iterator[tuple[QueueKey, Lock]]:
        """The locks that ended before that, the first first."""
        return takewhile(lambda item: item[1].end_ms < at_ms, self._held.items())

    def obtainable(self, client_id: str, keys: Iterable[QueueKey], now_ms: int) -> bool:
        """Whether `acquire` would grant any."""
        locks = map(self._held.get, keys)
        return any(
            lock is None or lock.client_id == client_id or lock.end_ms <= now_ms for lock in locks
        )

    def release(self, client_id: str, keys: Iterable[QueueKey]) -> None:
        """Give up locks; a lock that another client holds stays."""
        for key in keys:
            held = self._held.get(key)
            if held is not None and held.client_id == client_id:
                self._drop(key)

    def delete_topic(self, topic: str) -> None:
        """Forget the locks on a topic's queues."""
        for key in [key for key in self._held if key.topic == topic]:
            self._drop(key)

    def delete_group(self, group: str) -> None:
        """Forget the locks of a group."""
        for key in [key for key in self._held if key.group == group]:
            self._drop(key)

    def _drop(self, key: QueueKey) -> None:
        del self._held[key]
        self.shares.change(key.group, -1)

    def picture(self) -> tuple[Rows, Rows]:
        """The rows for a snapshot: the locks, and their tokens in the same order."""
        held = self._held.copy()
        return (
            Rows(
                len(held),
                lambda: ((*key, lock.client_id, lock.end_ms) for key, lock in held.items()),
            ),
            Rows(len(held), lambda: (lock.token for lock in held.values())),
        )

    def restore(
        self, rows: Sequence[LockRow], tokens: Sequence[int] = (), clock_ms: int = 0
    ) -> None:
        """Take over what a snapshot kept; one of an older version has no tokens, and no time."""
        drained(self.restoring(rows, tokens, clock_ms))

    def restoring(
        self, rows: Sequence[LockRow], tokens: Sequence[int], clock_ms: int
    ) -> Generator[None, None, None]:
        """Take over a snapshot's rows, in steps."""
        self._held.clear()
        self.shares.begin_again()
        self.clock_ms = clock_ms
        known = tokens if len(tokens) == len(rows) else [0] * len(rows)
        is_sorted, before_ms = True, 0
        for (group, topic, queue_id, owner, end_ms), token in zip(rows, known, strict=True):
            self._held[QueueKey(group, topic, queue_id)] = Lock(owner, end_ms, token)
            self.shares.change(group, 1)
            self.clock_ms = max(self.clock_ms, end_ms - _LOCK_MS)
            is_sorted, before_ms = is_sorted and before_ms <= end_ms, end_ms
            yield
        if not is_sorted:  # An older version kept them in another order.
            self._held = dict(sorted(self._held.items(), key=lambda item: item[1].end_ms))
