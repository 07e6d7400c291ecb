"""Messages of priorities: who has which, and when nobody reads. Pure.

Priorities show only where messages of several wait. So all members of a group stand still at the
same moments, by the clock that the processes of a machine share, and take what has come meanwhile
a few messages at a time. By that clock all members of a group are away at the same time, too.
"""

from __future__ import annotations

from mqchaos.limits import AWAY_ROUND_S, PRIORITIES, PRIORITY_NAP_S, PRIORITY_ROUND_S, READING_S


def priority_of(number: int) -> int:
    """The priority of a producer's n-th message: all of them in turn, high ones and low ones."""
    return number * 7 % PRIORITIES


def nap_s(now_s: float) -> float:
    """For how long members stand still from now on."""
    return max(0.0, PRIORITY_NAP_S - now_s % PRIORITY_ROUND_S)


def stay_s(now_s: float) -> float:
    """For how long members read from now on, until all of them are away; 0 while they are."""
    return max(0.0, READING_S - now_s % AWAY_ROUND_S)
