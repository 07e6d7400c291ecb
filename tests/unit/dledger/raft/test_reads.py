"""Read index: a read on the leader sees everything that was acknowledged before it began."""

from __future__ import annotations

import pytest

from dledger import limits
from dledger.errors import Busy, NotLeader
from dledger.raft.messages import Confirm, Confirmed, Denied
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import ScriptedNode

Answers = list[int | NotLeader]


def read(node: ScriptedNode) -> Answers:
    """A read begins, and its round goes out; the list gets its answer."""
    answers: Answers = []
    node.engine.read(answers.append)
    node.step()
    return answers


def asked(node: ScriptedNode, peer: str) -> list[int]:
    """The rounds that a peer was asked to confirm since the last call."""
    return [message.number for message in node.take(peer, Confirm)]


def confirm(node: ScriptedNode, peer: str, number: int) -> None:
    """A peer says that it is still in the leader's term."""
    node.receive(peer, Confirmed(node.engine.core.term, number))
    node.step()


def test_a_read_waits_for_a_majority_and_sees_what_was_acknowledged() -> None:
    """A read of five nodes needs two other confirmations; two of one node count once."""
    node = ScriptedNode(peers=("f", "g", "h", "i"))
    node.elect("f", "g")
    for peer in ("f", "g"):
        node.acknowledge(peer, node.log.last_index)
    appended = node.append()
    node.step()
    for peer in ("f", "g"):
        node.acknowledge(peer, node.log.last_index)
    assert appended
    answers = read(node)
    (number,) = asked(node, "f")
    confirm(node, "f", number)
    confirm(node, "f", number)
    assert answers == []
    confirm(node, "h", number)
    assert answers == [node.log.last_index]
    assert node.machine.applied_index == node.log.last_index


def test_reads_that_come_during_a_round_share_the_next_one() -> None:
    """A confirmation that was sent before a read began says nothing about it."""
    node = ScriptedNode()
    node.serve("f")
    first = read(node)
    later = [read(node) for _ in range(10)]
    assert asked(node, "f") == [1]
    confirm(node, "f", 1)
    assert first == [2]
    assert asked(node, "f") == [2]
    confirm(node, "g", 1)
    assert later == [[]] * 10
    confirm(node, "g", 2)
    assert later == [[2]] * 10


def test_with_any_confirmation_counted_a_read_is_answered_by_one_sent_before_it() -> None:
    """The late answer of the second peer to the first round would do for the second."""
    node = ScriptedNode()
    node.serve("f")
    with plant("count any confirmation"):
        read(node)
        confirm(node, "f", 1)
        later = read(node)
        confirm(node, "g", 1)
    assert later == [2]


def test_a_round_is_asked_again_over_a_link_that_stands_again() -> None:
    """A confirmation is asked for again over a new link."""
    node = ScriptedNode()
    node.serve("f")
    answers = read(node)
    for wire in node.wires.values():
        wire.take()
    node.advance(0.2)
    assert asked(node, "f") == [1]
    confirm(node, "f", 1)
    assert answers == [2]


def test_a_leader_takes_no_read_before_its_own_no_op_is_applied() -> None:
    """A leader without its own applied no-op may not know what was acknowledged before."""
    node = ScriptedNode()
    node.elect("f")
    with pytest.raises(NotLeader):
        node.engine.read(lambda _: None)


def test_a_deposed_leader_answers_no_read() -> None:
    """A peer of a later term says so, and each read that waits is told that nothing was read."""
    node = ScriptedNode()
    term = node.serve("f")
    answers = read(node)
    node.receive("f", Denied(term + 1))
    node.step()
    assert [type(answer) for answer in answers] == [NotLeader]
    confirm(node, "g", 1)
    assert len(answers) == 1


def test_a_leader_that_nobody_answers_gives_its_reads_up_when_it_steps_down() -> None:
    """Cut off, it never answers with what may be old."""
    node = ScriptedNode()
    node.serve("f")
    answers = read(node)
    node.advance(1.5)
    assert [type(answer) for answer in answers] == [NotLeader]


def test_a_follower_confirms_its_own_term_only() -> None:
    """A follower takes a later term first, and does not confirm an earlier one."""
    node = ScriptedNode()
    node.receive("f", Confirm(5, 1))
    node.receive("g", Confirm(4, 1))
    node.step()
    assert [m.term for m in node.take("f", Confirmed)] == [5]
    assert node.engine.core.term == 5
    assert not node.take("g", Confirmed)


def test_who_is_not_eligible_confirms_nothing() -> None:
    """A node that is not eligible may have forgotten a vote for a later leader."""
    node = ScriptedNode(eligible=False)
    node.receive("f", Confirm(5, 1))
    node.step()
    assert not node.take("f", Confirmed)


def test_a_group_of_one_reads_at_once() -> None:
    """A group of one has no other node to ask."""
    node = ScriptedNode(peers=())
    node.advance(2.0)
    assert read(node) == [node.log.last_index]


def test_reads_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the bound a read is refused at once."""
    monkeypatch.setattr(limits, "READS_PENDING_MAX", 2)
    node = ScriptedNode()
    node.serve("f")
    read(node), read(node)
    with pytest.raises(Busy):
        node.engine.read(lambda _: None)
