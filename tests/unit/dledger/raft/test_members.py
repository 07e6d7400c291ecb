"""Members of a group: configurations, the file that keeps them, and their changes."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from dledger import limits
from dledger.errors import (
    AppendError,
    BadInput,
    ChangePending,
    CorruptLog,
    FrameError,
    NotLeader,
    Rot,
    UnknownMember,
    WouldLoseMajority,
)
from dledger.log.entry import HEADER_BYTES, Kind
from dledger.log.recovery.startup import open_log
from dledger.log.segments.segment import segment_path
from dledger.raft.appends import Appended
from dledger.raft.membership.configuration import (
    Configuration,
    Member,
    decode_file,
    decode_members,
    encode_file,
    encode_members,
    initial,
)
from dledger.raft.membership.members import Members, open_members
from dledger.raft.messages import (
    Ack,
    Append,
    Head,
    Introduction,
    PeerMessage,
    Prevote,
    Prevoted,
    Vote,
    Voted,
    Wanted,
)
from dledger.raft.roles import Role
from dledger.testing.disk import SimulatedDisk
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import TERM_AT, Donor, ScriptedNode

FOLDER = Path("/log")
LOG = FOLDER


def group(*node_ids: str) -> dict[str, Member]:
    return initial({node_id: (f"host-{node_id}", 40911) for node_id in node_ids})


NEW = Member("host-h", 40912, service="host-h:10911")


# -- values --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(1, 7))
def test_majorities_of_neighbouring_configurations_share_a_node(size: int) -> None:
    """Majorities before and after one added voter overlap, so a term has one leader."""
    before = Configuration(group(*"abcdef"[:size]))
    after = Configuration(Configuration(before.with_learner("x", NEW)).with_voter("x"))
    everybody = [*before.voters, "x"]
    sets = [set(some) for count in range(size + 2) for some in combinations(everybody, count)]
    olds = [some for some in sets if some <= {*before.voters} and before.is_majority(some)]
    news = [some for some in sets if after.is_majority(some)]
    assert olds
    assert all(old & new for old in olds for new in news)


def test_learners_and_strangers_make_no_majority() -> None:
    """Learners and strangers make no majority, however many agree."""
    configuration = Configuration(Configuration(group("a", "b", "c")).with_learner("x", NEW))
    assert configuration.learners == ("x",)
    assert not configuration.is_majority({"a", "x", "y", "z"})
    assert configuration.is_majority({"a", "b"})


def test_a_configuration_survives_its_encodings() -> None:
    """A configuration in an entry lacks index and term, which the entry has; the file has both."""
    members = Configuration(group("a", "b")).with_learner("x", NEW)
    assert decode_members(encode_members(members)) == members
    history = [Configuration(group("a")), Configuration(members, 7, 3)]
    assert decode_file(encode_file(history)) == history
    assert decode_file(b"") == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x80",
        encode_members({"a": Member("h", 1, votes=False)}),
        encode_members({"a": Member("h", 0)}),
        encode_members({"": Member("h", 1)}),
        encode_members({"a" * 129: Member("h", 1)}),
        encode_members({"a": Member("", 1)}),
        encode_members({f"n{at}": Member("h", 1) for at in range(limits.MEMBERS_MAX + 1)}),
    ],
)
def test_a_malformed_configuration_is_refused(body: bytes) -> None:
    """A configuration without a voter or an address, or with too many members, is refused."""
    with pytest.raises(FrameError):
        decode_members(body)


def test_a_group_has_a_bound() -> None:
    """A group has a bound, and a new member needs a valid address."""
    full = Configuration(group(*(f"n{at}" for at in range(limits.MEMBERS_MAX))))
    with pytest.raises(BadInput, match="limit"):
        full.with_learner("x", NEW)
    with pytest.raises(BadInput, match="peer port of x: 70000"):
        Configuration(group("a")).with_learner("x", Member("h", 70000))


# -- the file ------------------------------------------------------------------------------


def test_what_is_in_force_follows_the_log() -> None:
    """A configuration is in force from its append until it is cut, also over a restart."""
    disk, log = SimulatedDisk(), open_log(LOG, 4096, SimulatedDisk())[0]
    for index in range(1, 4):
        log.append(index, 1, Kind.NOOP, b"")
    members = open_members(FOLDER, disk, log, group("a", "b", "c"))
    for index, ids in ((4, "abcd"), (5, "abc")):
        members.append(index, 1, encode_members(group(*ids)))
        log.append(index, 1, Kind.CONFIGURATION, encode_members(group(*ids)))
    assert members.current.voters == (
        "a",
        "b",
        "c",
    )
    assert members.current.index == 5
    assert open_members(FOLDER, disk, log, group("z")).current == members.current
    log.cut(5)
    members.cut(5)
    assert members.current.voters == (
        "a",
        "b",
        "c",
        "d",
    )
    assert open_members(FOLDER, disk, log, group("z")).current == members.current


def test_a_configuration_whose_entry_was_lost_is_forgotten_for_good() -> None:
    """The file is written first, and the node died before the entry was. When the head has passed
    that index, nobody could tell any more that it never was in the log."""
    disk, log = SimulatedDisk(), open_log(LOG, 4096, SimulatedDisk())[0]
    log.append(1, 0, Kind.NOOP, b"")
    members = open_members(FOLDER, disk, log, group("a", "b", "c"))
    members.append(2, 1, encode_members(group("a")))
    log.append(2, 2, Kind.CONFIGURATION, encode_members(group("a", "b")))  # another leader's
    assert open_members(FOLDER, disk, log, group("z")).current.voters == (
        "a",
        "b",
        "c",
    )
    assert len(decode_file(disk.read(FOLDER / "members"))) == 1


def test_a_file_that_cannot_be_read_stops_the_node() -> None:
    """A damaged file stops the node: it could count a majority of the wrong group."""
    disk, log = SimulatedDisk(), open_log(LOG, 4096, SimulatedDisk())[0]
    disk.replace(FOLDER / "members", b"DLGM" + bytes(20))
    with pytest.raises(CorruptLog, match="wrong majority"):
        open_members(FOLDER, disk, log, group("a"))


def replica_with_a_rotten_header(at: int) -> SimulatedDisk:
    """A stopped replica whose entry 2 made four members of three, a bit of its header turned. Its
    segment is one that the checkpoint vouches for."""
    disk = SimulatedDisk()
    log = open_log(LOG, 4096, disk)[0]
    log.append(1, 1, Kind.NOOP, b"")
    members = open_members(FOLDER, disk, log, group("a", "b", "c"))
    members.append(2, 1, encode_members(group("a", "b", "c", "d")))
    log.append(2, 1, Kind.CONFIGURATION, encode_members(group("a", "b", "c", "d")))
    for index in range(3, 30):
        log.append(index, 1, Kind.MESSAGES, bytes(500))
    log.sync()
    header = log.reader.header(2)
    log.commit_index = log.last_index
    log.close()
    disk.flip_bit(segment_path(LOG, 0), header.position + at, 0)
    return disk


def open_replica(disk: SimulatedDisk) -> Members:
    log = open_log(LOG, 4096, disk)[0]
    return open_members(FOLDER, disk, log, group("a", "b", "c"))


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_a_rotten_header_is_no_other_entry(at: int) -> None:
    """A rotten header stops the start: else a majority of former members might be counted."""
    disk = replica_with_a_rotten_header(at)
    with pytest.raises(Rot):
        open_replica(disk)
    assert decode_file(disk.read(FOLDER / "members"))[-1].voters == ("a", "b", "c", "d")


def test_a_node_that_believes_rotten_headers_counts_a_wrong_majority() -> None:
    """The planted bug, with one wrong bit of the term, counts the majority of former members."""
    with plant("take a rotten header for another entry"):
        members = open_replica(replica_with_a_rotten_header(TERM_AT))
    assert members.current.voters == ("a", "b", "c")


# -- a leader ------------------------------------------------------------------------------

Outcomes = list[Appended | AppendError]


def add(node: ScriptedNode, node_id: str = "h") -> Outcomes:
    outcome: Outcomes = []
    assert node.engine.add_member(node_id, NEW, outcome.append)
    node.step()
    return outcome


def remove(node: ScriptedNode, node_id: str) -> Outcomes:
    outcome: Outcomes = []
    node.engine.remove_member(node_id, outcome.append)
    node.step()
    return outcome


def test_a_newcomer_is_a_learner_until_it_holds_the_log() -> None:
    """A new member gets the log without being counted, and then becomes a voter."""
    node = ScriptedNode()
    node.serve("f")
    added = add(node)
    node.acknowledge("f", node.log.last_index)
    assert isinstance(added[0], Appended)
    assert node.engine.members.current.learners == ("h",)

    wire = node.connect("h")
    node.step()
    assert [m for m in wire.take() if isinstance(m, Append)]
    outcome = node.append()
    node.receive("h", Wanted(node.engine.core.term, 0, 0))
    node.acknowledge("h", node.log.last_index)
    assert not outcome, "a learner and the leader are no majority of three voters"
    assert node.engine.members.current.learners == ("h",), "it asked for the state a moment ago"
    for _ in range(4):
        node.advance(0.9)
        node.acknowledge("f", node.log.last_index)
        node.acknowledge("h", node.log.last_index)
    assert isinstance(outcome[0], Appended)
    assert node.engine.members.current.voters == (
        "f",
        "g",
        "h",
        "n",
    )
    outcome = node.append()
    node.step()
    node.acknowledge("f", node.log.last_index)
    assert not outcome, "two of four are none"
    node.acknowledge("h", node.log.last_index)
    assert isinstance(outcome[0], Appended)


def test_one_change_at_a_time() -> None:
    """A second change waits for the first: majorities two changes apart may not overlap."""
    node = ScriptedNode()
    node.serve("f")
    add(node)
    with pytest.raises(ChangePending, match="not committed"):
        remove(node, "g")
    node.acknowledge("f", node.log.last_index)
    node.acknowledge("g", node.log.last_index)
    assert not remove(node, "g")


def test_no_change_before_an_entry_of_the_own_term_is_committed() -> None:
    """A change waits for an entry of the leader's own term, as an earlier one may still win."""
    node = ScriptedNode()
    node.elect("f")
    assert node.engine.core.role is Role.LEADER
    with pytest.raises(NotLeader):
        node.engine.add_member("h", NEW, lambda _: None)


def test_a_removed_voter_is_counted_no_more_at_once() -> None:
    """The change is in force when it is appended: its own entry needs the majority of the rest."""
    node = ScriptedNode(("f", "g", "h"))
    node.elect("f", "g")
    node.acknowledge("f", node.log.last_index)
    node.acknowledge("g", node.log.last_index)
    removed = remove(node, "h")
    node.acknowledge("h", node.log.last_index)
    assert not removed
    node.acknowledge("f", node.log.last_index)
    assert isinstance(removed[0], Appended)
    with pytest.raises(UnknownMember, match="members are f, g, n"):
        remove(node, "h")


def test_a_leader_that_has_not_heard_of_a_member_yet_does_not_call_it_gone() -> None:
    """Right after its election, one that is connected may only not have answered: ask again."""
    node = ScriptedNode()
    node.elect("f")
    node.acknowledge("f", node.log.last_index)
    with pytest.raises(ChangePending, match="g have not answered"):
        remove(node, "f")
    node.acknowledge("g", node.log.last_index)
    assert not remove(node, "f")


def test_a_removal_that_would_stop_the_group_is_refused() -> None:
    """A removal is refused if no majority would answer, or one voter alone would be left."""
    node = ScriptedNode()
    node.serve("f")
    node.engine.link_down("g", node.wires["g"])
    with pytest.raises(WouldLoseMajority, match="g do not answer"):
        remove(node, "f")
    removed = remove(node, "g")
    node.acknowledge("f", node.log.last_index)
    assert isinstance(removed[0], Appended)
    with pytest.raises(WouldLoseMajority, match="only one voter"):
        remove(node, "f")
    with pytest.raises(ChangePending, match="hand leadership over"):
        remove(node, "n")


# -- a follower ----------------------------------------------------------------------------


def test_a_follower_goes_back_to_the_configuration_of_what_is_left() -> None:
    """A deposed leader's change was not committed, and the next leader's log lacks it."""
    donor, other = Donor(), Donor()
    donor.log.append(2, 1, Kind.CONFIGURATION, encode_members(group("n", "f", "g", "h")))
    other.add(2, 2)
    node = ScriptedNode()
    node.receive_append("f", 1, donor, 2, 2)
    node.step()
    assert node.engine.members.current.voters == (
        "f",
        "g",
        "h",
        "n",
    )
    node = node.restarted(power_lost=False)
    assert node.engine.members.current.index == 2
    node.receive_append("g", 2, other, 2, 3)
    node.step()
    assert node.engine.members.current.voters == (
        "f",
        "g",
        "n",
    )
    assert node.restarted(power_lost=True).engine.members.current.index == 0


def test_who_is_removed_stands_for_no_election_but_gives_its_vote() -> None:
    """A removed node votes for others, which may not know of the removal, and never asks."""
    donor = Donor()
    donor.log.append(2, 1, Kind.CONFIGURATION, encode_members(group("f", "g")))
    node = ScriptedNode()
    node.receive_append("f", 1, donor, 2, 2)
    node.advance(3.0)
    assert not node.take("f", Prevote)
    node.receive("g", Vote(2, 2, 1, False))
    node.step()
    assert node.take("g", Voted)


def test_who_was_removed_while_it_was_away_is_told_when_it_asks_for_votes() -> None:
    """A removed node that was away is told by any member, and asks for votes no more."""
    donor = Donor()
    donor.log.append(2, 1, Kind.CONFIGURATION, encode_members(group("f", "g", "n")))
    member = ScriptedNode(("f", "g", "x"))
    member.receive_append("f", 1, donor, 2, 2)
    member.receive("x", Prevote(1, 1, 0))
    member.step()
    assert not member.take("x", Introduction), "that is not committed yet"
    member.receive_append("f", 1, donor, 3, 2, commit_index=2)
    member.receive("x", Prevote(1, 1, 0))
    member.step()
    (told,) = member.take("x", Introduction)

    removed = ScriptedNode(("f", "g", "n"), node_id="x")
    removed.receive("n", told)
    removed.advance(3.0)
    assert not removed.take("n", Prevote)
    restarted = removed.restarted(power_lost=True)
    assert restarted.engine.members.current.voters == (
        "f",
        "g",
        "n",
    )


def test_votes_and_acknowledgements_of_strangers_are_not_counted() -> None:
    """Votes and acknowledgements of strangers, which may connect, make no majority."""
    node = ScriptedNode()
    for stranger in ("x", "y"):
        node.connect(stranger)
    node.advance(1.5)
    for stranger in ("x", "y"):
        node.receive(stranger, Prevoted(0, True, 0))
    node.step()
    assert node.engine.core.role is Role.FOLLOWER
    node.serve("f")
    outcome = node.append()
    node.step()
    for stranger in ("x", "y"):
        node.acknowledge(stranger, node.log.last_index)
    assert not outcome


def head_behind_a_change() -> tuple[Configuration, list[PeerMessage]]:
    """A configuration, and what its leader sends to a peer when its log begins behind that."""
    leader = ScriptedNode(segment_bytes=4096)
    leader.serve("f")
    add(leader)
    leader.acknowledge("f", leader.log.last_index)
    changed = leader.engine.members.current
    while leader.log.first_index <= changed.index:
        leader.append(b"x" * 500)
        leader.step()
        leader.acknowledge("f", leader.log.last_index)
        job = leader.log.trim(leader.log.last_index)
        if job is not None:
            job.run()
    leader.connect("g")
    leader.receive("g", Ack(leader.engine.core.term, 2, True, False, 1 << 32))
    leader.step()
    sent = [m for m in leader.take("g") if isinstance(m, Introduction | Head)]
    assert [type(m) for m in sent] == [Introduction, Head]
    return changed, sent


def test_a_log_that_begins_anew_has_the_configuration_of_the_leader() -> None:
    """The leader's head lies behind the change, so its entry will never come."""
    changed, sent = head_behind_a_change()
    behind = ScriptedNode(("f", "n"), node_id="g", segment_bytes=4096)
    for message in sent:
        behind.receive("n", message)
    behind.step()
    assert behind.log.first_index > changed.index
    assert behind.engine.members.current == changed
    assert behind.restarted(power_lost=True).engine.members.current == changed


def test_who_takes_no_configuration_takes_no_head_either() -> None:
    """A candidate that takes no configuration takes no head either, and later gets both again."""
    changed, sent = head_behind_a_change()
    behind = ScriptedNode(("f", "n"), node_id="g", segment_bytes=4096)
    while behind.engine.core.role is not Role.CANDIDATE:
        behind.advance(0.01)
        for asked in behind.take("n", Prevote):
            behind.receive("n", Prevoted(asked.term, True, asked.term))
        behind.step()
    before = behind.engine.members.current, behind.log.first_index
    for message in sent:
        behind.receive("n", message)
    behind.step()
    assert behind.engine.core.role is Role.FOLLOWER
    assert (behind.engine.members.current, behind.log.first_index) == before

    for message in sent:
        behind.receive("n", message)
    behind.step()
    assert behind.engine.members.current == changed
    assert behind.log.first_index > changed.index
