"""Handing leadership over, and back to the node that is preferred. Pure.

A leader may have to go: for a restart, because an operator asks for it, or because the preferred
node is healthy again. The others need not notice its absence first. It takes no more appends, waits
until those that it took are committed and the target holds all of them, and asks the target to
elect now. That is a real election: the target raises the term and needs the votes of a majority, so
no safety depends on this module. The election only skips the pre-vote and the stickiness of voters,
which prevent needless elections, since this one is the leader's own wish.

If the target does not lead in time the leader takes appends again: a transfer stops appends for
`TRANSFER_TIMEOUT_S` at most. A target that knows that it can't serve declines, which ends it at
once.

A leader that can take no messages, as its disk is full, would keep the whole group from taking
any, though its followers may have room. It asks them now and then whether they could lead. If a
majority could, without this node, one of them takes over. If fewer have room, messages that a new
leader took would not be committed, so the old one leads on, and refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from dledger.raft.limits import (
    CONSULT_AGAIN_S,
    PREFERRED_LAG_ENTRIES_MAX,
    PREFERRED_RETRY_FACTOR,
)


class Next(Enum):
    """The next step of a leader in a transfer under way."""

    WAIT = 0
    ASK = 1
    GIVE_UP = 2


class Obstacle(IntEnum):
    """Why a node that is asked to take over declines. The numbers are those of the wire."""

    NOT_ELIGIBLE = 0
    REPLAYS = 1
    NO_ROOM = 2
    NO_SEGMENT = 3
    """Sent to a leader unasked: see `dledger.raft.replication.majority_space`."""


_IN_WORDS: Final = {
    Obstacle.NOT_ELIGIBLE: "it may not vote yet",
    Obstacle.REPLAYS: "it still replays its log",
    Obstacle.NO_ROOM: "it has no room for messages",
    Obstacle.NO_SEGMENT: "its disk has no room for another segment",
}


def why_declined(reason: int) -> str:
    """The reason in a message, in words."""
    known = reason in _IN_WORDS
    return _IN_WORDS[Obstacle(reason)] if known else f"for reason {reason} of a newer version"


@dataclass(frozen=True, slots=True)
class Follower:
    """A follower as its leader sees it. `lag` counts the leader's entries that it may not hold."""

    linked: bool
    lag: int

    @property
    def near(self) -> bool:
        """Whether it can soon hold all that its leader holds."""
        return self.linked and self.lag <= PREFERRED_LAG_ENTRIES_MAX


@dataclass(slots=True)
class Transfer:
    """A transfer of leadership under way. `on_done` gets None when leadership has moved, or the
    reason why not."""

    target: str
    deadline: float
    on_done: Callable[[str | None], None]
    asked: bool = False

    def next(self, now: float, target: Follower, uncommitted: int) -> Next:
        """The next step now; `uncommitted` entries of the leader have no outcome yet."""
        if now >= self.deadline or not target.linked:
            return Next.GIVE_UP
        if self.asked or target.lag or uncommitted:
            return Next.WAIT
        return Next.ASK

    def reason(self, target: Follower, uncommitted: int) -> str:
        """Why the transfer was given up, for the operator."""
        if not target.linked:
            return f"{self.target} is not connected to the leader"
        if target.lag:
            return f"{self.target} was still {target.lag} entries behind"
        if uncommitted:
            return f"{uncommitted} entries were not committed in time"
        return f"{self.target} was asked to take over, but did not in time"


class Preference:
    """When leadership goes back to the preferred node, judged by what the leader sees of it."""

    def __init__(self, node_id: str, healthy_s: float) -> None:
        self.node_id = node_id
        self._healthy_s = healthy_s
        self._well_since: float | None = None
        self._not_before = float("-inf")

    def reset(self) -> None:
        """Start the preferred node's healthy time from zero: its link broke, or this node leads no
        more."""
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
        if not preferred.near:
            self._well_since = None
            return False
        if self._well_since is None:
            self._well_since = now
        return now - self._well_since >= self._healthy_s and now >= self._not_before


class Relief:
    """Whether a leader that has no room for messages can leave them to others, and to whom."""

    def __init__(self) -> None:
        self._willing: set[str] = set()
        self.next_at = float("-inf")

    def reset(self) -> None:
        """There is room, or this node leads no longer."""
        self._willing.clear()
        self.next_at = float("-inf")

    def asks(self, now: float) -> bool:
        """Whether to ask all others now whether they could lead."""
        if now < self.next_at:
            return False
        self._willing.clear()
        self.next_at = now + CONSULT_AGAIN_S
        return True

    def heard(self, node_id: str) -> None:
        """Note a node that could lead."""
        self._willing.add(node_id)

    def successor(
        self, voters: Mapping[str, Follower], is_majority: Callable[[Collection[str]], bool]
    ) -> str | None:
        """The next leader: the nearest of the members that could, if these are a majority. Then
        others are asked again before there is another."""
        lags = {
            node_id: follower.lag
            for node_id, follower in voters.items()
            if follower.near and node_id in self._willing
        }
        if not lags or not is_majority(lags):
            return None
        self._willing.clear()
        return min(lags, key=lambda node_id: lags[node_id])
