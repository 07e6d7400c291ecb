"""Messages of priorities: who has which, and when nobody pops. Pure.

Priorities show only where messages of several wait. So all members of a group stand still at the
same moments, by the clock that the processes of a machine share, and take what has come meanwhile
a few messages at a time.
"""

from __future__ import annotations

from mqchaos.limits import PRIORITIES, PRIORITY_NAP_S, PRIORITY_ROUND_S


def priority_of(number: int) -> int:
    """The priority of a producer's n-th message: all of them in turn, high ones and low ones."""
    return number * 7 % PRIORITIES


def nap_s(now_s: float) -> float:
    """For how long members stand still from now on."""
    return max(0.0, PRIORITY_NAP_S - now_s % PRIORITY_ROUND_S)
