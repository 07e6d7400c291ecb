"""What a request needs to be answered here. Each handler's method states it beside its codes.

Followers hold the same state, but only a leader knows that nothing newer is acknowledged; so reads
of messages and offsets need it too. Clients' heartbeats, member lists and questions about the
replica itself are answered everywhere.

A leader that was cut off is the last to know it. What would be wrong if it were stale, offsets and
the ends of queues, is answered only when a majority has confirmed, after the request came, that
this replica still leads. Messages are not: an old leader's are a part of what the new one has.
"""

from __future__ import annotations

from enum import Enum


class Needs(Enum):
    """Who answers, and after what. The values are what docs/compatibility.md says of a code."""

    NOTHING = "answered"
    """Every replica answers."""
    LEADER = "leader"
    """The leader answers; followers refuse."""
    CONFIRMED = "leader, confirmed"
    """The leader answers, once a majority has confirmed it; followers refuse."""
    FORWARDED = "leader, passed on"
    """The leader answers; followers pass the request on to it."""
