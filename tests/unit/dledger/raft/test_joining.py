"""Nodes that begin, or begin again: eligibility, new heads, and the state with them."""

from __future__ import annotations

from collections.abc import Generator
from unittest.mock import patch

import pytest

from dledger import limits
from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import FrameError, Rot
from dledger.log.entry import HEADER_BYTES
from dledger.log.segments.segment import segment_path
from dledger.raft.limits import ACK_AGAIN_S
from dledger.raft.membership.eligibility import Barrier, Forming
from dledger.raft.messages import (
    Ack,
    Append,
    Eligible,
    Formed,
    Head,
    Ineligible,
    Learned,
    PeerKind,
    Prevote,
    Prevoted,
    State,
    Vote,
    Voted,
    Wanted,
)
from dledger.raft.replication.base_state import Hold
from dledger.raft.replication.flow_control import FlowControl
from dledger.raft.replication.state_copy import Copy, Picture
from dledger.raft.roles import Role
from dledger.slices import drained
from dledger.testing.disk import SimulatedDisk
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import FOLDER, Donor, Recorder, ScriptedNode

SEGMENT_BYTES = 4096


class Portable(Recorder):
    """A state machine whose state is the list of what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.state = b""
        self.saved_index = 0

    def capture(self) -> Generator[Hold, None, tuple[int, bytes]]:
        yield Hold.APPLYING
        return self.applied_index, b"state of %d" % self.applied_index * 300_000

    def install(self, index: int, payload: Buffer, first_index: int) -> Generator[None, None, None]:
        yield
        self.state = payload
        self.applied_index = first_index - 1


def that_is_not_eligible(**options: object) -> ScriptedNode:
    return ScriptedNode(eligible=False, **options)


def test_a_group_forms_when_every_member_says_that_it_holds_nothing() -> None:
    """A group forms once every member has answered: a silent one may hold the log."""
    node = that_is_not_eligible()
    node.step()
    assert node.take("f", Ineligible)
    node.receive("f", Formed(0, True))
    node.advance(3.0)
    assert not node.take("f", Prevote)
    node.receive("g", Formed(0, True))
    node.advance(3.0)
    assert node.take("f", Prevote)


def test_a_candidate_that_holds_no_entry_still_says_so() -> None:
    """A candidate without an entry tells so, since it may be eligible before the others."""

    def says_that_it_is_new() -> list[bool]:
        node = that_is_not_eligible()
        node.receive("f", Formed(0, True))
        node.receive("g", Formed(0, True))
        with pytest.raises(AssertionError, match="no election"):
            node.elect()
        (*_, asked) = node.take("f", Prevote)
        node.receive("f", Prevoted(asked.term, True, asked.term))
        node.step()
        assert node.engine.core.term == 1
        node.receive("f", Ineligible(0))
        node.step()
        return [message.fresh for message in node.take("f", Formed)]

    assert says_that_it_is_new() == [True]
    with plant("make eligible only where nobody has a term"):
        assert says_that_it_is_new() == [False]


def test_a_new_groups_member_becomes_eligible_in_a_term_that_no_forgotten_vote_is_of() -> None:
    """A new group's first term is above any that a member with an emptied folder voted in."""

    def votes_in(term: int) -> bool:
        node = that_is_not_eligible()
        node.receive("f", Formed(4, True))
        node.receive("g", Formed(2, True))
        node.receive("g", Vote(term, 1, 0, True))
        node.step()
        return bool(node.take("g", Voted))

    assert not votes_in(4)
    assert votes_in(5)
    with plant("vote anew in a new group"):
        assert votes_in(4)


def test_a_node_with_an_emptied_folder_neither_votes_nor_asks_for_votes() -> None:
    """A node with an emptied folder can't know its votes, nor what it acknowledged."""
    node = that_is_not_eligible()
    node.receive("f", Formed(7, False))
    node.receive("g", Formed(0, True))
    node.receive("f", Vote(8, 50, 7, False))
    node.receive("g", Prevote(8, 50, 7))
    node.advance(3.0)
    assert not node.take("f", Voted)
    assert [m.granted for m in node.take("g", Prevoted)] == [False]
    assert node.engine.core.role is Role.FOLLOWER
    assert node.engine.core.term == 0


def test_a_learner_becomes_eligible_at_the_barrier_and_stays_so() -> None:
    """A learner's acknowledgements say that they do not count, until a leader makes it eligible."""
    donor = Donor()
    donor.add(3, 5)
    node = that_is_not_eligible()
    node.receive_append("f", 3, donor, 2, 6)
    node.step()
    assert node.take("f", Learned)
    node.receive("g", Eligible(3, 6))  # not the leader
    node.receive("f", Eligible(2, 6))  # of an older term
    node.receive("f", Eligible(3, 7))  # not held yet
    node.receive_append("f", 3, donor, 7, 6)
    node.step()
    assert not node.take("f", Ack)
    node.receive("f", Eligible(3, 6))
    node.receive_append("f", 3, donor, 7, 6)
    node.step()
    assert node.take("f", Ack)
    again = node.restarted(power_lost=True)
    again.receive_append("f", 3, donor, 7, 6)
    again.step()
    assert again.take("f", Ack)


def test_a_leader_counts_a_learner_only_after_a_barrier_without_it() -> None:
    """The barrier lies behind all that the log held when the learner was first heard of."""
    node = ScriptedNode()
    term = node.serve("g")
    node.append()
    node.step()
    end = node.log.last_index
    node.receive("f", Learned(term, end + 1, False, True, 1 << 32))
    node.step()
    assert node.engine.core.commit_index < end
    assert node.log.last_index == end + 1, "a no-op, so that the barrier can be passed"
    node.receive("f", Learned(term, end + 2, False, True, 1 << 32))
    node.step()
    assert not node.take("f", Eligible)
    node.acknowledge("g", end + 1)
    node.receive("f", Learned(term, end + 2, False, True, 1 << 32))
    node.step()
    assert [message.index for message in node.take("f", Eligible)] == [end + 1]


def test_a_learner_eligible_at_once_could_vote_for_who_lacks_what_it_held() -> None:
    """The barrier prevents a vote that the learner, before it forgot, would not have given."""

    def votes_for_a_shorter_log() -> int:
        donor = Donor()
        donor.add(3, 5)
        node = that_is_not_eligible()
        node.receive_append("f", 3, donor, 2, 3)
        node.receive("f", Eligible(3, 6))
        node.step()
        node.engine.link_down("f", node.wires["f"])
        node.receive("g", Vote(4, 3, 3, False))
        node.step()
        return len(node.take("g", Voted))

    assert votes_for_a_shorter_log() == 0
    with plant("make a learner eligible at once"):
        assert votes_for_a_shorter_log() == 1


def test_a_leader_forgets_what_a_peer_held_when_the_link_breaks() -> None:
    """A peer may come back with an emptied folder, so its match index goes with the link."""
    node = ScriptedNode()
    node.serve("g")
    match = node.engine.core.match_index
    peer = node.engine.peers.known["g"].node
    assert match(peer) > 0
    node.engine.link_down("g", node.wires["g"])
    assert match(peer) == 0


def test_a_follower_that_was_away_too_long_begins_where_the_leader_does() -> None:
    """A follower gets the leader's first entry, asks for the state, and gets entries after it."""
    donor = Donor()
    donor.add(1, 300)
    machine = Portable()
    node = ScriptedNode(machine=machine)
    node.receive_append("f", 1, donor, 2, 9, commit_index=9)
    node.step()
    assert machine.applied_index == 9
    donor.log.sync()
    donor.log.commit_index = 300
    assert donor.log.trim(250) is None, "one segment only"
    first = 100
    header, before = donor.log.reader.header(first), donor.log.reader.header(first - 1)
    fields = 290, first, header.position, before.chain_crc, 7
    node.take("f")
    node.receive("f", Head(1, *fields, run=donor.run(first, first)))
    node.step()
    assert (node.log.first_index, node.log.last_index) == (first, first)
    acks = node.take("f")
    assert [m.next_index for m in acks if isinstance(m, Learned)] == [first + 1]
    assert [(m.index, m.offset) for m in acks if isinstance(m, Wanted)] == [(0, 0)]
    node.receive_append("f", 1, donor, first + 1, 300, commit_index=300)
    node.step()
    assert machine.applied_index == 9, "nothing is applied before the state is there"
    picture = Picture(280, b"the state")
    part = picture.part(0)
    fields = 280, 9, 0, crc32(part)
    node.receive("f", State(1, *fields, run=part))
    node.step()
    assert machine.state == b"the state"
    assert machine.applied_index == 300


def given_the_state(node: ScriptedNode, index: int) -> None:
    """The leader sends the state as of an entry."""
    node.receive("f", State(1, index, 5, 0, crc32(b"state"), run=b"state"))
    node.step()


def hears_the_leader(node: ScriptedNode, donor: Donor, end: int) -> list[PeerKind]:
    """Kinds of a node's answers to a heartbeat."""
    node.now += 2 * ACK_AGAIN_S
    node.take("f")
    node.receive_append("f", 1, donor, end + 1, end, commit_index=end)
    node.step()
    answers = (PeerKind.ACK, PeerKind.LEARNED)
    return [message.kind for message in node.take("f") if message.kind in answers]


def test_a_follower_that_begins_anew_is_not_counted_before_its_state_is_saved() -> None:
    """The follower copies entries as a learner meanwhile, although it stays eligible. With either
    bug it would be counted, and could lose what the entries build on."""

    def answers() -> list[PeerKind]:
        donor, machine = Donor(), Portable()
        donor.add(1, 300)
        node = ScriptedNode(machine=machine)
        node.begin_anew("f", donor, 100, 300)
        said = hears_the_leader(node, donor, 300)
        given_the_state(node, 280)
        assert machine.applied_index == 300
        said += hears_the_leader(node, donor, 300)
        machine.saved_index = 299
        return said + hears_the_leader(node, donor, 300)

    learned, acked = PeerKind.LEARNED, PeerKind.ACK
    assert answers() == [learned, learned, acked]
    with plant("take memory for a saved state"):
        assert answers() == [learned, acked, acked]
    with plant("count without the state"):
        assert answers() == [acked, acked, acked]


def test_a_follower_whose_state_is_older_on_disk_than_in_memory_is_not_counted_either() -> None:
    """A follower whose saved state is older than the head would lack it after a restart."""
    donor, machine = Donor(), Portable()
    donor.add(1, 300)
    node = ScriptedNode(machine=machine)
    node.receive_append("f", 1, donor, 2, 99, commit_index=99)
    node.step()
    machine.saved_index = 60
    node.begin_anew("f", donor, 100, 300)
    assert machine.applied_index == 300
    assert hears_the_leader(node, donor, 300) == [PeerKind.LEARNED]
    machine.saved_index = 99
    assert hears_the_leader(node, donor, 300) == [PeerKind.ACK]


def test_a_node_becomes_eligible_only_with_a_saved_state() -> None:
    """The leader offers it with every answer that it gets. Three disks replaced one after the
    other would otherwise leave a group with its log and no state."""

    def eligible_after_the_offer(saved_index: int) -> bool:
        donor, machine = Donor(), Portable()
        donor.add(1, 300)
        node = that_is_not_eligible(machine=machine)
        node.begin_anew("f", donor, 100, 300)
        given_the_state(node, 280)
        machine.saved_index = saved_index
        node.receive("f", Eligible(1, 300))
        node.step()
        return node.engine.acknowledging.eligible

    assert not eligible_after_the_offer(98)
    assert eligible_after_the_offer(99)
    with plant("become eligible without the state"):
        assert eligible_after_the_offer(98)


def test_a_leader_commits_nothing_before_its_state_is_saved() -> None:
    """A leader's copy counts for a majority once the state below it is saved."""
    donor, machine = Donor(), Portable()
    donor.add(1, 300)
    node = ScriptedNode(machine=machine)
    node.begin_anew("f", donor, 100, 300)
    given_the_state(node, 280)
    term = node.elect("g")
    noop_index = node.log.last_index
    node.receive("g", Ack(term, noop_index + 1, False, True, 1 << 32))
    node.step()
    assert node.engine.core.commit_index == 300
    machine.saved_index = 300
    node.advance(0.02)
    assert node.engine.core.commit_index == noop_index


def test_what_waited_for_the_state_is_checked_before_it_is_applied() -> None:
    """Entries come while the state is missing, and are good; one rots until the state is there."""

    def applied_when_the_state_comes() -> dict[int, bytes]:
        donor, disk, machine = Donor(), SimulatedDisk(), Portable()
        donor.add(1, 300)
        node = ScriptedNode(disk=disk, machine=machine)
        node.begin_anew("f", donor, 100, 300)
        assert (node.engine.core.commit_index, machine.applied) == (300, [])
        disk.flip_bit(
            segment_path(FOLDER, 0), donor.log.reader.header(170).position + HEADER_BYTES, 3
        )
        given_the_state(node, 280)
        return dict(machine.applied)

    with pytest.raises(Rot, match="entry 170"):
        applied_when_the_state_comes()
    with plant("apply what waited for the state"):
        assert applied_when_the_state_comes()[170] != b"donated"


def test_a_leader_whose_head_is_gone_offers_the_first_entry_that_it_has() -> None:
    """A leader offers its first entry once, as it may be large, and again without an answer."""
    machine = Portable()
    node = ScriptedNode(machine=machine, segment_bytes=SEGMENT_BYTES)
    term = node.serve("g")
    for _ in range(100):
        node.append(b"x" * 100)
        node.step()
    node.acknowledge("g", node.log.last_index)
    machine.saved_index = machine.applied_index
    job = node.log.trim(node.log.last_index)
    assert job is not None
    job.run()
    node.take("f")
    node.receive("f", Ack(term, 2, True, False, 1 << 32))
    node.advance(0.3)
    heads = node.take("f", Head)
    assert [head.first_index for head in heads] == [node.log.first_index]
    assert bytes(heads[0].run) == bytes(node.log.reader.run_of(*[node.log.first_index] * 2))
    node.acknowledge("f", node.log.first_index)
    node.advance(0.3)
    appends = node.take("f", Append)
    assert appends[0].previous_index == node.log.first_index


def test_a_follower_that_is_far_behind_gets_no_more_than_it_can_take() -> None:
    """A follower far behind gets a bounded number of bytes at a time, and heartbeats."""
    with patch.object(limits, "PEER_IN_FLIGHT_BYTES_MAX", 4000):
        node = ScriptedNode(segment_bytes=SEGMENT_BYTES)
        term = node.serve("g")
        node.take("f")
        for _ in range(100):
            node.append(b"x" * 100)
        node.advance(0.5)
        first = [append for append in node.take("f", Append) if append.run]
        assert sum(len(append.run) for append in first) < 4000 + SEGMENT_BYTES
        node.advance(0.5)
        waiting = node.take("f", Append)
        assert len(waiting) >= 3
        assert not any(append.run for append in waiting)
        held = max(append.previous_index + append.count for append in first)
        sent = len(first)
        while held < node.log.last_index:
            node.receive("f", Ack(term, held + 1, False, True, 1 << 32))
            node.advance(0.02)
            appends = [append for append in node.take("f", Append) if append.run]
            held = max(append.previous_index + append.count for append in appends)
            sent += len(appends)
        assert sent > 2


def test_catching_up_is_slowed_only_beside_appends() -> None:
    """A copy takes what there is while nobody else wants it."""
    flow, behind = FlowControl(), 1 << 30
    flow.sent(5, limits.CATCH_UP_BYTES_PER_S, now=10.0)
    flow.acknowledged(5)
    assert flow.in_flight_bytes == 0
    assert not flow.may_send(10.5, behind_bytes=behind, busy=True)
    assert flow.may_send(10.5, behind_bytes=behind, busy=False)
    assert flow.may_send(10.5, behind_bytes=1000, busy=True)
    assert flow.may_send(11.0, behind_bytes=behind, busy=True)
    flow.sent(6, limits.PEER_IN_FLIGHT_BYTES_MAX, now=11.0)
    assert not flow.may_send(99.0, behind_bytes=1000, busy=False)
    flow.start_again()
    assert flow.may_send(99.0, behind_bytes=1000, busy=False)


def test_a_state_travels_in_parts_and_goes_on_where_it_was() -> None:
    """A part that comes twice or out of turn changes nothing; another picture starts anew."""
    giver = ScriptedNode(machine=Portable())
    giver.step()
    copy = Copy()
    pictures = []
    while not pictures:
        giver.receive("f", Wanted(0, copy.index, copy.offset))
        giver.step()
        (state,) = giver.take("f", State)
        index, total, offset, crc = state.index, state.total_bytes, state.offset, state.crc
        assert copy.take(index, total, offset + 1, crc, state.run) is None
        if (picture := copy.take(index, total, offset, crc, state.run)) is not None:
            pictures.append(picture)
    assert pictures == [Picture(*drained(giver.machine.capture()))]
    copy.take(5, 20, 0, crc32(b"old"), memoryview(b"old"))
    assert copy.take(6, 3, 0, crc32(b"new"), memoryview(b"new")) == Picture(6, b"new")


def test_a_damaged_or_endless_state_is_refused() -> None:
    """The link is closed; the part is asked for again on the next one."""
    with pytest.raises(FrameError, match="CRC"):
        Copy().take(1, 3, 0, 0, memoryview(b"abc"))
    with pytest.raises(FrameError, match="limit"):
        Copy().take(1, 1 << 40, 0, crc32(b"abc"), memoryview(b"abc"))


def test_an_answer_over_a_broken_link_is_forgotten() -> None:
    """The peer may come back as a member of a group."""
    forming = Forming(["f", "g"])
    forming.heard("f", 0, fresh=True)
    forming.lost("f")
    forming.heard("g", 0, fresh=True)
    assert not forming.complete
    assert Barrier(1, 5).passed(commit_index=5, held_index=5)
    assert not Barrier(1, 5).passed(commit_index=4, held_index=9)
