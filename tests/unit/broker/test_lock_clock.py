"""Locks end by a clock that no replica has ahead of the time that has passed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqbroker.leader.lock_clock import LockClock
from mqbroker.testing.leading import LeadingMachine
from mqbroker.testing.pictured import rows_in


class Replica:
    """A replica's locks and clock, running before the first request comes."""

    def __init__(self, directory: Path, group: Group) -> None:
        self.group = group
        self.applied = 0
        self.machine = LeadingMachine(directory, lambda: 0).machine
        self.clock = LockClock(self.machine, lambda: group.now_s)

    def apply(self, count: int, *, own: bool = False) -> None:
        """Apply `count` more of the group's lock requests."""
        for now_ms in self.group.log[self.applied : self.applied + count]:
            self.machine.locks.acquire("c", [], now_ms, 1)
            tell = self.clock.said if own else self.clock.heard
            tell()
            self.applied += 1

    def restart(self) -> None:
        """The process is another one; its state is what it was."""
        self.clock = LockClock(self.machine, lambda: self.group.now_s)

    def be_given_a_state(self) -> None:
        """Take the leader's state instead of the entries up to it."""
        self.applied = len(self.group.log)
        locks = self.group.leader.machine.locks
        self.machine.locks.restore(*map(rows_in, locks.picture()), locks.clock_ms)
        self.machine.generation += 1


class Group:
    """Replicas with one log of requests; `true_s` has the real time of each."""

    def __init__(self, directory: Path) -> None:
        self.now_s = 1000.0
        self.log: list[int] = []
        self.true_s: list[float] = []
        self.replicas = [Replica(directory / str(number), self) for number in range(3)]
        self.leader = self.replicas[0]

    def elect(self, number: int) -> None:
        """A replica has applied all, and leads."""
        self.leader = self.replicas[number]
        self.leader.apply(len(self.log))
        self.leader.clock.begin()

    def ask_for_lock(self) -> None:
        """An entry of the leader's, which it applies a little later."""
        self.log.append(self.leader.clock.now_ms())
        self.true_s.append(self.now_s)
        self.now_s += 0.005
        self.leader.apply(1, own=True)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.floats(0.001, 200)),
        st.tuples(st.just("ask"), st.integers(1, 20)),
        st.tuples(st.just("apply"), st.integers(0, 2)),
        st.tuples(st.just("elect"), st.integers(0, 2)),
        st.tuples(st.just("restart"), st.integers(0, 2)),
        st.tuples(st.just("give"), st.integers(0, 2)),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(STEPS)
def test_no_lock_ends_early(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, float]]
) -> None:
    """No leader's clock gives more time since a request than has truly passed."""
    group = Group(tmp_path_factory.mktemp("locks"))
    for what, value in steps:
        if what == "pass":
            group.now_s += value
        elif what == "ask":
            for _ in range(int(value)):
                group.ask_for_lock()
        elif what == "apply":
            group.replicas[int(value)].apply(3)
        elif what == "elect":
            group.elect(int(value))
        elif group.replicas[int(value)] is not group.leader:
            replica = group.replicas[int(value)]
            happens = replica.restart if what == "restart" else replica.be_given_a_state
            happens()
        now_ms = group.leader.clock.now_ms()
        for told_ms, true_s in zip(group.log, group.true_s, strict=True):
            assert now_ms - told_ms <= (group.now_s - true_s) * 1000 + 1
        assert group.log == sorted(group.log)


def test_many_requests_do_not_hold_a_leader_up(tmp_path: Path) -> None:
    """A lock ends after a minute, though each request is applied 5 ms late."""
    group = Group(tmp_path)
    group.elect(0)
    group.ask_for_lock()
    began_ms, began_s = group.log[0], group.true_s[0]
    while group.now_s < began_s + 60:
        group.ask_for_lock()
    assert group.leader.clock.now_ms() - began_ms == pytest.approx(60_000, abs=10)


def test_a_replica_that_follows_knows_how_much_time_has_passed(tmp_path: Path) -> None:
    """A follower counts the time too, so a dead member's lock ends on time after a failover."""
    group = Group(tmp_path)
    group.elect(0)
    group.ask_for_lock()
    group.replicas[1].apply(1)
    group.now_s += 40
    group.elect(1)
    assert group.leader.clock.now_ms() - group.log[0] == pytest.approx(40_000, abs=10)


def test_a_replica_that_was_away_takes_no_time_for_passed(tmp_path: Path) -> None:
    """A replica counts no time for its absence, since its length is not known."""
    group = Group(tmp_path)
    group.elect(0)
    group.ask_for_lock()
    group.replicas[1].apply(1)
    group.now_s += 86_400
    group.replicas[1].restart()
    group.elect(1)
    assert group.leader.clock.now_ms() == group.log[0]


def test_the_state_of_an_older_version_tells_the_time_by_its_locks(tmp_path: Path) -> None:
    """A state of an older version gives the clock its beginning by the ends of its locks."""
    machine = LeadingMachine(tmp_path, lambda: 0).machine
    machine.locks.restore([("G", "T", 0, "c", 1_760_000_060_000)])
    clock = LockClock(machine, lambda: 7.0)
    assert clock.now_ms() == 1_760_000_000_000
    assert not machine.locks.obtainable("d", [], clock.now_ms())
