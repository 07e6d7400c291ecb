"""Elections in whole groups on virtual time: which node leads, and which must not disturb."""

from __future__ import annotations

import itertools
import random

import pytest
from groups import Group, Pair, both_ways

from dledger.errors import AppendError, OutcomeUnknown, TransferFailed
from dledger.log.entry import Entry
from dledger.raft.appends import Appended
from dledger.raft.election import part
from dledger.raft.limits import (
    ELECTION_TIMEOUT_MAX_S,
    ELECTION_TIMEOUT_MIN_S,
    GIVE_WAY_S,
    TRANSFER_TIMEOUT_S,
)
from dledger.raft.messages import Ack, Append, Prevote, Resigned, TakeOver, Vote
from dledger.raft.roles import Role
from dledger.testing.scripted.node import Donor, Recorder, ScriptedNode
from dledger.testing.simulation.node import SimulatedNode

WITHOUT_LEADER_MAX_S = 2.0


# -- pre-vote, stickiness, check-quorum --------------------------------------------------------


@pytest.mark.parametrize("size", [3, 5])
def test_pre_vote_keeps_a_node_that_was_cut_off_from_raising_the_term(size: int) -> None:
    """A node that was cut off for four seconds asks in vain, and deposes nobody afterwards."""
    group = Group(size)
    leader, terms = group.leader, group.terms
    away = group.followers[0]
    group.silence(both_ways(away, set(group.ids) - {away}), 4.0)
    group.run(6.0)
    assert (group.leader, group.terms) == (leader, terms)


@pytest.mark.parametrize("size", [3, 5])
def test_stickiness_keeps_a_leader_that_one_follower_no_longer_hears(size: int) -> None:
    """Nodes that hear their leader don't vote for a follower that no longer does."""
    group = Group(size)
    leader, terms = group.leader, group.terms
    group.silence(both_ways(leader, group.followers[:1]), 4.0)
    assert group.longest_gap(5.0) < 0.2
    group.run(1.0)
    assert (group.leader, group.terms) == (leader, terms)


@pytest.mark.parametrize("hears", [False, True], ids=["deaf-and-mute", "deaf"])
def test_check_quorum_lets_a_cut_off_leader_say_so_within_its_election_timeout(
    hears: bool,
) -> None:
    """A leader without a majority tells its waiting appends that their outcome is unknown."""
    group = Group(3)
    leader = group.leader
    others = group.followers
    pairs = [(other, leader) for other in others] if hears else both_ways(leader, others)
    group.silence(pairs, 6.0)
    outcome = group.append(leader)
    took_s = group.run_until(lambda: not group.serves(leader), 3.0)
    assert took_s <= ELECTION_TIMEOUT_MAX_S + 0.05
    assert isinstance(outcome[0], OutcomeUnknown)
    with pytest.raises(AppendError) as refused:
        group.append(leader)
    assert refused.value.definite


def test_a_leader_that_resigns_is_replaced_at_once_by_those_who_still_hear_it() -> None:
    """A leader that resigns is replaced without a timeout by nodes that hear its heartbeats."""
    group = Group(3)
    leader = group.leader
    group.silence([(other, leader) for other in group.followers], 6.0)
    group.run_until(lambda: not group.serves(leader), 3.0)
    assert group.run_until(lambda: group.leaders not in ([], [leader]), 2.0) < 0.3


def test_a_leader_that_replays_for_seconds_is_heard_meanwhile() -> None:
    """A restarted leader sends heartbeats while it applies what was committed."""
    apply_takes_s = 0.02

    class Slow(Recorder):
        def apply(self, entry: Entry) -> object:
            node.now += apply_takes_s
            return super().apply(entry)

    node, donor = ScriptedNode(machine=Slow()), Donor()
    last_index = donor.add(1, count=200)
    node.receive_append("g", 1, donor, 2, last_index)
    node.step()
    term = node.elect("f")
    node.take("g")
    began, heard_at = node.now, [node.now]
    while not node.engine.standing.serving:
        node.receive("f", Ack(term, last_index + 2, False, True, 1 << 32))
        node.turn()
        node.sync()
        if node.take("g", Append):
            heard_at.append(node.now)
    assert node.now - began > 200 * apply_takes_s - 0.1
    heard_at.append(node.now)
    silences_s = [after - before for before, after in itertools.pairwise(heard_at)]
    assert max(silences_s) < ELECTION_TIMEOUT_MIN_S / 2


def hold_replay(node: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a node from applying anything, as if it had much to replay."""
    monkeypatch.setattr(node.engine.applying, "apply", lambda commit_index: iter(()))


@pytest.mark.parametrize("seed", range(6))
def test_a_node_that_replays_lets_one_lead_that_can_serve(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that replays lets one lead that has applied all, whichever asks first.

    Both hold the whole log, so either could win, and the group must not be away for a replay.
    """
    monkeypatch.setattr(part, "REPLAY_ENTRIES_MAX", 20)
    group = Group(3, seed)
    leader, (replaying, ready) = group.leader, group.followers
    hold_replay(group.node(replaying), monkeypatch)
    for _ in range(30):
        group.append(leader)
        group.run(0.01)
    group.sim.crash(leader, power=False)
    group.sim.down_until.clear()
    assert group.run_until(lambda: group.leaders == [ready], 2.0) < 0.6


def test_nodes_that_all_replay_elect_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that all replay, as after a power loss, give way once and then elect one."""
    monkeypatch.setattr(part, "REPLAY_ENTRIES_MAX", 20)
    group = Group(3)
    leader, others = group.leader, [group.node(each) for each in group.followers]
    for node in others:
        hold_replay(node, monkeypatch)
    for _ in range(30):
        group.append(leader)
        group.run(0.01)
    group.sim.crash(leader, power=False)
    group.sim.down_until.clear()
    elected_s = group.run_until(
        lambda: any(node.engine.core.role is Role.LEADER for node in others), 3.0
    )
    assert GIVE_WAY_S[0] < elected_s < GIVE_WAY_S[1] + 0.5


def test_a_node_that_replays_does_not_take_over_from_a_leader_that_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator names it, or it is the preferred one: it declines, and the leader serves on at
    once. Leadership at the end of a long replay would take as long as the replay."""
    monkeypatch.setattr(part, "REPLAY_ENTRIES_MAX", 20)
    group = Group(3)
    leader, target = group.leader, group.followers[0]
    hold_replay(group.node(target), monkeypatch)
    for _ in range(30):
        group.append(leader)
        group.run(0.01)
    ended = list[str | None]()
    group.node(leader).engine.transfer(target, ended.append)
    assert group.run_until(lambda: bool(ended), 3.0) < 0.2
    assert ended == [f"{target} declined: it still replays its log"]
    outcome = group.append(leader)
    group.run(0.3)
    assert isinstance(outcome[0], Appended)


def test_a_leader_that_is_told_to_refuse_messages_lets_another_lead() -> None:
    """A leader that must refuse messages, as its disk is above the mark, hands over.

    It takes leadership from nobody then.
    """
    group = Group(3)
    leader = group.leader
    group.node(leader).engine.refusal = "above the mark"
    group.run_until(lambda: group.leaders not in ([leader], []), 3.0)
    group.run(0.5)
    ended = list[str | None]()
    group.node(group.leader).engine.transfer(leader, ended.append)
    assert group.run_until(lambda: bool(ended), 3.0) < 0.2
    assert ended == [f"{leader} declined: it has no room for messages"]


def test_who_has_declined_is_asked_last_by_a_leader_that_has_to_go() -> None:
    """A leader that stops asks the peer that holds most, and then the other."""
    group = Group(3)
    leader, (full, other) = group.leader, group.followers
    group.node(full).engine.refusal = "above the mark"
    ended = list[str | None]()
    for number, wanted in enumerate((full, other), 1):
        assert group.node(leader).engine.transfer(None, ended.append) == wanted
        group.run(0.2)
        assert len(ended) == number
    group.run_until(lambda: group.leaders == [other], 1.0)


def test_a_disk_that_takes_seconds_for_a_sync_is_no_reason_to_elect() -> None:
    """Syncs that hang for three seconds cause no election.

    The leader gets signs of life instead of acknowledgements, and its appends are acknowledged when
    the disks are back.
    """
    group = Group(3)
    leader, terms = group.leader, group.terms
    for follower in group.followers:
        group.sim.faults.stuck_until[follower] = group.now + 3.0
    outcome = group.append(leader)
    group.run(2.9)
    assert (group.leader, outcome) == (leader, [])
    group.run(1.0)
    assert isinstance(outcome[0], Appended)
    assert (group.leader, group.terms) == (leader, terms)


# -- partial partitions ------------------------------------------------------------------------


def random_rift(rng: random.Random, ids: list[str]) -> list[Pair]:
    """Links silenced in one direction or both, so that some majority still is fully connected."""
    while True:
        share = rng.choice((0.2, 0.4, 0.6))
        broken = {pair for pair in itertools.permutations(ids, 2) if rng.random() < share}
        for members in itertools.combinations(ids, len(ids) // 2 + 1):
            if broken and broken.isdisjoint(itertools.permutations(members, 2)):
                return sorted(broken)


@pytest.mark.parametrize(
    ("size", "seed"), [*((3, seed) for seed in range(8)), *((5, seed) for seed in range(4))]
)
def test_a_node_behind_a_partial_partition_never_keeps_the_group_from_a_leader_for_2_s(
    size: int, seed: int
) -> None:
    """Links fail in one direction or in both, the leader's or others'. While a majority of nodes
    hear each other, appends are acknowledged again within two seconds, and go on."""
    group = Group(size, seed)
    rift = random_rift(random.Random(seed), group.ids)
    print(f"silent: {rift}")
    group.silence(rift, 12.0)
    assert group.longest_gap(6.0) < WITHOUT_LEADER_MAX_S


def test_a_node_that_asks_and_hears_no_answer_does_not_keep_others_from_electing() -> None:
    """A node that asks for votes and hears no answer delays an election once in a term."""
    group = Group(5)
    leader, deaf, *others = group.leader, *group.followers
    group.silence([(other, deaf) for other in others], 20.0)
    group.sim.crash(leader, power=False)
    group.sim.down_until.clear()
    assert group.run_until(lambda: group.leaders != [], 5.0) < WITHOUT_LEADER_MAX_S


# -- handing leadership over -------------------------------------------------------------------


def test_leadership_is_handed_over_without_an_append_of_unknown_outcome() -> None:
    """A transfer leaves no append with an unknown outcome.

    The old leader acknowledges all that it took; the new one serves within a few round trips, and
    all follow it.
    """
    group = Group(3)
    leader, target = group.leader, group.followers[1]
    outcomes = [group.append(leader) for _ in range(20)]
    ended: list[str | None] = []
    assert group.node(leader).engine.transfer(target, ended.append) == target
    took_s = group.run_until(lambda: group.leaders == [target], 2.0)
    assert took_s < 0.3
    assert ended == [None]
    assert all(isinstance(outcome[0], Appended) for outcome in outcomes)


def test_a_leader_that_hands_over_refuses_appends_definitely() -> None:
    """Busy, with a time after which to try again: nothing is left on its way."""
    group = Group(3)
    leader = group.leader
    group.node(leader).engine.transfer(None, lambda _: None)
    with pytest.raises(AppendError, match="leadership goes to") as refused:
        group.append(leader)
    assert refused.value.definite


def test_a_transfer_to_a_node_that_does_not_catch_up_ends_and_appends_go_on() -> None:
    """The target hears nothing. After a second the leader serves on, in the same term, and says
    why; the same for one that was told and can't win."""
    group = Group(3)
    leader, target = group.leader, group.followers[0]
    group.silence([(leader, target)], 4.0)
    outcome, ended = group.append(leader), list[str | None]()
    group.node(leader).engine.transfer(target, ended.append)
    took_s = group.run_until(lambda: bool(ended), 3.0)
    assert took_s == pytest.approx(TRANSFER_TIMEOUT_S, abs=0.05)
    assert ended[0] is not None
    assert "1 entries behind" in ended[0]
    assert isinstance(outcome[0], Appended)
    outcome = group.append(leader)
    group.run(0.3)
    assert isinstance(outcome[0], Appended)


def test_who_can_not_take_over_is_refused_at_once() -> None:
    """A transfer to a stranger, to the leader itself, or beside another one is refused."""
    group = Group(3)
    engine = group.node(group.leader).engine
    for target in ("n9", group.leader):
        with pytest.raises(TransferFailed, match="choose one of the others: n"):
            engine.transfer(target, lambda _: None)
    engine.transfer(None, lambda _: None)
    with pytest.raises(TransferFailed, match="already"):
        engine.transfer(None, lambda _: None)


def test_only_the_leader_of_the_term_can_make_a_node_elect() -> None:
    """TakeOver counts from the leader of the term alone, and not a late one."""
    node = ScriptedNode()
    node.receive("f", Append(3, 1, 1, 0, 1, 0))
    node.step()
    node.receive("g", TakeOver(3))
    node.receive("f", TakeOver(2))
    node.receive("g", Resigned(3))
    node.advance(0.3)
    assert node.take("f", Vote) + node.take("f", Prevote) == []
    node.receive("f", TakeOver(3))
    node.step()
    (vote,) = node.take("g", Vote)
    assert (vote.term, vote.is_wished) == (4, True)


def group_without_its_preferred_node() -> tuple[Group, str]:
    """The preferred node led, was killed, and another leads; the dead one's name."""
    group = Group(3, preferred=True)
    preferred = group.ids[0]
    group.run_until(lambda: group.leaders == [preferred], 5.0)
    group.sim.crash(preferred, power=False)
    group.sim.down_until.clear()
    group.run_until(lambda: group.leaders != [], 2.0)
    return group, preferred


def test_the_preferred_node_gets_leadership_back_when_it_has_been_well_for_a_while() -> None:
    """The preferred node leads again after a restart, once it has caught up and stayed well."""
    group, preferred = group_without_its_preferred_node()
    group.run(5.0)
    assert group.leaders != []
    group.sim.start(preferred)
    came_back_s = group.run_until(lambda: group.leaders == [preferred], 5.0)
    assert came_back_s > 0.9
    terms = group.terms
    group.run(10.0)
    assert (group.leaders, group.terms) == ([preferred], terms)


def test_a_preferred_node_that_comes_and_goes_gets_nothing() -> None:
    """Each time its link breaks it has to stay well from the start again."""
    group, preferred = group_without_its_preferred_node()
    leader, terms = group.leader, group.terms
    group.sim.start(preferred)
    for _ in range(6):
        group.run(0.7)
        group.sim.network.cut(leader, preferred)
    assert (group.leader, group.terms) == (leader, terms)


# -- why there are elections -------------------------------------------------------------------


def test_elections_are_counted_by_reason() -> None:
    """Elections are counted by reason: no leader known, handed over, not heard."""
    group = Group(3)

    def begun(node_id: str) -> dict[str, int]:
        return group.node(node_id).engine.elections.begun

    first, *others = group.leader, *group.followers
    assert set(begun(first)) == {"none known"}
    group.node(first).engine.transfer(others[0], lambda _: None)
    group.run_until(lambda: group.leaders == [others[0]], 2.0)
    group.run(1.0)
    assert begun(others[0])["handed over"] == 1
    group.silence(both_ways(others[0], set(group.ids) - {others[0]}), 4.0)
    group.run_until(lambda: group.leaders not in ([], [others[0]]), 4.0)
    (silenced,) = (each for each in group.leaders if each != others[0])
    assert begun(silenced)["leader silent"] >= 1
    assert "leader gone" not in begun(silenced)
    group.run(6.0)
    leader = group.leader
    group.sim.crash(leader, power=False)
    group.run_until(lambda: group.leaders != [], 4.0)
    assert begun(group.leader)["leader gone"] >= 1


def test_a_node_that_is_left_alone_hears_no_leader() -> None:
    """A node alone knows the last leader, and yet tells that it hears none."""
    group = Group(3)
    leader, alone = group.leader, group.followers[0]
    assert group.node(alone).engine.elections.hears_leader
    for node_id in set(group.ids) - {alone}:
        group.sim.crash(node_id, power=False)
        del group.sim.down_until[node_id]  # for good
    group.run(3.0)
    assert group.node(alone).engine.standing.leader == leader
    assert not group.node(alone).engine.elections.hears_leader
