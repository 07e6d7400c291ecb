"""A turn: what a step decides, and the order in which the shell carries it out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from dledger.buffers import Buffer
from dledger.errors import FrameError
from dledger.log.entry import Entry, Kind
from dledger.raft.limits import BURST_ENTRIES
from dledger.raft.messages import (
    Ack,
    Append,
    Confirm,
    Confirmed,
    Denied,
    Prevote,
    Prevoted,
    Voted,
    split_run,
)
from dledger.raft.peers import Peers
from dledger.raft.ready import Outgoing, Ready
from dledger.raft.roles import Role
from dledger.raft.turn import send, turn, write_and_send
from dledger.testing.scripted.node import Donor, ScriptedNode, Wire


def leader() -> ScriptedNode:
    """A leader of f and g with an append that no step has seen."""
    node = ScriptedNode()
    node.serve("f")
    node.take("g")
    node.append(b"appended")
    return node


def follower(*, sync: bool = True) -> ScriptedNode:
    """A follower of f that was sent two entries, which no step has seen."""
    node, donor = ScriptedNode(sync=sync), Donor()
    donor.add(1, count=2)
    node.receive_append("f", 1, donor, 2, 1)
    node.step()
    node.take("f")
    node.receive_append("f", 1, donor, 2, 3)
    return node


def order_of_a_turn(node: ScriptedNode) -> list[str]:
    """Everything that a turn does outside of the engine, in its order."""
    done: list[str] = []
    write, apply = node.disk.write, node.machine.apply

    def written(descriptor: int, buffers: Sequence[Buffer], offset: int) -> None:
        write(descriptor, buffers, offset)
        done.append("written")

    def applied(entry: Entry) -> object:
        done.append("applied")
        return apply(entry)

    with (
        patch.object(node.disk, "write", written),
        patch.object(Wire, "send", lambda wire, buffers: done.append("sent")),
        patch.object(node.machine, "apply", applied),
    ):
        turn(node.engine, lambda: done.append("sync begun"))
    return done


def test_a_step_writes_and_sends_nothing_itself() -> None:
    """A step's entries and messages are in its outcome; disk and links are as before."""
    node = leader()
    writes = node.disk.writes
    ready = node.engine.step()
    assert (node.disk.writes, node.take("f"), node.take("g")) == (writes, [], [])
    last = node.log.last_index
    assert ready.has_entries
    assert [each.entries for each in ready.messages] == [(last, last)] * 2

    write_and_send(ready, node.log)
    assert node.disk.writes > writes
    assert [message.count for message in node.take("g", Append)] == [1]


def test_entries_are_in_the_kernel_before_they_leave_and_leave_before_their_sync() -> None:
    """Writing, sending, syncing: the peers write while the leader syncs."""
    assert order_of_a_turn(leader()) == ["written", "sent", "sent", "sync begun"]


def test_what_is_committed_is_applied_after_all_else() -> None:
    """Nothing waits for the state machine."""
    node = leader()
    node.step()
    node.append(b"another")
    node.receive("f", Ack(node.engine.core.term, node.log.last_index, False, True, 1 << 32))
    assert order_of_a_turn(node) == ["written", "sent", "sent", "sync begun", "applied"]


def test_a_follower_that_does_not_sync_acknowledges_what_the_kernel_has() -> None:
    """A killed process forgets nothing that it acknowledged."""
    assert order_of_a_turn(follower(sync=False)) == ["written", "sent", "sync begun"]


def test_a_follower_with_nothing_to_say_begins_its_sync_all_the_same() -> None:
    """The sync is for the entries, and not for the messages of the step."""
    assert order_of_a_turn(follower()) == ["written", "sync begun"]


def test_an_acknowledgement_is_released_by_the_end_of_the_sync() -> None:
    """A follower's acknowledgement of new entries is in no step's outcome, but in that of the
    sync."""
    node = follower()
    write_and_send(node.engine.step(), node.log)
    assert not node.take("f", Ack)

    job = node.log.start_sync()
    assert job is not None
    job.run()
    (released,) = node.engine.synced(job)
    assert isinstance(released.message, Ack)
    assert released.message.next_index == 4


def test_messages_keep_their_order_whether_they_carry_entries_or_not() -> None:
    """Members must come before the head of a log, and that before its other entries."""
    node = leader()
    link, last = node.wires["g"], node.log.last_index
    carrying = Outgoing(link, Append(1, 1, 1, 0, 1, 1), (last, last))
    send([Outgoing(link, Denied(1)), carrying, Outgoing(link, Denied(2))], node.log)
    assert [type(message) for message in node.take("g")] == [Denied, Append, Denied]


def test_a_burst_of_new_appends_leaves_before_the_rest_is_applied_and_begins_no_sync() -> None:
    """Peers write a part of many appends while the leader takes the next; one sync covers all."""
    node = leader()
    for _ in range(2 * BURST_ENTRIES):
        node.append()
    node.step()
    for _ in range(BURST_ENTRIES):
        node.engine.append(b"first", Kind.MESSAGES, lambda outcome: append_one_more(node))
    node.step()
    node.receive("f", Ack(node.engine.core.term, node.log.last_index + 1, False, True, 1 << 32))
    order = order_of_a_turn(node)
    applied = 3 * BURST_ENTRIES + 1
    assert order == ["applied"] * applied + ["written", "sent", "sent"]


def test_what_waits_for_applied_entries_has_a_step_once_they_are() -> None:
    """A read that is confirmed before its entries are applied waits for no other event."""
    node = leader()
    node.step()
    node.receive("f", Ack(node.engine.core.term, node.log.last_index + 1, False, True, 1 << 32))
    with held(node):
        node.turn()
        read: list[object] = []
        node.engine.read(read.append)
        node.turn()
        (asked,) = node.take("f", Confirm)
        node.receive("f", Confirmed(asked.term, asked.number))
        node.turn()
        assert not read
        assert not node.engine.urgent
    node.turn()
    assert node.engine.urgent
    node.turn()
    assert read == [node.log.last_index]


def append_one_more(node: ScriptedNode) -> None:
    """An answered producer sends its next entry."""
    node.append()


@contextmanager
def held(node: ScriptedNode) -> Iterator[None]:
    """Nothing is applied within the block."""
    node.engine.applying.holds += 1
    try:
        yield
    finally:
        node.engine.applying.holds -= 1


def deposed_at_once() -> tuple[ScriptedNode, Ready]:
    """A node that a step elects, and that in the same step follows a leader of the next term, which
    cuts its no-op; that step's outcome."""
    node, donor = ScriptedNode(), Donor()
    donor.add(1, count=2)
    node.receive_append("f", 1, donor, 2, 3)
    node.step()
    while node.engine.core.role is not Role.CANDIDATE:
        node.advance(0.01)
        for asked in node.take("f", Prevote):
            node.receive("f", Prevoted(asked.term, True, asked.term))
    term = node.engine.core.term
    node.take("f")
    node.receive("f", Voted(term))
    donor.add(term + 1)
    node.receive_append("g", term + 1, donor, 4, 4)
    return node, node.engine.step()


def test_a_leader_that_is_deposed_in_the_step_that_elected_it_sends_no_entries() -> None:
    """The entries of its term may be cut by the time when the shell would read them."""
    node, ready = deposed_at_once()
    assert node.terms == [0, 1, 1, node.engine.core.term]
    assert not [each for each in ready.messages if each.entries is not None]


def test_entries_of_a_deposed_leader_would_be_those_of_the_next() -> None:
    """Were they sent all the same, a message of the old term would carry an entry of a newer one:
    the test above can fail."""
    with patch.object(Peers, "drop_entries", lambda self: None):
        node, ready = deposed_at_once()
    send(ready.messages, node.log)
    (wrong,) = node.take("f", Append)
    with pytest.raises(FrameError, match=f"entry 4 of term {wrong.term + 1}"):
        split_run(wrong.run, wrong.previous_index + 1, wrong.count, wrong.term)
