"""What a node is in its group, and after which times that may change. Pure.

The numbers of the roles are those of the library.
"""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """The library's state of a node."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


class Timing:
    """Election and heartbeat times, in seconds.

    A dead leader is noticed by its closed connection; the timeouts are for one that hangs. They
    leave room for a loaded machine: a node that gets no processor for 0.7 s is no reason to elect.
    Heartbeats wake every node of a group that has nothing to do, so there are no more of them than
    that takes: four before the shortest timeout.
    """

    def __init__(
        self,
        election_timeout_min_s: float = 0.9,
        election_timeout_max_s: float = 1.2,
        heartbeat_s: float = 0.2,
    ) -> None:
        self.election_timeout_min_s = election_timeout_min_s
        self.election_timeout_max_s = election_timeout_max_s
        self.heartbeat_s = heartbeat_s
