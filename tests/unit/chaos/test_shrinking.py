"""Smaller plans keep what shows a violation, and lose the rest, in any order."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from mqchaos.faults.generator import After, Phase, Plan
from mqchaos.limits import RATE_PER_S_MIN
from mqchaos.run.planned import Planned
from mqchaos.run.scenarios import SCENARIOS, planned_of, random_plan
from mqchaos.run.shrinking import smaller, units, with_units

seeds = st.integers(0, 1 << 32)


def shrunk(planned: Planned, fails: Callable[[Planned], bool]) -> tuple[Planned, int]:
    """The smallest plan that an oracle fails, and how often it was asked."""
    candidates, asked = smaller(planned), 0
    answer = None
    try:
        candidate = next(candidates)
        while True:
            asked += 1
            answer = fails(candidate)
            candidate = candidates.send(answer)
    except StopIteration as stop:
        return stop.value, asked


def faults_of(planned: Planned) -> set[str]:
    return {step.name for step in planned.steps if step.phase is Phase.INJECT}


def whole_seconds(plan: Plan) -> float:
    return sum(step.when.seconds for step in plan if isinstance(step.when, After))


@given(seeds, st.data())
def test_just_what_shows_the_violation_is_left(seed: int, data: st.DataObject) -> None:
    """Any one, two or three faults of a random plan are found among all."""
    planned = random_plan(seed, 60.0)
    names = sorted(faults_of(planned))
    guilty = set(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))

    found, asked = shrunk(planned, lambda candidate: guilty <= faults_of(candidate))

    assert faults_of(found) == guilty
    assert len(units(found.steps)) == len(guilty)
    assert asked <= 200


@given(seeds)
def test_a_fault_is_never_left_without_its_end(seed: int) -> None:
    """A candidate never has a fault without its end, or an end without its fault."""

    def fails(candidate: Planned) -> bool:
        healed = [step.name for step in candidate.steps if step.phase is Phase.HEAL]
        assert {*healed} <= faults_of(candidate)
        assert len(healed) == len({*healed})
        asked.append(candidate)
        return len(asked) % 3 == 0

    asked: list[Planned] = []
    shrunk(random_plan(seed, 60.0), fails)
    assert asked


def test_a_violation_without_any_fault_needs_one_question() -> None:
    """A violation without any fault needs one question, and more about the load."""
    found, _ = shrunk(random_plan(7, 60.0), lambda _: True)

    assert found.steps == ()
    assert RATE_PER_S_MIN <= found.rate_per_s < 100


def test_a_violation_that_never_comes_again_leaves_the_plan_alone() -> None:
    """A violation that never comes again leaves the plan as it is."""
    planned = random_plan(7, 60.0)

    found, _ = shrunk(planned, lambda _: False)

    assert found.steps == planned.steps
    assert (found.rate_per_s, found.drawn_by) == (planned.rate_per_s, "")


@given(seeds)
def test_what_is_left_comes_when_it_came(seed: int) -> None:
    """The time of what is left out stays; only then is it tried with less."""
    planned = random_plan(seed, 60.0)
    last = units(planned.steps)[-1]

    alone = with_units(planned.steps, [last])

    assert len(alone) == 1
    assert abs(whole_seconds(alone) - whole_seconds(planned.steps)) < 0.1


def test_a_violation_that_needs_its_time_keeps_it() -> None:
    """Waits are halved only as long as it comes."""
    planned = random_plan(3, 60.0)

    def fails(candidate: Planned) -> bool:
        return whole_seconds(candidate.steps) > 20

    found, _ = shrunk(planned, fails)
    assert 20 < whole_seconds(found.steps) <= 40


def test_named_scenarios_have_units_too() -> None:
    """A strike and its end are found without names, the oldest first."""
    plan = planned_of(SCENARIOS["namesrvs-kill"], 1, 2).steps
    found = units(plan)

    assert [len(unit) for unit in found] == [2, 2, 1, 2, 2, 1, 1]
    assert sorted(number for unit in found for number in unit) == [*range(len(plan))]
    assert [plan[number].fault for number in found[0]] == ["kill-namesrv", ""]
