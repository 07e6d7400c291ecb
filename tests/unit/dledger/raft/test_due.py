"""Steps of a node: one before the time that the node names does nothing.

In each of these situations a node is stepped every four milliseconds although nothing comes in.
Until the time that it names, nothing is sent, noted or drawn, so that its caller may sleep until
then. In two situations, which never last, a node looks every 20 ms, and what happens then may be
late by as much.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest

from dledger import limits
from dledger.raft.election import transfer
from dledger.raft.election.transfer import Preference
from dledger.raft.limits import LOOK_AGAIN_S, PACE_S
from dledger.raft.membership import changes
from dledger.raft.membership.configuration import Member
from dledger.raft.messages import Ack, Declined, PeerKind, PeerMessage, Wanted, Willing
from dledger.raft.roles import Role
from dledger.testing.disk import SimulatedDisk
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.group import Portable
from dledger.testing.scripted.node import Donor, ScriptedNode, follower_of, log_without_head

FINE_S = 0.004
WATCHED_S = 1.5
"""Longer than any timeout of a node that hears nothing."""


def taken(node: ScriptedNode) -> list[PeerMessage]:
    """Messages of the node to any peer since the last call."""
    return [message for peer in node.wires for message in node.take(peer)]


def picture(node: ScriptedNode) -> list[object]:
    """State that a step may change: knowledge, deadlines, and the random draws."""
    core, engine = node.engine.core, node.engine
    parts = (core.role, core.term, core.commit_index, core.election_deadline, core.heartbeat_at())
    chance = random.getstate(), engine.elections._gate._rng.getstate()
    ends = node.log.last_index, engine.machine.applied_index, engine.standing
    return [*parts, *chance, *ends, engine.handing_over_to, engine.state_transfer._picture is None]


def settle(node: ScriptedNode) -> None:
    """Step while there is something to do at once."""
    node.step()
    while node.engine.urgent:
        node.step()


def sleep(node: ScriptedNode, seconds: float = WATCHED_S, late_s: float = 0.0) -> list[PeerMessage]:
    """Leave a node alone for some time; its messages at due times.

    Nothing may happen before a due time, or at most `late_s` before.
    """
    settle(node)
    said = taken(node)
    end = node.now + seconds
    while node.now < end:
        due = min(end, node.engine.next_step_at())
        before = picture(node)
        while node.now + FINE_S < due:
            node.now += FINE_S
            node.turn()
            early = taken(node)
            if early and due - node.now < late_s:
                said += early
                break
            assert not early, f"{due - node.now:.4f} s before it was due, it says {early}"
            assert picture(node) == before, f"{due - node.now:.4f} s before it was due"
        node.now = max(node.now, due) + 1e-6
        settle(node)
        said += taken(node)
    return said


# -- situations --------------------------------------------------------------------------------


def follower() -> ScriptedNode:
    """A follower that has heard its leader just now."""
    donor = Donor()
    donor.add(1, 3)
    return follower_of(donor, 4)


def leader() -> ScriptedNode:
    """A leader to which nobody answers from now on. Its heartbeats come at other times than the
    rest."""
    node = ScriptedNode()
    node.serve("f")
    node.now += 0.05
    node.acknowledge("f", node.log.last_index)
    return node


def leader_with_a_read() -> ScriptedNode:
    """A leader with a read that no peer has confirmed."""
    node = leader()
    node.engine.read(lambda outcome: None)
    return node


def leader_that_hands_over() -> ScriptedNode:
    """A leader whose successor holds all, is told, and does nothing."""
    node = leader()
    node.engine.transfer("f", lambda failed: None)
    return node


def leader_that_is_not_preferred() -> ScriptedNode:
    """The preferred node is well, and has to be for half a second."""
    node = leader()
    node.engine._hand_over._preference = Preference("f", healthy_s=0.5)
    return node


def leader_without_room() -> ScriptedNode:
    """A leader without room that asks again, as one peer could lead and the other can't."""
    node = leader()
    node.engine.refusal = "its disk is full"
    settle(node)
    node.receive("f", Willing(node.engine.core.term))
    node.receive("g", Declined(node.engine.core.term, 2))
    return node


def leader_with_a_learner() -> ScriptedNode:
    """The learner holds the log, and asked for the state a moment ago."""
    node = leader()
    node.engine.add_member("h", Member("host", 1), lambda outcome: None)
    settle(node)
    node.acknowledge("f", node.log.last_index)
    node.connect("h")
    settle(node)
    node.receive("h", Wanted(node.engine.core.term, 0, 0))
    node.acknowledge("h", node.log.last_index)
    return node


def leader_that_holds_back() -> ScriptedNode:
    """A leader whose peers take no more before they have acknowledged what they were sent."""
    node = leader()
    for peer in node.engine.peers.known.values():
        peer.sent.flow.in_flight_bytes = limits.PEER_IN_FLIGHT_BYTES_MAX
    node.append()
    return node


def without_its_state() -> ScriptedNode:
    """A node whose log has lost its head, and its state with it."""
    disk = SimulatedDisk()
    log = log_without_head(100, 3, b"body", disk)
    return ScriptedNode(disk=disk, log=log, machine=Portable(0), eligible=False)


def newcomer() -> ScriptedNode:
    """A node that is not eligible, and that nobody tells anything."""
    return ScriptedNode(eligible=False)


def cut_off() -> ScriptedNode:
    """A node that is connected to nobody."""
    node = follower()
    for peer, wire in node.wires.items():
        node.engine.link_down(peer, wire)
    return node


def alone() -> ScriptedNode:
    """The only voter of its group."""
    return ScriptedNode(peers=())


SITUATIONS: dict[str, Callable[[], ScriptedNode]] = {
    make.__name__: make
    for make in (
        follower,
        leader,
        leader_with_a_read,
        leader_that_hands_over,
        leader_that_is_not_preferred,
        leader_without_room,
        leader_with_a_learner,
        leader_that_holds_back,
        without_its_state,
        newcomer,
        cut_off,
        alone,
    )
}


LOOKS_S = {"leader_that_holds_back": PACE_S, "without_its_state": LOOK_AGAIN_S}


@pytest.fixture(autouse=True)
def what_a_leader_does_now_and_then_it_does_soon() -> Iterator[None]:
    """Shorten the intervals of a leader's rare actions, below its time to give up."""
    learner = patch.object(changes, "STATE_ASKED_S", 0.5)
    relief = patch.object(transfer, "CONSULT_AGAIN_S", 0.5)
    with learner, relief:
        yield


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_happens_before_it_is_due(situation: str) -> None:
    """A node names the time of whatever it does because of time alone."""
    sleep(SITUATIONS[situation](), late_s=LOOKS_S.get(situation, 0.0))


@pytest.mark.parametrize(
    ("bug", "situation"),
    [
        ("sleep through an election", "follower"),
        ("sleep through heartbeats", "leader"),
        ("sleep through a lost quorum", "leader"),
        ("forget what was held back", "leader_that_holds_back"),
        ("forget a read", "leader_with_a_read"),
        ("forget a transfer", "leader_that_hands_over"),
        ("forget a transfer", "leader_that_is_not_preferred"),
        ("forget a transfer", "leader_without_room"),
        ("forget a learner", "leader_with_a_learner"),
        ("forget what is missing", "without_its_state"),
    ],
)
def test_a_deadline_that_is_not_named_is_found(bug: str, situation: str) -> None:
    """A planted bug, which leaves one deadline out, is found by the test above."""
    node = SITUATIONS[situation]()
    with plant(bug), pytest.raises(AssertionError, match="before it was due"):
        sleep(node, late_s=LOOKS_S.get(situation, 0.0))


def test_what_is_due_is_done() -> None:
    """A node that sleeps from one due step to the next asks for an election, gives up leadership
    that nobody confirms, and shows its peers meanwhile that it is there."""
    node = follower()
    kinds = {message.kind for message in sleep(node, 1.5)}
    assert kinds == {PeerKind.PREVOTE}
    node = leader()
    said = sleep(node, 1.5)
    assert node.engine.core.role is Role.FOLLOWER
    heartbeats = [message for message in said if message.kind is PeerKind.APPEND]
    assert len(heartbeats) >= 2 * 5


def test_a_sync_of_a_follower_needs_no_step() -> None:
    """The acknowledgement that waited for it is out; a step afterwards would change nothing."""
    donor = Donor()
    donor.add(1, 3)
    node = follower_of(donor, 4)
    settle(node)
    last_index = donor.add(1)
    node.receive_append("f", 1, donor, last_index, last_index, 1)
    node.step(sync=False)
    assert taken(node) == []
    node.end_sync()
    (ack,) = taken(node)
    assert isinstance(ack, Ack)
    assert ack.next_index == last_index + 1
    assert not node.engine.urgent
    before = picture(node)
    node.turn()
    assert (taken(node), picture(node)) == ([], before)


def committed_by_its_own_sync(node: ScriptedNode) -> bool:
    """Whether a leader that is told of its sync commits what a follower acknowledged before."""
    outcome = node.append()
    node.step(sync=False)
    node.receive("f", Ack(node.engine.core.term, node.log.last_index + 1, False, True, 1 << 32))
    while node.engine.urgent:
        node.step(sync=False)
    assert outcome == []
    node.end_sync()
    while node.engine.urgent:
        node.step(sync=False)
    return bool(outcome)


def test_a_sync_of_a_leader_needs_a_step_if_an_acknowledgement_came_before() -> None:
    """The leader counts its own copy only when that is durable, and then at once."""
    assert committed_by_its_own_sync(leader())
    with plant("count early acks unnoticed"):
        assert not committed_by_its_own_sync(leader())
