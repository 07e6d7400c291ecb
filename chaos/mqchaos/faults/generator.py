"""Generator of plans of faults. Pure: the same draws give the same plan.

A plan is a list of steps, done one after the other. Each step waits for its moment, which is either
a share of the run's sends or a time since the step before it was done, and then injects a fault
into servers, or heals it. They are named by their role, since who leads is known only then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from dledger.failpoints import PLACES, By, When
from mqchaos.faults.kinds import (
    KILL,
    KILL_NAMESRV,
    STOP,
    TRANSFER,
    Kind,
)
from mqchaos.faults.targets import Target
from mqchaos.limits import AWAY_S, BREATH_S, CALM_S, RENEWING_S, STEADY_S, STILL_S

#: Draws a number from the half-open interval that it is given: `random.Random(seed).uniform`.
Uniform: TypeAlias = Callable[[float, float], float]


class Phase(Enum):
    """The kind of a step."""

    INJECT = "inject"
    HEAL = "heal"
    LEVEL = "level"
    """Wait until every replica has all that the leader has."""


class AtShare(msgspec.Struct, frozen=True, tag="share"):
    """When this share (0 to 1) of the run's messages has been handed to the producers."""

    share: float


class After(msgspec.Struct, frozen=True, tag="after"):
    """Seconds after the step before was done (for the first: after the run's start)."""

    seconds: float


class Step(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A step of a plan. `pick` (0 to 1) chooses among several nodes of the target's role.

    `fault` names the kind that is injected, at the failpoint `place` if it is of that kind. With a
    `name` the fault is healed by the step of the same name; without, a step that heals undoes what
    was injected longest ago.
    """

    when: AtShare | After
    phase: Phase
    target: Target
    pick: float = 0.0
    fault: str = ""
    name: str = ""
    place: str = ""


Plan: TypeAlias = tuple[Step, ...]
"""A plan as JSON is what a run writes into its directory, and what a replay reads."""


def strikes(fault: Kind, target: Target, count: int, uniform: Uniform) -> Plan:
    """`count` times: hurt a node of this role, heal it after a while, wait until all is level."""
    plan: list[Step] = []
    away_s = AWAY_S if fault.state == "down" else STILL_S
    for _ in range(count):
        plan += [
            Step(After(uniform(*STEADY_S)), Phase.INJECT, target, uniform(0.0, 1.0), fault.name),
            *[Step(After(uniform(*away_s)), Phase.HEAL, Target.HURT)] * bool(fault.undone),
            Step(After(0.0), Phase.LEVEL, Target.GROUP),
        ]
    return (*plan, Step(After(uniform(*STEADY_S)), Phase.LEVEL, Target.GROUP))


def calm(count: int, uniform: Uniform) -> Plan:
    """`count` times a while in which nothing is hurt, and a look whether all is level."""
    return (Step(After(CALM_S), Phase.LEVEL, Target.GROUP),) * count


def in_turn(faults: Sequence[tuple[Kind, Target]], count: int, uniform: Uniform) -> Plan:
    """`count` times one of these, one kind after the other."""
    plan: Plan = ()
    for turn in range(count):
        fault, target = faults[turn % len(faults)]
        plan += strikes(fault, target, 1, uniform)
    return plan


ROLES: Final = {
    By.LEADER: (Target.LEADER,),
    By.FOLLOWER: (Target.FOLLOWER,),
    By.ANY: (Target.LEADER, Target.FOLLOWER),
}
"""The nodes that reach a place of our code."""


def at_places(
    faults: Sequence[Kind], places: Collection[When], count: int, uniform: Uniform
) -> Plan:
    """`count` times: a node ends or is held at a place, all places in a drawn order, again and
    again."""
    names = [place.name for place in PLACES.values() if place.when in places]
    plan: list[Step] = []
    order: list[str] = []
    for turn in range(count):
        order = order or sorted(names, key=lambda _: uniform(0.0, 1.0))
        name, fault = order.pop(), faults[turn % len(faults)]
        roles = ROLES[PLACES[name].by]
        target = roles[int(uniform(0.0, len(roles))) % len(roles)]
        moment = After(uniform(*STEADY_S))
        plan += [
            Step(moment, Phase.INJECT, target, uniform(0.0, 1.0), fault.name, place=name),
            Step(After(uniform(*AWAY_S)), Phase.HEAL, Target.HURT),
            Step(After(0.0), Phase.LEVEL, Target.GROUP),
        ]
    return (*plan, Step(After(uniform(*STEADY_S)), Phase.LEVEL, Target.GROUP))


def transfers(count: int, uniform: Uniform) -> Plan:
    """`count` times: leadership goes over, hardly before it has come."""
    moves = [
        Step(After(uniform(*BREATH_S)), Phase.INJECT, Target.LEADER, 0.0, TRANSFER.name)
        for _ in range(count)
    ]
    return (
        Step(After(uniform(*STEADY_S)), Phase.LEVEL, Target.GROUP),
        *moves,
        Step(After(uniform(*STEADY_S)), Phase.LEVEL, Target.GROUP),
    )


def blind(count: int, uniform: Uniform) -> Plan:
    """`count` times: all name servers are killed, and then the leader: who leads, says nobody."""
    plan: list[Step] = []
    for _ in range(count):
        plan += [
            Step(After(uniform(*STEADY_S)), Phase.INJECT, Target.NAMESRVS, 0.0, KILL_NAMESRV.name),
            Step(After(uniform(*STEADY_S)), Phase.INJECT, Target.LEADER, 0.0, KILL.name),
            Step(After(uniform(*AWAY_S)), Phase.HEAL, Target.HURT),
            Step(After(uniform(*AWAY_S)), Phase.HEAL, Target.HURT),
            Step(After(0.0), Phase.LEVEL, Target.GROUP),
        ]
    return (*plan, Step(After(uniform(*STEADY_S)), Phase.LEVEL, Target.GROUP))


def renewals(faults: Sequence[Kind], count: int, uniform: Uniform) -> Plan:
    """`count` times: something is renewed everywhere, and the leader dies in the middle of it."""
    plan: list[Step] = []
    for turn in range(count):
        fault = faults[turn % len(faults)]
        plan += [
            Step(After(uniform(*STEADY_S)), Phase.INJECT, Target.ALL, 0.0, fault.name, fault.name),
            Step(After(uniform(*RENEWING_S)), Phase.INJECT, Target.LEADER, 0.0, KILL.name, "kill"),
            Step(After(uniform(*AWAY_S)), Phase.HEAL, Target.HURT, name="kill"),
            Step(After(0.0), Phase.HEAL, Target.HURT, name=fault.name),
            Step(After(0.0), Phase.LEVEL, Target.GROUP),
        ]
    return (*plan, Step(After(uniform(*STEADY_S)), Phase.LEVEL, Target.GROUP))


def rolling(nodes: int, rounds: int, uniform: Uniform) -> Plan:
    """`rounds` times: each node in turn is told to stop, and started again: a new version comes."""
    plan: list[Step] = []
    for turn in range(rounds * nodes):
        pick = (turn % nodes + 0.5) / nodes
        plan += [
            Step(After(uniform(*STEADY_S)), Phase.INJECT, Target.NODE, pick, STOP.name),
            Step(After(uniform(*AWAY_S)), Phase.HEAL, Target.HURT),
            Step(After(0.0), Phase.LEVEL, Target.GROUP),
        ]
    return (*plan, Step(After(uniform(*STEADY_S)), Phase.LEVEL, Target.GROUP))


def main_job(uniform: Uniform) -> Plan:
    """The demo's: the leader goes at 1/3 and is back at 1/2, a follower at 2/3 and at 5/6.

    The second kill waits until the first one's node has caught up: a group of three is built to
    survive one loss at a time, and a slow machine's restart must not make them two.
    """
    return (
        Step(AtShare(1 / 3), Phase.INJECT, Target.LEADER, 0.0, KILL.name),
        Step(AtShare(1 / 2), Phase.HEAL, Target.HURT),
        Step(AtShare(2 / 3), Phase.LEVEL, Target.GROUP),
        Step(After(0.0), Phase.INJECT, Target.FOLLOWER, uniform(0.0, 1.0), KILL.name),
        Step(AtShare(5 / 6), Phase.HEAL, Target.HURT),
        Step(AtShare(1.0), Phase.LEVEL, Target.GROUP),
    )
