"""How long a consumer may take a queue for its own: locks, as their holder sees them. Pure.

A broker gives a queue's lock for a time, and another member may have it afterwards. Its holder
counts from the moment at which it asked, and stops sooner than the broker does, so one that stood
still does not begin with anything that may be another's. What it had begun is fenced off by the
lock's token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits


@dataclass(frozen=True, slots=True)
class Lease:
    """A lock; `token` is None with a broker that gives none."""

    token: int | None
    until_s: float


@dataclass(slots=True)
class Leases:
    """The locks of one consumer. Times are of one monotonic clock."""

    _held: dict[MessageQueue, Lease] = field(default_factory=dict)

    def granted(self, queue: MessageQueue, token: int | None, asked_s: float) -> bool:
        """Note a lock that was asked for at `asked_s`; whether it is the same as before.

        With another token somebody else had the queue in between: what is in hand is not ours.
        """
        before = self._held.get(queue)
        self._held[queue] = Lease(token, asked_s + limits.LOCK_TRUSTED_S)
        return before is None or before.token == token

    def lost(self, queue: MessageQueue) -> None:
        """Note that a queue is another's, or given up."""
        self._held.pop(queue, None)

    def holds(self, queue: MessageQueue, now_s: float) -> bool:
        """Whether something of the queue may be begun now."""
        lease = self._held.get(queue)
        return lease is not None and now_s < lease.until_s

    def token(self, queue: MessageQueue) -> int | None:
        """The token for commits, also late ones: the broker decides."""
        lease = self._held.get(queue)
        return None if lease is None else lease.token

    def queues(self) -> Iterable[MessageQueue]:
        """Queues that are held, or were until just now."""
        return [*self._held]
