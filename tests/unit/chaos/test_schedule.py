"""Random schedules: a seed names one, all faults come, and each ends."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from mqchaos.faults.fault import FAULTS
from mqchaos.faults.generator import After, Phase, Plan
from mqchaos.faults.kinds import KINDS, RING
from mqchaos.faults.schedule import CHOICES, draw
from mqchaos.limits import QUIET_S

seeds = st.integers(0, 1 << 32)


def plan_of(seed: int, duration_s: float = 60.0, nodes: int = 3) -> Plan:
    return draw(duration_s, random.Random(seed).uniform, nodes)


@given(seeds, st.floats(1.0, 300.0))
def test_a_seed_names_one_schedule(seed: int, duration_s: float) -> None:
    """A seed and a length give the same schedule each time."""
    assert plan_of(seed, duration_s) == plan_of(seed, duration_s)


@given(seeds)
def test_two_faults_at_a_time_are_the_most(seed: int) -> None:
    """Each is healed by its name, replicas are awaited with none left, and so it ends."""
    lasting: set[str] = set()
    for step in plan_of(seed):
        if step.phase is Phase.INJECT:
            lasting |= {step.name} if KINDS[step.fault].undone else set()
            assert len(lasting) <= 2
        elif step.phase is Phase.HEAL:
            lasting.remove(step.name)
        else:
            assert not lasting

    assert not lasting
    assert step.phase is Phase.LEVEL


@given(seeds)
def test_a_damaged_disk_is_mended_before_anything_else_happens(seed: int) -> None:
    """Two of three disks at a time are more than a group can lose."""
    alone = {choice.kind.name for choice in CHOICES if choice.alone}
    plan = plan_of(seed, 120.0)
    for before, step, *after in zip(plan, plan[1:], plan[2:], plan[3:], strict=False):
        if step.fault in alone:
            assert before.phase is Phase.LEVEL
            assert [each.phase for each in after] == [Phase.HEAL, Phase.LEVEL]


@given(seeds, st.floats(10.0, 100.0))
def test_it_takes_about_as_long_as_it_should(seed: int, duration_s: float) -> None:
    """The last fault may end some seconds after, and nothing comes before its time."""
    moments = [
        step.when.seconds for step in plan_of(seed, duration_s) if isinstance(step.when, After)
    ]

    assert all(moment >= 0 for moment in moments)
    assert duration_s - 15 <= sum(moments) <= duration_s + 15


def test_every_kind_of_fault_comes() -> None:
    """Faults of all kinds come over some seeds; some need more nodes."""
    three = {step.fault for seed in range(200) for step in plan_of(seed) if step.fault}
    five = {step.fault for seed in range(200) for step in plan_of(seed, nodes=5) if step.fault}

    assert three == FAULTS.keys() - {RING.name}
    assert five == FAULTS.keys() == {choice.kind.name for choice in CHOICES}


def test_a_schedule_may_have_some_faults_only() -> None:
    """A schedule may be limited to some faults; with none it waits for the replicas."""
    some = draw(60.0, random.Random(1).uniform, faults={"kill", "pause"})

    assert {step.fault for step in some if step.fault} == {"kill", "pause"}
    (only,) = draw(60.0, random.Random(1).uniform, faults=())
    assert (only.phase, only.when) == (Phase.LEVEL, After(QUIET_S[1]))
