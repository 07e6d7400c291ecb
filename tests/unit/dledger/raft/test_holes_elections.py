"""Holes 12 to 15 and 21 of the Raft library: terms, pre-vote, check-quorum, members, time.

docs/explanation/raft-holes.md says how these tests work.
"""

from __future__ import annotations

import pickle
from unittest.mock import patch

import pytest

from dledger.errors import FrameError, OutcomeUnknown
from dledger.log.entry import Kind
from dledger.raft.library.adapter import Node
from dledger.raft.library.transport import PeerTransport
from dledger.raft.limits import ELECTION_TIMEOUT_MAX_S
from dledger.raft.messages import Denied, PeerKind, Prevote, Vote
from dledger.raft.roles import Role
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import Donor, ScriptedNode, follower_of


def test_hole_12_who_is_behind_in_terms_is_told() -> None:
    """A leader and a candidate of term 3 learn that term 5 has begun."""

    def answers() -> list[tuple[PeerKind, int]]:
        donor = Donor()
        donor.add(5)
        node = follower_of(donor, 2, term=5)
        node.receive_append("g", 3, donor, 2, 1)
        node.receive("g", Vote(3, 9, 2, False))
        node.step()
        node.advance(2)
        node.take("g")
        node.receive("g", Vote(3, 9, 2, False))
        node.step()
        return [(m.kind, m.term) for m in node.take("g")]

    assert answers() == [(PeerKind.DENIED, 5)]
    with patch.object(PeerTransport, "deny", lambda *_: None):
        assert answers() == []


def test_hole_12_a_leader_that_is_told_of_a_higher_term_steps_down() -> None:
    """A message of a higher term makes a leader step down, and the new term is durable."""

    def role_and_term_after_a_denial() -> tuple[Role, int]:
        node = ScriptedNode()
        node.serve("f")
        node.receive("g", Denied(7))
        node.step()
        role = node.engine.core.role
        return role, node.restarted(power_lost=True).engine.core.term

    assert role_and_term_after_a_denial() == (Role.FOLLOWER, 7)
    with patch.object(PeerTransport, "step_down", lambda *_: None):
        assert role_and_term_after_a_denial() == (Role.LEADER, 1)


def test_hole_13_a_node_alone_does_not_raise_its_term() -> None:
    """A node alone for 30 seconds keeps its term, so that it deposes nobody afterwards."""

    def term_after_30_s_alone() -> int:
        donor = Donor()
        donor.add(1)
        node = follower_of(donor, 2)
        node.advance(30)
        return node.engine.core.term

    assert term_after_30_s_alone() == 1
    with plant("elect without asking"):
        assert term_after_30_s_alone() > 10


def test_hole_13_a_living_leader_is_not_deposed() -> None:
    """A vote request of a higher term, while the leader is heard from, changes nothing."""

    def term_after_a_vote_request() -> int:
        donor = Donor()
        donor.add(1)
        node = follower_of(donor, 2)
        node.receive("g", Vote(9, 2, 1, False))
        node.step()
        return node.engine.core.term

    assert term_after_a_vote_request() == 1
    with plant("elect without asking"):
        assert term_after_a_vote_request() == 9


def test_hole_14_a_leader_that_hears_from_no_majority_steps_down() -> None:
    """A leader without a majority tells its waiting appends within little more than a second.

    The library alone would go on for 30.
    """

    def outcome_after_silence(fallback_s: float | None) -> list[object]:
        node = ScriptedNode()
        if fallback_s is not None:
            node.engine.core.conf.leaderFallbackTimeout = fallback_s
        node.serve("f")
        outcome = node.append()
        node.advance(ELECTION_TIMEOUT_MAX_S + 0.1)
        return [type(result) for result in outcome]

    assert outcome_after_silence(None) == [OutcomeUnknown]
    assert outcome_after_silence(30.0) == []


def test_hole_15_the_librarys_own_membership_changes_are_off() -> None:
    """An entry of the membership type changes nobody's majority, and a request for one is
    refused. Our own changes are entries of a kind of their own, and read, not unpickled."""
    body = b"\x02" + pickle.dumps(("add", "x"))
    donor = Donor()
    donor.log.append(2, 1, Kind.MESSAGES, body)
    donor.log.append(3, 1, Kind.CONFIGURATION, body)
    node = ScriptedNode()
    node.receive_append("f", 1, donor, 2, 2, commit_index=2)
    node.receive_append("f", 1, donor, 3, 3, commit_index=2)
    node.step()
    assert "configuration can't be read" in (node.wires["f"].closed_because or "")
    assert node.log.last_index == 2
    assert {str(other) for other in node.engine.core.otherNodes} == {"f", "g"}
    with pytest.raises(FrameError, match="tried to add"):
        node.engine.transport.addNode(Node("x"))


class Busy(ScriptedNode):
    """Each look at its clock takes a millisecond, as on a machine that has others to serve."""

    def clock(self) -> float:
        """Goes on within a step, too."""
        self.now += 0.001
        return self.now


def test_hole_21_time_that_passes_within_a_step_starts_no_election() -> None:
    """A long step starts no election, and a node that is not eligible is never a candidate."""

    def votes_asked_for(*, eligible: bool) -> int:
        node = Busy(eligible=eligible)
        until = node.now + 10
        while node.now < until:
            node.step()
        assert not eligible or node.take("g", Prevote)
        return len(node.take("f", Vote))

    assert [votes_asked_for(eligible=eligible) for eligible in (True, False)] == [0, 0]
    with plant("elect as the clock goes on"):
        assert min(votes_asked_for(eligible=eligible) for eligible in (True, False)) > 0
