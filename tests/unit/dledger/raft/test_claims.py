"""Claims of peers: a term counts if elections explain it, a leader if its term has no other."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.limits import NUMBER_MAX, TERM_JUMP_MAX
from dledger.log.entry import HEADER_BYTES, make_header
from dledger.raft.messages import (
    Denied,
    Head,
    Ineligible,
    Introduction,
    PeerMessage,
    Prevote,
    Resigned,
    State,
    TakeOver,
    Vote,
    Wanted,
)
from dledger.raft.replication.base_state import Hold
from dledger.raft.roles import Role
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import Donor, ScriptedNode, follower_of

FIRST_FORGED = 50


def follower(last_index: int = 2) -> tuple[ScriptedNode, Donor]:
    """A node that follows f in term 1 and holds f's entries, all of them committed."""
    donor = Donor()
    donor.add(1, last_index - 1)
    return follower_of(donor, last_index, commit_index=last_index), donor


def forged_head(node: ScriptedNode, peer: str, term: int, first: int, commit: int) -> None:
    """A peer says that its log begins with an entry of its own making."""
    header, raw = make_header(
        7, index=first, term=1, position=node.log.segment_bytes, kind=16, body=b"forged"
    )
    run = raw + b"forged" + bytes(-header.size % 8)
    fields = commit, first, header.position, 7, 9
    node.receive(peer, Head(term, *fields, run=run))
    node.step()


@pytest.mark.parametrize("said", [Denied, Ineligible, Resigned, TakeOver])
def test_a_term_that_no_elections_explain_closes_the_link(said: type[PeerMessage]) -> None:
    """A term up to 2^32 above ours is believed; a higher one closes the link."""
    node, _ = follower()
    node.receive("g", said(1 + TERM_JUMP_MAX + 1))
    node.step()
    assert "so many elections" in (node.wires["g"].closed_because or "")
    assert node.engine.core.term == 1


def test_the_furthest_term_that_elections_explain_is_taken() -> None:
    """The furthest term that elections explain is believed, and with the bug any term."""

    def term_after(told: int) -> int:
        node, _ = follower()
        node.receive("g", Denied(told))
        node.step()
        return node.engine.core.term

    assert term_after(1 + TERM_JUMP_MAX) == 1 + TERM_JUMP_MAX
    assert term_after(NUMBER_MAX) == 1
    with plant("believe every claim"):
        assert term_after(NUMBER_MAX) == NUMBER_MAX


def test_a_node_that_was_in_no_term_takes_what_its_group_has() -> None:
    """A replica with an emptied folder can't judge, and a group may be in whatever term."""
    node, donor = ScriptedNode(eligible=False), Donor()
    donor.add(1)
    node.receive_append("f", 1 << 50, donor, 2, 2)
    node.step()
    assert (node.engine.core.term, node.log.last_index) == (1 << 50, 2)


def test_only_one_node_leads_a_term() -> None:
    """A second leader of a term is refused: g speaks as the leader, in f's term."""

    def last_index_after() -> int:
        node, donor = follower()
        donor.add(1)
        node.receive_append("g", 1, donor, 3, 3)
        node.step()
        assert node.wires["f"].closed_because is None
        return node.log.last_index

    assert last_index_after() == 2
    with plant("believe every claim"):
        assert last_index_after() == 3


def test_a_leader_hears_no_other_leader_of_its_term() -> None:
    """A leader ignores an append of another leader of its term, and leads on."""

    def role_after() -> Role:
        node, donor = ScriptedNode(), Donor()
        term = node.serve("f")
        node.receive_append("g", term, donor, 2, 1)
        node.step()
        return node.engine.core.role

    assert role_after() is Role.LEADER
    with plant("believe every claim"):
        assert role_after() is Role.FOLLOWER


def test_a_head_of_who_does_not_lead_the_term_drops_nothing() -> None:
    """A head from a node that does not lead the term drops nothing."""

    def last_index_after() -> int:
        node, _ = follower(20)
        forged_head(node, "g", 1, FIRST_FORGED, FIRST_FORGED)
        return node.log.last_index

    assert last_index_after() == 20
    with plant("believe every claim"):
        assert last_index_after() == FIRST_FORGED


@pytest.mark.parametrize(
    ("first", "commit"), [(10, 10), (FIRST_FORGED, FIRST_FORGED - 1), (20, 20)]
)
def test_a_head_that_takes_back_what_is_committed_is_refused_of_anybody(
    first: int, commit: int
) -> None:
    """A head below our commit index is refused from any peer, of a later term, too."""
    for peer, term in (("f", 1), ("g", 2)):
        node, _ = follower(20)
        forged_head(node, peer, term, first, commit)
        assert "HEAD" in (node.wires[peer].closed_because or "")
        assert node.log.last_index == 20


def test_a_head_whose_entry_does_not_check_drops_nothing() -> None:
    """A head whose entry has a wrong chain, position or size closes the link alone."""
    good, raw = make_header(
        7, index=FIRST_FORGED, term=1, position=1 << 16, kind=16, body=b"12345678"
    )
    run = raw + b"12345678"
    huge = NUMBER_MAX - 7
    for fields, sent in (
        ((FIRST_FORGED, FIRST_FORGED, 1 << 16, 8, 9), run),
        ((FIRST_FORGED, FIRST_FORGED, 1 << 17, 7, 9), run),
        ((FIRST_FORGED, FIRST_FORGED, huge, 7, 9), run),
        ((FIRST_FORGED, FIRST_FORGED + 1, 1 << 16, 7, 9), run),
        ((FIRST_FORGED, FIRST_FORGED, 1 << 16, 7, 9), run[:-8]),
        ((FIRST_FORGED, FIRST_FORGED, 1 << 16, 7, 9), run[:HEADER_BYTES]),
        ((FIRST_FORGED, FIRST_FORGED, 1 << 16, 7, 9), b""),
    ):
        node, _ = follower(20)
        node.receive("f", Head(1, *fields, run=sent))
        node.step()
        assert node.wires["f"].closed_because is not None, fields
        assert node.log.last_index == 20
    assert good.index == FIRST_FORGED


@pytest.mark.parametrize("said", [Resigned, TakeOver])
def test_only_the_leader_of_the_term_ends_or_hands_over_its_leadership(
    said: type[PeerMessage],
) -> None:
    """TakeOver and Resigned count from the term's leader alone: not from g, nor of another term."""

    def asks(peer: str, term: int) -> bool:
        node, _ = follower()
        node.receive(peer, said(term))
        node.step()
        node.advance(0.1)
        heard = node.take("f") + node.take("g")
        return any(isinstance(message, Prevote | Vote) for message in heard)

    assert [asks("g", 1), asks("f", 0), asks("f", 2), asks("f", 1)] == [False, False, False, True]


@pytest.mark.parametrize(
    "body",
    [b"\x81\xa1\xf0\x94\xa1h\x01\xc3\xa0", b"\x81\xa2n3\x94\xa1\xff\x01\xc3\xa0", b"\xc1", b""],
)
def test_a_configuration_that_is_no_text_closes_the_link(body: bytes) -> None:
    """A configuration whose ids or hosts are not UTF-8 closes the link."""
    node, _ = follower()
    node.receive("g", Introduction(1, 9, 1, run=body))
    node.step()
    assert "a configuration can't be read" in (node.wires["g"].closed_because or "")


class Portable:
    """A state machine whose state can come from elsewhere."""

    def __init__(self) -> None:
        self.applied_index = self.saved_index = 0
        self.installed: list[bytes] = []

    def apply(self, entry: object) -> object:
        """Take an entry and return nothing."""
        return None

    def leading(self, term: int) -> None:
        """Do nothing as a new leader."""

    def following(self, leader: str | None, term: int) -> None:
        """Do nothing as a follower."""

    def capture(self) -> Generator[Hold, None, tuple[int, bytes]]:
        """A small state, after one step."""
        yield Hold.APPLYING
        return self.applied_index, b"state"

    def install(self, index: int, payload: Buffer, first_index: int) -> Generator[None, None, None]:
        yield
        self.installed.append(payload)
        self.applied_index = first_index - 1


def test_a_state_is_taken_from_the_leader_that_was_asked_for_it_only() -> None:
    """A state is taken from the leader that was asked, in its term, and from no other."""
    machine, donor = Portable(), Donor()
    donor.add(1, 300)
    node = ScriptedNode(machine=machine)  # type: ignore[arg-type]
    header, before = donor.log.reader.header(100), donor.log.reader.header(99)
    fields = 300, 100, header.position, before.chain_crc, 7
    node.receive("f", Head(1, *fields, run=donor.run(100, 100)))
    node.step()
    assert node.take("f", Wanted)
    for peer, term, state in (("g", 1, b"forged"), ("f", 0, b"forged"), ("f", 1, b"genuine")):
        told = 150, len(state), 0, crc32(state)
        node.receive(peer, State(term, *told, run=state))
        node.step()
    assert machine.installed == [b"genuine"]
