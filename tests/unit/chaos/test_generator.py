"""Plans: the same seed makes the same plan, and a plan never asks for too much."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqchaos.faults.fault import FAULTS
from mqchaos.faults.generator import (
    After,
    AtShare,
    Phase,
    Plan,
    main_job,
    rolling,
    strikes,
)
from mqchaos.faults.kinds import KILL, KINDS, UNDONE, Kind
from mqchaos.faults.targets import Target
from mqchaos.limits import STEADY_S
from mqchaos.run.scenarios import SCENARIOS, Scenario

kinds = st.sampled_from([*UNDONE.values()])


def plan_of(seed: int, count: int, kind: Kind = KILL) -> Plan:
    return strikes(kind, Target.LEADER, count, random.Random(seed).uniform)


@given(st.integers(), st.integers(1, 30), kinds)
def test_a_seed_names_one_plan(seed: int, count: int, kind: Kind) -> None:
    """A replay does what the first run did."""
    assert plan_of(seed, count, kind) == plan_of(seed, count, kind)


def test_two_seeds_make_two_plans() -> None:
    """Two seeds make plans of different timings."""
    assert plan_of(1, 5) != plan_of(2, 5)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda scenario: scenario.name)
@given(seed=st.integers(), count=st.integers(1, 30))
def test_every_fault_is_healed_and_the_group_level_in_the_end(
    scenario: Scenario, seed: int, count: int
) -> None:
    """A plan heals each fault, and awaits replicas only with none left."""
    hurt, injected = 0, 0
    for step in scenario.plan(count, random.Random(seed).uniform):
        if step.phase is Phase.INJECT:
            injected += 1
            hurt += bool(KINDS[step.fault].undone)
        elif step.phase is Phase.HEAL:
            assert hurt
            hurt -= 1
        else:
            assert not hurt

    assert injected >= count or scenario.name == "calm"
    assert not hurt
    assert step.phase is Phase.LEVEL


@given(st.integers(), st.integers(1, 30), kinds)
def test_strikes_hurt_one_after_the_other(seed: int, count: int, kind: Kind) -> None:
    """Each fault is healed, and all replicas are level, before the next one."""
    phases = [step.phase for step in plan_of(seed, count, kind)]

    assert phases == [Phase.INJECT, Phase.HEAL, Phase.LEVEL] * count + [Phase.LEVEL]


@given(st.integers(), st.integers(1, 30), kinds)
def test_sends_are_steady_before_each_fault(seed: int, count: int, kind: Kind) -> None:
    """A fault comes at least a second after the group was level, so each gap is its own."""
    plan = plan_of(seed, count, kind)
    moments = [step.when for step in plan if step.phase is Phase.INJECT]

    assert {step.fault for step in plan if step.phase is Phase.INJECT} == {kind.name}
    assert all(isinstance(when, After) and when.seconds >= STEADY_S[0] for when in moments)


@given(st.integers(), st.integers(1, 5))
def test_a_rolling_restart_takes_every_node_in_turn(seed: int, rounds: int) -> None:
    """`pick` names each of three nodes once a round, in their order."""
    plan = rolling(3, rounds, random.Random(seed).uniform)
    picked = [int(step.pick * 3) for step in plan if step.phase is Phase.INJECT]

    assert picked == [0, 1, 2] * rounds


def test_every_kind_of_fault_can_be_injected_and_told() -> None:
    """A kind has a class, and words of its own in the history."""
    assert {name: fault.kind for name, fault in FAULTS.items()} == KINDS
    assert len(UNDONE) == len([kind for kind in KINDS.values() if kind.undone])
    assert not UNDONE.keys() & KINDS.keys()


def test_the_main_job_kills_the_leader_at_a_third_and_a_follower_at_two_thirds() -> None:
    """The demo's plan is what the README says that it is."""
    plan = main_job(random.Random(1).uniform)

    assert {step.fault for step in plan if step.phase is Phase.INJECT} == {KILL.name}
    assert [(step.when, step.phase, step.target) for step in plan] == [
        (AtShare(1 / 3), Phase.INJECT, Target.LEADER),
        (AtShare(1 / 2), Phase.HEAL, Target.HURT),
        (AtShare(2 / 3), Phase.LEVEL, Target.GROUP),
        (After(0.0), Phase.INJECT, Target.FOLLOWER),
        (AtShare(5 / 6), Phase.HEAL, Target.HURT),
        (AtShare(1.0), Phase.LEVEL, Target.GROUP),
    ]
