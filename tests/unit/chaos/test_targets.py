"""Targets: a role and a draw name the same servers each time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqchaos.cluster.layout import NodeLayout, plan
from mqchaos.faults.targets import NEED_LEADER, Target, victims

LAYOUT = plan(range(5000, 5100), nodes=5, groups=2, namesrvs=2)
NODES = LAYOUT.group("broker-a")
picks = st.floats(0.0, 1.0)


def chosen(target: Target, pick: float, leader: NodeLayout | None = None) -> list[str]:
    return [server.name for server in victims(target, pick, LAYOUT, "broker-a", leader)]


@given(picks, st.sampled_from(NODES))
def test_a_majority_is_the_leader_and_just_enough_others(pick: float, leader: NodeLayout) -> None:
    """A majority is three of five with the leader, none twice, and none of another group."""
    names = chosen(Target.MAJORITY, pick, leader)

    assert names[0] == leader.name
    assert len({*names}) == 3
    assert {*names} <= {node.name for node in NODES}


@given(picks, st.sampled_from(NODES))
def test_a_minority_leaves_a_majority_without_it(pick: float, leader: NodeLayout) -> None:
    """A minority is the leader and one more of five."""
    names = chosen(Target.MINORITY, pick, leader)

    assert names[0] == leader.name
    assert len({*names}) == 2


@given(picks, st.sampled_from(NODES))
def test_a_follower_never_leads(pick: float, leader: NodeLayout) -> None:
    """A follower never leads, for draws up to 1.0."""
    (name,) = chosen(Target.FOLLOWER, pick, leader)

    assert name != leader.name


def test_a_draw_goes_over_all_that_have_the_role() -> None:
    """Each node, each follower and each name server can be hit."""
    picks = [step / 100 for step in range(100)]

    assert {*(name for pick in picks for name in chosen(Target.NODE, pick))} == {
        node.name for node in NODES
    }
    assert {*(name for pick in picks for name in chosen(Target.FOLLOWER, pick, NODES[2]))} == {
        node.name for node in NODES if node != NODES[2]
    }
    assert {*(name for pick in picks for name in chosen(Target.NAMESRV, pick))} == {
        "namesrv-0",
        "namesrv-1",
    }


def test_all_is_all() -> None:
    """ALL means the whole group, or all name servers."""
    assert chosen(Target.ALL, 0.3) == [node.name for node in NODES]
    assert chosen(Target.NAMESRVS, 0.3) == ["namesrv-0", "namesrv-1"]


@pytest.mark.parametrize("target", sorted(NEED_LEADER, key=str))
def test_a_role_that_needs_a_leader_says_so(target: Target) -> None:
    """A role that needs a leader is an error without one."""
    with pytest.raises(ValueError, match="names no servers here"):
        chosen(target, 0.0)
