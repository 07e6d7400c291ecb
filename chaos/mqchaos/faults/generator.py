"""Plans of faults. Pure: the same draws give the same plan.

A plan is a list of steps, done one after the other. Each step waits for its moment, which is either
a share of the run's sends or a time since the step before it was done, and then acts on a node that
is named by its role, since who leads is known only at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

#: Draws a number from the half-open interval that it is given: `random.Random(seed).uniform`.
Uniform: TypeAlias = Callable[[float, float], float]


class Action(Enum):
    """What a step does."""

    KILL = "kill"
    RESTART = "restart"
    HEAL = "heal"
    """Wait until every replica has all that the leader has."""


class Target(Enum):
    """Which node a step is about, at the moment of the step."""

    LEADER = "leader"
    FOLLOWER = "follower"
    KILLED = "killed"
    """The node that was killed longest ago and still is down."""
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class AtShare:
    """When this share (0 to 1) of the run's messages has been handed to the producers."""

    share: float


@dataclass(frozen=True, slots=True)
class After:
    """This many seconds after the step before was done (for the first: after the run's start)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do. `pick` (0 to 1) chooses among several nodes of the target's role."""

    when: AtShare | After
    action: Action
    target: Target
    pick: float = 0.0


Plan: TypeAlias = tuple[Step, ...]

# Pauses of the plans of kills, s: steady sends before a kill, and how long the node stays away.
STEADY_S = (1.0, 2.0)
AWAY_S = (0.5, 2.0)


def kills(target: Target, count: int, uniform: Uniform) -> Plan:
    """`count` times: kill a node of this role, start it after a while, wait until all is level."""
    plan: list[Step] = []
    for _ in range(count):
        plan += [
            Step(After(uniform(*STEADY_S)), Action.KILL, target, uniform(0.0, 1.0)),
            Step(After(uniform(*AWAY_S)), Action.RESTART, Target.KILLED),
            Step(After(0.0), Action.HEAL, Target.GROUP),
        ]
    return (*plan, Step(After(uniform(*STEADY_S)), Action.HEAL, Target.GROUP))


def main_job(uniform: Uniform) -> Plan:
    """The demo's: the leader goes at 1/3 and is back at 1/2, a follower at 2/3 and at 5/6.

    The second kill waits until the first one's node has caught up: a group of three is built to
    survive one loss at a time, and a slow machine's restart must not make them two.
    """
    return (
        Step(AtShare(1 / 3), Action.KILL, Target.LEADER),
        Step(AtShare(1 / 2), Action.RESTART, Target.KILLED),
        Step(AtShare(2 / 3), Action.HEAL, Target.GROUP),
        Step(After(0.0), Action.KILL, Target.FOLLOWER, uniform(0.0, 1.0)),
        Step(AtShare(5 / 6), Action.RESTART, Target.KILLED),
        Step(AtShare(1.0), Action.HEAL, Target.GROUP),
    )
