"""A leader's time never goes back, whatever the wall clock does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqbroker import limits
from mqbroker.leader.assignments import Assignments
from mqbroker.state.machine import Machine

NOON_MS = 43_200_000


class Clocks:
    """A wall clock that may be set, and one that only goes on."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return NOON_MS + round(self.passed_s * 1000) + self.ahead_ms

    def steady_s(self) -> float:
        return self.passed_s


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A state with nothing in it."""
    return Machine(tmp_path_factory.mktemp("clock"))


def leader_of(machine: Machine, clocks: Clocks) -> Assignments:
    return Assignments(machine, clocks.wall_ms, clocks.steady_s)


def test_time_goes_on_after_the_clock_was_set_back(machine: Machine) -> None:
    """A delay of a second is over after two, though the clock was set back by a minute."""
    clocks = Clocks()
    clocks.ahead_ms = 60_000
    leader = leader_of(machine, clocks)
    stored_ms = leader.now_ms()

    clocks.ahead_ms = 0
    clocks.passed_s += 2

    assert leader.now_ms() == stored_ms + 1000


def test_it_is_the_wall_clock_again_once_that_has_caught_up(machine: Machine) -> None:
    """The leader's time is the wall clock again after twice the time it was set back by."""
    clocks = Clocks()
    clocks.ahead_ms = 60_000
    leader = leader_of(machine, clocks)
    leader.now_ms()
    clocks.ahead_ms = 0

    for _ in range(1210):
        clocks.passed_s += 0.1
        leader.now_ms()

    assert leader.now_ms() == clocks.wall_ms()


def test_a_new_leader_goes_on_from_the_log(machine: Machine) -> None:
    """A new leader's time begins at the log's newest store time, if its clock is behind."""
    clocks = Clocks()
    leader = leader_of(machine, clocks)
    machine.clock_ms = NOON_MS + 5_000
    clocks.passed_s = 1.0
    try:
        leader.reset()
        assert leader.now_ms() == NOON_MS + 5_000
        clocks.passed_s = 2.0
        assert leader.now_ms() == NOON_MS + 5_500
    finally:
        machine.clock_ms = 0


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(-100_000, 100_000)), max_size=50))
def test_it_never_goes_back_and_never_stands_still(
    machine: Machine, moves: list[tuple[float, int]]
) -> None:
    """The leader's time is at least the wall clock, and runs at half speed if ahead of it."""
    clocks = Clocks()
    leader = leader_of(machine, clocks)
    before_ms = leader.now_ms()
    for passed_s, ahead_ms in moves:
        clocks.passed_s += passed_s
        clocks.ahead_ms = ahead_ms
        now_ms = leader.now_ms()

        assert now_ms >= max(clocks.wall_ms(), before_ms)
        if clocks.wall_ms() + limits.BEHIND_MS_MAX < before_ms:
            assert now_ms >= before_ms + int(passed_s * 500) - 1
        before_ms = now_ms
