"""Conditions under which this replica answers a request, and who may ask. Each handler's method
declares both with its codes.

Followers hold the same state, but only a leader knows that nothing newer is acknowledged. So reads
of messages and offsets need the leader too. Every replica answers clients' heartbeats, member lists
and questions about itself.

A leader that was cut off does not know it at first. Offsets and the ends of queues would be wrong
if they were stale. So they are answered only when a majority has confirmed, after the request came,
that this replica still leads. Messages need no confirmation: those of an old leader are also the
new leader's.
"""

from __future__ import annotations

from enum import Enum
from functools import partial

from dledger.net.serving import Right, serves


class Needs(Enum):
    """Which replica answers, and when. The values are shown in docs/reference/compatibility.md."""

    NOTHING = "answered"
    """Every replica answers."""
    LEADER = "leader"
    """The leader answers; followers refuse."""
    CONFIRMED = "leader, confirmed"
    """The leader answers, once a majority has confirmed it; followers refuse."""
    FORWARDED = "leader, passed on"
    """The leader answers; followers pass the request on to it."""


by_leader = partial(serves, needs=Needs.LEADER, right=Right.ANYONE)
"""Declares codes that anyone may ask the leader."""
by_confirmed = partial(serves, needs=Needs.CONFIRMED, right=Right.ANYONE)
"""Declares codes that anyone may ask the leader, once a majority has confirmed it."""
by_all = partial(serves, needs=Needs.NOTHING, right=Right.ANYONE)
"""Declares codes that anyone may ask any replica."""
by_leader_to_admin = partial(serves, needs=Needs.LEADER, right=Right.ADMIN)
"""Declares codes that only an administrator may ask the leader."""
by_all_to_admin = partial(serves, needs=Needs.NOTHING, right=Right.ADMIN)
"""Declares codes that only an administrator may ask any replica."""
passed_on = partial(serves, needs=Needs.FORWARDED, right=Right.ANYONE)
"""Declares codes that anyone may ask any member: the leader acts."""
changes = partial(serves, needs=Needs.FORWARDED, right=Right.ADMIN)
"""Declares codes that change the cluster: an administrator may ask any member, the leader acts."""
