"""Handing leadership over, and back to the node that is preferred. Pure.

A leader that has to go, for a restart, at an operator's wish, or because the preferred node is well
again, need not be missed first. It takes no more appends, waits until what it took is committed
and the target holds all of it, and tells the target to elect now. That is a real election: the
target raises the term and needs the votes of a majority, so no safety rests on anything here. It
only skips what keeps nodes from electing without need, the pre-vote and the stickiness of voters,
since the leader itself wishes it.

If the target does not lead in time the leader takes appends again: a transfer costs at most
`TRANSFER_TIMEOUT_S` of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

TRANSFER_TIMEOUT_S = 1.0
"""A leader waits no longer for its successor: about an election timeout, as the dissertation has
it (Ongaro, 3.10)."""
PREFERRED_LAG_ENTRIES_MAX = 1000
"""DLedger's maxLeadershipTransferWaitIndex: further behind, a node is not caught up."""
PREFERRED_HEALTHY_S = 5.0
"""A preferred node that comes and goes gets no leadership until it has stayed for so long."""
PREFERRED_RETRY_FACTOR = 6
"""After a transfer to it that failed, the next try waits so many times as long."""


class Next(Enum):
    """What a leader does about a transfer under way."""

    WAIT = 0
    TELL = 1
    GIVE_UP = 2


@dataclass(frozen=True, slots=True)
class Follower:
    """A follower as its leader sees it. `lag` counts the leader's entries that it may not hold."""

    linked: bool
    lag: int


@dataclass(slots=True)
class Transfer:
    """A transfer under way. `on_done` gets None when leadership left, or why it did not."""

    target: str
    deadline: float
    on_done: Callable[[str | None], None]
    told: bool = False

    def next(self, now: float, target: Follower, uncommitted: int) -> Next:
        """What to do now; `uncommitted` entries of the leader have no outcome yet."""
        if now >= self.deadline or not target.linked:
            return Next.GIVE_UP
        if self.told or target.lag or uncommitted:
            return Next.WAIT
        return Next.TELL

    def reason(self, target: Follower, uncommitted: int) -> str:
        """Why it was given up, for the operator."""
        if not target.linked:
            return f"{self.target} is not connected to the leader"
        if target.lag:
            return f"{self.target} was still {target.lag} entries behind"
        if uncommitted:
            return f"{uncommitted} entries were not committed in time"
        return f"{self.target} was told to take over, but did not in time"


class Preference:
    """When leadership goes back to the preferred node, by what its leader sees of it."""

    def __init__(self, node_id: str, healthy_s: float) -> None:
        self.node_id = node_id
        self._healthy_s = healthy_s
        self._well_since: float | None = None
        self._not_before = float("-inf")

    def reset(self) -> None:
        """Its link broke, or this node leads no longer: it has to be well from the start again."""
        self._well_since = None

    def ended(self, now: float, failed: str | None) -> None:
        """A transfer to it, begun at `now`, is over; `failed` says why it came to nothing."""
        if failed is not None:
            self._not_before = now + PREFERRED_RETRY_FACTOR * self._healthy_s

    @property
    def next_at(self) -> float:
        """When it may be due, if nothing happens to the node."""
        if self._well_since is None:
            return math.inf
        return max(self._well_since + self._healthy_s, self._not_before)

    def due(self, now: float, preferred: Follower) -> bool:
        """Whether it has been linked and caught up for long enough."""
        if not preferred.linked or preferred.lag > PREFERRED_LAG_ENTRIES_MAX:
            self._well_since = None
            return False
        if self._well_since is None:
            self._well_since = now
        return now - self._well_since >= self._healthy_s and now >= self._not_before
