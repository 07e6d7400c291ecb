"""Random schedules: faults of all kinds, one or two at a time, from a seed's draws. Pure.

Named scenarios repeat one thing and measure it. A random schedule looks for what nobody thought of:
any fault, on any role, now and then a second one while the first lasts, and quiet spells in which
the group must come back to level. What can't be done at its moment (a majority would be lost, say)
is left out by the run, which writes that down.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec.structs import replace

from dledger.failpoints import PLACES, When
from mqchaos.faults import kinds
from mqchaos.faults.generator import ROLES, After, Phase, Plan, Step, Uniform
from mqchaos.faults.kinds import Kind
from mqchaos.faults.targets import Target
from mqchaos.limits import AWAY_S, OVERLAP_SHARE, QUIET_S, SHORT_S, STILL_S

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Choice:
    """A fault, the roles that it is for, and how long it lasts.

    `alone`: no other may overlap it. Of what lies on two of three disks one may be lost, not both.
    """

    kind: Kind
    targets: tuple[Target, ...]
    lasts_s: tuple[float, float] = SHORT_S
    nodes_min: int = 1
    alone: bool = False
    places: tuple[str, ...] = ()
    """Places of our code, of which one is drawn; the node that comes by one is hurt."""


_ONE: Final = (Target.LEADER, Target.LEADER, Target.FOLLOWER)
_ALL: Final = (Target.ALL,)
_PLACES: Final = tuple(
    place.name
    for place in PLACES.values()
    if place.when in (When.LOAD, When.ROLL, When.SAVE, When.START, When.TOPIC)
)
"""Places that a node reaches without a second fault."""

CHOICES: Final = (
    Choice(kinds.KILL, _ONE, AWAY_S),
    Choice(kinds.STOP, _ONE, AWAY_S),
    Choice(kinds.PAUSE, _ONE),
    Choice(kinds.KILL_MAJORITY, (Target.MAJORITY,), AWAY_S),
    Choice(kinds.KILL_ALL, _ALL, AWAY_S),
    Choice(kinds.STORM, (Target.LEADER, Target.FOLLOWER, Target.ALL), AWAY_S),
    Choice(kinds.TRANSFER, (Target.LEADER,)),
    Choice(kinds.KILL_NAMESRV, (Target.NAMESRV, Target.NAMESRVS), AWAY_S),
    Choice(kinds.PARTITION, _ONE),
    Choice(kinds.ISLAND, _ONE),
    Choice(kinds.BRIDGE, (Target.LEADER,), nodes_min=3),
    Choice(kinds.RING, _ALL, nodes_min=4),
    Choice(kinds.MUTE, (Target.LEADER,)),
    Choice(kinds.DEAF, _ONE),
    Choice(kinds.CUT_CLIENTS, (Target.LEADER,), STILL_S),
    Choice(kinds.CUT_NAMESRV, _ALL),
    Choice(kinds.SLOW, _ALL),
    Choice(kinds.LOSSY, _ALL),
    Choice(kinds.NARROW, _ALL),
    Choice(kinds.DOUBLED, _ALL),
    Choice(kinds.DISORDERED, _ALL),
    Choice(kinds.GARBLED, _ALL),
    Choice(kinds.RESET, (Target.LEADER, Target.FOLLOWER, Target.ALL)),
    Choice(kinds.WIPE, _ONE, AWAY_S, nodes_min=3, alone=True),
    Choice(kinds.ROT, _ONE, AWAY_S, nodes_min=3, alone=True),
    Choice(kinds.LOST_FILE, _ONE, AWAY_S, nodes_min=3, alone=True),
    Choice(kinds.SHORT_FILE, _ONE, AWAY_S, nodes_min=3, alone=True),
    Choice(kinds.STALE, _ONE, AWAY_S, nodes_min=3, alone=True),
    Choice(kinds.FAILPOINT_KILL, _ONE, AWAY_S, places=_PLACES),
    Choice(kinds.FAILPOINT_HOLD, _ONE, places=_PLACES),
    Choice(kinds.SLOW_DISK, _ONE),
    Choice(kinds.BAD_SYNC, _ONE, AWAY_S),
    Choice(kinds.FULL_DISK, _ONE, STILL_S),
    Choice(kinds.READ_ONLY, _ONE, AWAY_S),
    Choice(kinds.TORN, _ONE, AWAY_S),
    Choice(kinds.POWER_LOSS, _ONE, AWAY_S),
    Choice(kinds.NO_SPACE, _ONE, STILL_S),
    Choice(kinds.ABORTED, _ONE, AWAY_S),
    Choice(kinds.WRITE_ERRORS, _ONE, AWAY_S),
    Choice(kinds.LAST_WRITES, _ONE, AWAY_S),
    Choice(kinds.CLOCK_AHEAD, _ONE),
    Choice(kinds.CLOCK_BEHIND, _ONE),
    Choice(kinds.CLOCK_STROBE, (Target.LEADER, Target.ALL)),
    Choice(kinds.FEW_FILES, _ONE),
    Choice(kinds.SMALL_FILES, _ONE, AWAY_S),
    Choice(kinds.LOW_MEMORY, _ONE),
    Choice(kinds.SLOW_CPU, _ONE),
    Choice(kinds.JOIN, (Target.LEADER,), alone=True),
    Choice(kinds.DISMISS, (Target.FOLLOWER,), nodes_min=3, alone=True),
    Choice(kinds.BLANK_NAMESRV, (Target.NAMESRV,)),
    Choice(kinds.RENEW_CERTIFICATES, _ALL, alone=True),
    Choice(kinds.RENEW_SECRET, _ALL, alone=True),
)


def draw(
    duration_s: float, uniform: Uniform, nodes: int = 3, faults: Collection[str] | None = None
) -> Plan:
    """A schedule of about so many seconds, of these faults (all that there are by default)."""
    choices = [
        choice
        for choice in CHOICES
        if nodes >= choice.nodes_min and (faults is None or choice.kind.name in faults)
    ]
    moments: list[tuple[float, Step]] = []
    now, quiet_at, joined, number = uniform(*QUIET_S), 0.0, False, 0
    while choices and now < duration_s:
        choice = _one_of([each for each in choices if not (joined and each.alone)], uniform)
        number += 1
        lasts_s = uniform(*choice.lasts_s)
        moments += _moments(now, lasts_s, choice, f"{choice.kind.name} {number}", uniform)
        quiet_at = max(quiet_at, now + lasts_s)
        may_join = not joined and any(not each.alone for each in choices)
        joined = may_join and not choice.alone and uniform(0.0, 1.0) < OVERLAP_SHARE
        if joined:
            now += uniform(0.0, lasts_s)
        else:
            moments.append((quiet_at, Step(After(0.0), Phase.LEVEL, Target.GROUP)))
            now = quiet_at + uniform(*QUIET_S)
    moments.append((quiet_at + QUIET_S[1], Step(After(0.0), Phase.LEVEL, Target.GROUP)))
    return _in_order(moments)


def _one_of(some: Sequence[_T], uniform: Uniform) -> _T:
    return some[int(uniform(0.0, 1.0) * len(some)) % len(some)]


def _moments(
    now: float, lasts_s: float, choice: Choice, name: str, uniform: Uniform
) -> list[tuple[float, Step]]:
    """When a fault begins, and when it ends if it has an end."""
    place = _one_of(choice.places, uniform) if choice.places else ""
    targets = ROLES[PLACES[place].by] if place else choice.targets
    target, pick = _one_of(targets, uniform), uniform(0.0, 1.0)
    begin = Step(After(0.0), Phase.INJECT, target, pick, choice.kind.name, name, place)
    end = Step(After(0.0), Phase.HEAL, Target.HURT, name=name)
    return [(now, begin), (now + lasts_s, end)] if choice.kind.undone else [(now, begin)]


def _in_order(moments: list[tuple[float, Step]]) -> Plan:
    """Steps that each wait from the one before; at one moment, in the order that they came."""
    ordered = sorted(moments, key=lambda moment: moment[0])
    plan, before_s = [], 0.0
    for at_s, step in ordered:
        waited = After(round(at_s - before_s, 3))
        plan.append(replace(step, when=waited))
        before_s = at_s
    return tuple(plan)
