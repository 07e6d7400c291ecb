"""Handing leadership over, and back to the node that is preferred. Pure.

A leader may have to go: for a restart, because an operator asks for it, or because the preferred
node is healthy again. The others need not notice its absence first. It takes no more appends, waits
until those that it took are committed and the target holds all of them, and tells the target to
elect now. That is a real election: the target raises the term and needs the votes of a majority, so
no safety depends on this module. The election only skips the pre-vote and the stickiness of voters,
which prevent needless elections, since this one is the leader's own wish.

If the target does not lead in time the leader takes appends again: a transfer stops appends for
`TRANSFER_TIMEOUT_S` at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from dledger.raft.limits import (
    PREFERRED_LAG_ENTRIES_MAX,
    PREFERRED_RETRY_FACTOR,
)


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
    """A transfer under way. `on_done` gets None when leadership has moved, or the reason why
    not."""

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
        """Why the transfer was given up, for the operator."""
        if not target.linked:
            return f"{self.target} is not connected to the leader"
        if target.lag:
            return f"{self.target} was still {target.lag} entries behind"
        if uncommitted:
            return f"{uncommitted} entries were not committed in time"
        return f"{self.target} was told to take over, but did not in time"


class Preference:
    """When leadership goes back to the preferred node, judged by what the leader sees of it."""

    def __init__(self, node_id: str, healthy_s: float) -> None:
        self.node_id = node_id
        self._healthy_s = healthy_s
        self._well_since: float | None = None
        self._not_before = float("-inf")

    def reset(self) -> None:
        """Its link broke, or this node leads no longer: its healthy time starts from zero."""
        self._well_since = None

    def ended(self, now: float, failed: str | None) -> None:
        """A transfer to it, begun at `now`, is over; `failed` says why it failed."""
        if failed is not None:
            self._not_before = now + PREFERRED_RETRY_FACTOR * self._healthy_s

    @property
    def next_at(self) -> float:
        """When a transfer may be due, if the node stays healthy."""
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
