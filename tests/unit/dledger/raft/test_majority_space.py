"""Groups whose disks are full: which node leads, what is taken, and when it goes on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import pytest
from groups import Group

from dledger.errors import AppendError, Busy
from dledger.log.entry import Kind
from dledger.raft.appends import Appended
from dledger.raft.limits import NO_SPACE_COUNTS_S, NO_SPACE_REPORT_S

Outcome = list[Appended | AppendError]


def fill(group: Group, node_ids: Iterable[str]) -> None:
    """Fill these nodes' disks, and append until their logs want another segment."""
    for node_id in node_ids:
        group.sim.nodes[node_id].disk.full = True
    for _ in range(2 * 20_000 // 100):
        for leader in group.leaders:
            with suppress(Busy):
                group.append(leader)
        group.run(0.01)


def lacking(group: Group) -> list[str]:
    return [i for i in group.ids if group.node(i).engine.log.space.lacking is not None]


def test_a_leader_whose_disk_is_full_lets_another_lead_that_has_room() -> None:
    """A leader with a full disk hands over by one election, and gets nothing back."""
    group = Group(3)
    full, (term,) = group.leader, group.terms
    fill(group, [full])
    group.run(3.0)
    assert lacking(group) == [full]
    assert group.leader != full
    assert group.terms == {term + 1}
    assert group.longest_gap(2.0) < 0.1


def test_a_leader_hands_over_to_whoever_has_room() -> None:
    """Two full disks of five nodes make one of the other three lead."""
    group = Group(5)
    full = [group.leader, group.followers[0]]
    fill(group, full)
    group.run(3.0)
    assert sorted(lacking(group)) == sorted(full)
    assert group.leader not in full
    assert group.longest_gap(2.0) < 0.1


def test_while_a_majority_of_the_disks_is_full_leadership_stays() -> None:
    """A leader stays and refuses appends, definitely, while a majority's disks are full."""
    group = Group(3)
    leader, (term,) = group.leader, group.terms
    fill(group, [leader, group.followers[0]])
    group.run(5.0)
    assert (group.leader, group.terms) == (leader, {term})
    with pytest.raises(Busy, match="no space left"):
        group.append(leader)
    group.node(group.followers[0]).disk.full = False
    group.run_until(lambda: group.leaders not in ([leader], []), 5.0)


def test_while_all_disks_are_full_leadership_stays() -> None:
    """Nodes decline to lead while all disks are full, and no term passes."""
    group = Group(3)
    fill(group, group.ids)
    group.run(1.0)
    assert lacking(group) == group.ids
    leader, terms = group.leader, group.terms
    group.run(60.0)
    assert (group.leader, group.terms) == (leader, terms)
    for node_id in group.ids:
        group.node(node_id).disk.full = False
    group.run(3.0)
    assert lacking(group) == []
    assert group.longest_gap(1.0) < 0.1


# -- a leader that has room, and followers that have none --------------------------------------


def fill_all_of(group: Group, node_ids: Iterable[str]) -> list[Outcome]:
    """Append until the leader refuses, as these disks take nothing more. What became of all that
    was taken before."""
    for node_id in node_ids:
        group.node(node_id).disk.full = True
    taken = list[Outcome]()
    while True:
        try:
            taken.append(group.append(group.leader))
        except Busy:
            return taken
        group.run(0.05)


def test_what_only_the_leader_has_room_for_is_definitely_not_taken() -> None:
    """An append that only the leader has room for is refused; all earlier ones are stored."""
    group = Group(3)
    leader, terms, full = group.leader, group.terms, group.followers
    taken = fill_all_of(group, group.followers)
    group.run(0.5)
    assert all(isinstance(outcome[0], Appended) for outcome in taken)
    assert lacking(group) == full
    names = f"{full[0]}, {full[1]} for another segment"
    for _ in range(100):
        with pytest.raises(Busy, match=f"no space left on the disks of {names}") as refused:
            group.append(leader)
        assert refused.value.definite
        group.run(0.1)
    assert (group.leader, group.terms) == (leader, terms)


def test_what_makes_room_is_still_stored() -> None:
    """Room is kept for entries other than messages, and for the one that lets segments go."""
    group = Group(3)
    fill_all_of(group, group.followers)
    commits = list[Outcome]()
    with suppress(Busy):
        while True:
            commits.append(group.append(group.leader, Kind.CONTROL))
    trim = group.append(group.leader, Kind.CONTROL, urgent=True)
    group.run(0.5)
    assert len(commits) > 1
    assert all(isinstance(outcome[0], Appended) for outcome in [*commits, trim])


def test_when_there_is_room_again_the_leader_goes_on_by_itself() -> None:
    """A leader takes appends some seconds after one more disk has room, without an election."""
    group = Group(3)
    fill_all_of(group, group.followers)
    group.run(1.0)
    group.node(group.followers[0]).disk.full = False
    with pytest.raises(Busy):
        group.append(group.leader)
    group.run(NO_SPACE_COUNTS_S + NO_SPACE_REPORT_S)
    assert group.longest_gap(2.0) < 0.1


def test_a_minority_without_room_stops_nothing() -> None:
    """Two full disks of five nodes stop nothing: the other three take all."""
    group = Group(5)
    fill(group, group.followers[:2])
    assert len(lacking(group)) == 2
    assert group.longest_gap(2.0) < 0.1


def test_a_leader_that_is_ahead_of_full_disks_takes_nothing_more() -> None:
    """A leader that began a segment before it heard of full disks takes no more."""
    group = Group(3)
    leader = group.leader
    log = group.node(leader).engine.log
    for node_id in group.followers:
        group.node(node_id).disk.full = True
        group.silence([(node_id, leader)], 0.4)
    first = log.last.position // log.segment_bytes
    taken = list[Outcome]()
    while log.last.position // log.segment_bytes == first:
        taken.append(group.append(leader))
    group.run(1.5)
    for kind, urgent in ((Kind.MESSAGES, False), (Kind.CONTROL, True)):
        with pytest.raises(Busy, match="no majority would store it"):
            group.append(leader, kind, urgent=urgent)
    for node_id in group.followers:
        group.node(node_id).disk.full = False
    group.run(NO_SPACE_COUNTS_S + NO_SPACE_REPORT_S)
    assert all(isinstance(outcome[0], Appended) for outcome in taken)
    assert group.longest_gap(2.0) < 0.1


def test_a_new_leader_is_told_at_once() -> None:
    """A new leader knows at once that three of five disks are full."""
    group = Group(5)
    before, (after, *full) = group.leader, group.followers
    fill_all_of(group, full)
    ended = list[str | None]()
    group.node(before).engine.transfer(after, ended.append)
    group.run_until(lambda: group.leaders == [after], 2.0)
    group.run(NO_SPACE_REPORT_S / 2)
    assert ended == [None]
    with pytest.raises(Busy, match=f"no space left on the disks of {', '.join(full)}"):
        group.append(after)
