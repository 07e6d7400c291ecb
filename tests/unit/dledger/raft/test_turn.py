"""A turn: what a step decides, and the order in which the shell carries it out."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from dledger.buffers import Buffer
from dledger.errors import FrameError
from dledger.raft.messages import Ack, Append, Prevote, Prevoted, Voted, split_run
from dledger.raft.peers import Peers
from dledger.raft.ready import Ready
from dledger.raft.roles import Role
from dledger.raft.turn import carry_out, send
from dledger.testing.scripted.node import Donor, ScriptedNode, Wire


def no_sync() -> None:
    """Leave the sync for later."""


def leader() -> ScriptedNode:
    """A leader of f and g with an append that no step has seen."""
    node = ScriptedNode()
    node.serve("f")
    node.take("g")
    node.append(b"appended")
    return node


def test_a_step_writes_and_sends_nothing_itself() -> None:
    """A step's entries and messages are in its outcome; disk and links are as before."""
    node = leader()
    writes = node.disk.writes
    ready = node.engine.step()
    assert (node.disk.writes, node.take("f"), node.take("g")) == (writes, [], [])
    last = node.log.last_index
    assert ready.has_entries
    assert [each.entries for each in ready.messages] == [(last, last)] * 2

    carry_out(ready, node.log, no_sync)
    assert node.disk.writes > writes
    assert [message.count for message in node.take("g", Append)] == [1]


def test_entries_are_in_the_kernel_before_they_leave_and_leave_before_their_sync() -> None:
    """Writing, sending, syncing: the peers write while the leader syncs."""
    node = leader()
    done: list[str] = []
    write_out = node.log.write_out

    def written() -> None:
        write_out()
        done.append("written")

    def sent(wire: Wire, buffers: tuple[Buffer, ...]) -> None:
        done.append("sent")

    with (
        patch.object(node.log, "write_out", written),
        patch.object(Wire, "send", sent),
    ):
        carry_out(node.engine.step(), node.log, lambda: done.append("sync begun"))
    assert done == ["written", "sent", "sent", "sync begun"]


def test_an_acknowledgement_is_released_by_the_end_of_the_sync() -> None:
    """A follower's acknowledgement of new entries is in no step's outcome, but in that of the
    sync."""
    node, donor = ScriptedNode(), Donor()
    donor.add(1, count=2)
    node.receive_append("f", 1, donor, 2, 3)
    ready = node.engine.step()
    assert not [each for each in ready.messages if isinstance(each.message, Ack)]
    carry_out(ready, node.log, no_sync)

    job = node.log.start_sync()
    assert job is not None
    job.run()
    (released,) = node.engine.synced(job)
    assert isinstance(released.message, Ack)
    assert released.message.next_index == 4


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
