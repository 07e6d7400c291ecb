"""Holes 1 to 3, 10, 19 and 20 of the Raft library: resends, their size, and their link.

docs/explanation/raft-holes.md says how these tests work.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from pysyncobj import SyncObj

from dledger import limits
from dledger.errors import TooLarge
from dledger.log.entry import HEADER_BYTES
from dledger.raft.appends import Appended
from dledger.raft.engine import RaftEngine
from dledger.raft.library.adapter import Core, Node
from dledger.raft.messages import Ack, Append, PeerMessage, decode_message, encode_message
from dledger.raft.replication import sending
from dledger.raft.roles import Role
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import Donor, ScriptedNode, Wire, exchange, follower_of


def test_hole_01_an_acknowledgement_never_makes_the_leader_send_again_what_is_in_flight() -> None:
    """The message after the first of three acknowledgements carries new entries alone."""

    def first_index_sent_after_an_early_acknowledgement() -> int:
        node = ScriptedNode()
        node.serve("f")
        ends = []
        for _ in range(3):
            node.append()
            node.step()
            ends.append(node.log.last_index)
        node.take("f")
        node.acknowledge("f", ends[0])
        node.append()
        node.step()
        (message,) = (m for m in node.take("f", Append) if m.count)
        return message.previous_index + 1 - ends[-1]

    assert first_index_sent_after_an_early_acknowledgement() == 1
    with plant("send again what is in flight"):
        assert first_index_sent_after_an_early_acknowledgement() == -1


def test_hole_01_entries_that_match_are_never_cut() -> None:
    """A repeated message with the first two of ten acknowledged entries leaves all ten."""

    def log_end_after_a_repeated_message() -> int:
        donor = Donor()
        donor.add(1, 10)
        node = follower_of(donor, 11, commit_index=11)
        node.receive_append("f", 1, donor, 2, 3, commit_index=11)
        node.step()
        return node.log.last_index

    assert log_end_after_a_repeated_message() == 11
    with plant("truncate matching entries"):
        assert log_end_after_a_repeated_message() == 3


def test_hole_02_an_acknowledgement_of_an_older_term_commits_nothing() -> None:
    """f acknowledged three entries of term 1 that g's term cut: nobody holds what now has their
    indices, so the late message must not commit it."""

    def committed_by_a_stale_acknowledgement() -> bool:
        node = ScriptedNode()
        old_term = node.serve("f")
        for _ in range(3):
            node.append()
        node.step()
        donor = Donor()
        donor.copy(node.log, 2)
        donor.add(old_term + 1)
        node.receive_append("g", old_term + 1, donor, 3, 3)
        node.step()
        assert (node.engine.core.role, node.log.last_index) == (Role.FOLLOWER, 3)
        node.elect("g")
        node.acknowledge("g", node.log.last_index)
        outcome = node.append()
        node.step()
        assert node.log.last_index == 5
        node.receive("f", Ack(old_term, 6, False, True, 1))
        node.step()
        return bool(outcome)

    assert not committed_by_a_stale_acknowledgement()
    with plant("count stale acknowledgements"):
        assert committed_by_a_stale_acknowledgement()


def test_hole_03_a_conflicting_tail_is_mended_however_far_the_leader_is_ahead() -> None:
    """The leader is many messages ahead of a follower with two entries of a dead leader: a few
    exchanges make the logs equal. With the library's own hints it never happens."""

    def exchanges_until_equal() -> int | None:
        common, dead, living = Donor(), Donor(), Donor()
        common.add(1, 8)
        for donor in (dead, living):
            donor.copy(common.log, 9)
        dead.add(1, 2)
        living.add(2, 50, bytes(100))
        with patch.object(sending, "BATCH_BYTES", 1000):
            leader = ScriptedNode(["f", "g"], node_id="l")
            leader.receive_append("g", 2, living, 2, living.log.last_index, commit_index=9)
            leader.step()
            other = ScriptedNode(["l", "g"], node_id="f", now=leader.now)
            other.receive_append("g", 1, dead, 2, 11, commit_index=9)
            other.step()
            leader.elect("g")
            other.take("g")
            for count in range(1, 100):
                other.now = leader.now
                exchange(leader, other)
                if leader.terms == other.terms:
                    return count
                leader.advance(0.05)
        return None

    done = exchanges_until_equal()
    assert done is not None
    assert done <= 5
    with plant("trust the library's reset hints"):
        assert exchanges_until_equal() is None


def test_hole_10_the_largest_entry_travels_in_one_message() -> None:
    """An entry of the full size is sent in one message.

    The library cuts it into chunks, whose end it finds by the wrong length; our transport takes
    none of them.
    """

    def runs_sent() -> list[int]:
        node = ScriptedNode(segment_bytes=1 << 24)
        node.serve("f")
        node.append(bytes(limits.ENTRY_BYTES_MAX - HEADER_BYTES))
        node.step()
        return [len(m.run) for m in node.take("f", Append) if m.count]

    assert runs_sent() == [limits.ENTRY_BYTES_MAX]
    send = SyncObj._SyncObj__sendAppendEntries
    with patch.object(Core, "_SyncObj__sendAppendEntries", send):
        assert runs_sent() == []


@pytest.mark.parametrize("segment_bytes", [1 << 24, 1 << 16])
def test_hole_10_an_entry_above_the_limit_is_refused_at_once(segment_bytes: int) -> None:
    """An entry one byte above the bound, or above a segment, is refused, and nothing is lost."""
    node = ScriptedNode(segment_bytes=segment_bytes)
    node.serve("f")
    room = min(limits.ENTRY_BYTES_MAX, segment_bytes - 64) - HEADER_BYTES
    with pytest.raises(TooLarge):
        node.append(bytes(room + 1))
    outcome = node.append(bytes(room))
    node.step()
    node.acknowledge("f", node.log.last_index)
    assert isinstance(outcome[0], Appended)


def test_hole_19_a_peer_that_reads_too_slowly_is_paused() -> None:
    """A peer with 64 MiB queued gets nothing more until its queue has drained."""

    def sent_to_a_slow_peer() -> tuple[int, int]:
        node = ScriptedNode()
        node.serve("f")
        node.wires["f"].queued_bytes = (64 << 20) + 1
        for _ in range(10):
            node.append()
            node.step()
        slow = sum(message.count for message in node.take("f", Append))
        node.wires["f"].queued_bytes = 0
        node.engine.peers.link_drained("f")
        node.step()
        return slow, sum(message.count for message in node.take("f", Append))

    assert sent_to_a_slow_peer() == (0, 10)
    with patch.object(limits, "PEER_SEND_BUFFER_BYTES_MAX", 1 << 60):
        assert sent_to_a_slow_peer() == (10, 0)


def test_hole_20_what_an_older_connection_still_delivers_is_dropped() -> None:
    """f has a new connection. What was under way on the old one, a rejection of long ago, must
    not move what is sent next on the new one."""

    def next_index_after_a_late_rejection() -> int:
        node = ScriptedNode()
        node.serve("f")
        for _ in range(5):
            node.append()
        node.step()
        node.acknowledge("f", node.log.last_index)
        old, node.wires["f"] = node.wires["f"], Wire()
        node.engine.link_up("f", node.wires["f"])
        assert old.closed_because == "replaced by a newer connection"
        late = encode_message(Ack(node.engine.core.term, 2, True, False, 3))
        node.engine.receive("f", old, decode_message(memoryview(b"".join(late))))
        node.engine._deliver_inbox(node.now)
        return node.engine.core.next_index(Node("f"))

    def receive_on_the_live_link(
        self: RaftEngine, node_id: str, _: Wire, message: PeerMessage
    ) -> None:
        receive(self, node_id, self.peers.known[node_id].link, message)

    receive = RaftEngine.receive
    assert next_index_after_a_late_rejection() == 8
    with patch.object(RaftEngine, "receive", receive_on_the_live_link):
        assert next_index_after_a_late_rejection() == 2
