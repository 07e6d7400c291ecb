"""Plans: the same seed makes the same plan, and a plan never asks for too much."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from mqchaos.faults.generator import STEADY_S, Action, After, AtShare, Plan, Target, kills, main_job


def leader_kills(seed: int, count: int) -> Plan:
    return kills(Target.LEADER, count, random.Random(seed).uniform)


@given(st.integers(), st.integers(1, 30))
def test_a_seed_names_one_plan(seed: int, count: int) -> None:
    """A replay does what the first run did."""
    assert leader_kills(seed, count) == leader_kills(seed, count)


def test_two_seeds_make_two_plans() -> None:
    """Seeds explore different timings."""
    assert leader_kills(1, 5) != leader_kills(2, 5)


@given(st.integers(), st.integers(1, 30))
def test_one_node_at_a_time_is_down(seed: int, count: int) -> None:
    """Each kill is followed by the restart and a wait for all replicas, before the next kill."""
    actions = [step.action for step in leader_kills(seed, count)]

    assert actions == [Action.KILL, Action.RESTART, Action.HEAL] * count + [Action.HEAL]


@given(st.integers(), st.integers(1, 30))
def test_sends_are_steady_before_each_kill(seed: int, count: int) -> None:
    """A kill comes at least a second after the group was level, so each gap is its own."""
    moments = [step.when for step in leader_kills(seed, count) if step.action is Action.KILL]

    assert all(isinstance(when, After) and when.seconds >= STEADY_S[0] for when in moments)


def test_the_main_job_kills_the_leader_at_a_third_and_a_follower_at_two_thirds() -> None:
    """The demo's plan is what the README says that it is."""
    plan = main_job(random.Random(1).uniform)

    assert [(step.when, step.action, step.target) for step in plan] == [
        (AtShare(1 / 3), Action.KILL, Target.LEADER),
        (AtShare(1 / 2), Action.RESTART, Target.KILLED),
        (AtShare(2 / 3), Action.HEAL, Target.GROUP),
        (After(0.0), Action.KILL, Target.FOLLOWER),
        (AtShare(5 / 6), Action.RESTART, Target.KILLED),
        (AtShare(1.0), Action.HEAL, Target.GROUP),
    ]
