"""The role of a node in its group, and the times after which it may change. Pure.

The numbers of the roles are those of the library.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from dledger.raft.limits import ELECTION_TIMEOUT_MAX_S, ELECTION_TIMEOUT_MIN_S, HEARTBEAT_S


class Role(IntEnum):
    """The library's state of a node."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


class Standing(NamedTuple):
    """The node's standing, as the state machine sees it. `serving`: this node leads and has applied
    its no-op."""

    serving: bool
    leader: str | None
    term: int


class Timing:
    """Election and heartbeat times, in seconds.

    A dead leader is noticed by its closed connection; the timeouts are for one that hangs.
    """

    def __init__(
        self,
        election_timeout_min_s: float = ELECTION_TIMEOUT_MIN_S,
        election_timeout_max_s: float = ELECTION_TIMEOUT_MAX_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.election_timeout_min_s = election_timeout_min_s
        self.election_timeout_max_s = election_timeout_max_s
        self.heartbeat_s = heartbeat_s

    def slowed(self, factor: float) -> Timing:
        """Times that are longer by a factor."""
        return Timing(
            self.election_timeout_min_s * factor,
            self.election_timeout_max_s * factor,
            self.heartbeat_s * factor,
        )
