"""A large state is given and taken in slices, while the node takes part in its group."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.raft.messages import (
    Ack,
    Append,
    Confirm,
    Confirmed,
    Learned,
    State,
    Wanted,
)
from dledger.raft.replication.base_state import Hold
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import Donor, Recorder, ScriptedNode

SLICES = 5
TABLES = 4


class Large(Recorder):
    """A state machine with four tables, read in a slice each."""

    def __init__(self) -> None:
        super().__init__()
        self.saved_index = 0
        self.encoded = 0

    def capture(self) -> Generator[Hold, None, tuple[int, bytes]]:
        """The tables say how many entries were applied; they are encoded afterwards."""
        index, tables = self.applied_index, list[bytes]()
        for _ in range(TABLES):
            tables.append(b"%d" % self.applied_index)
            yield Hold.APPLYING
        for _ in range(SLICES):
            self.encoded += 1
            yield Hold.NOTHING
        return index, b" ".join(tables)

    def install(self, index: int, payload: Buffer, first_index: int) -> Generator[None, None, None]:
        """Take another's state, in the last of three slices."""
        yield
        yield
        self.applied_index = first_index - 1


def leader() -> ScriptedNode:
    """A leader of f and g that is asked for its state and has read one slice."""
    node = ScriptedNode(machine=Large())
    node.serve("g")
    node.receive("f", Wanted(node.engine.core.term, 0, 0))
    assert node.turn()
    return node


def commit_one_more(node: ScriptedNode) -> int:
    """A further entry that g holds, too; the step that commits it is left to the test."""
    node.append()
    node.turn()
    node.end_sync()
    index = node.log.last_index
    node.receive("g", Ack(node.engine.core.term, index + 1, False, True, 1 << 32))
    return index


def test_nothing_is_applied_between_two_slices_of_a_picture() -> None:
    """Entries that are committed during a picture are applied after it."""
    node = leader()
    before = node.machine.applied_index
    index = commit_one_more(node)
    node.turn()
    assert node.engine.core.commit_index == index
    assert node.machine.applied_index in (before, index)
    node.step()
    assert node.machine.applied_index == index
    (state,) = node.take("f", State)
    assert (state.index, bytes(state.run)) == (before, b" ".join([b"%d" % before] * TABLES))


def test_what_applies_between_two_slices_gives_a_state_that_never_was() -> None:
    """A picture during which entries are applied is of no one state: the test above can fail."""
    with plant("apply under a picture"):
        node = leader()
        before = node.machine.applied_index
        index = commit_one_more(node)
        node.step()
        (state,) = node.take("f", State)
        first, *_, last = bytes(state.run).split()
        assert (state.index, int(first), int(last)) == (before, before, index)


def test_entries_are_applied_while_a_picture_is_encoded() -> None:
    """Entries are applied while a picture is encoded, since its tables are read by then."""
    node = leader()
    index = commit_one_more(node)
    machine = node.machine
    assert isinstance(machine, Large)
    while node.machine.applied_index < index:
        node.turn()
    assert machine.encoded < SLICES
    assert not node.take("f", State)


def test_a_leader_is_heard_and_answers_reads_of_what_it_has_applied_under_a_picture() -> None:
    """A leader sends heartbeats and answers reads while its state is read."""
    node = leader()
    read: list[object] = []
    node.engine.read(read.append)
    node.now += 1.0
    node.turn()
    assert node.engine.state_transfer.is_busy
    assert node.take("g", Append)
    (asked,) = node.take("f", Confirm)
    node.receive("f", Confirmed(node.engine.core.term, asked.number))
    node.turn()
    assert node.engine.state_transfer.is_busy
    assert read == [node.machine.applied_index]


def test_a_picture_of_a_state_that_is_made_again_is_none() -> None:
    """A picture is dropped if the state goes back meanwhile, and asked for again."""
    node = leader()
    node.engine.applying.went_back(node.machine.applied_index)
    node.step()
    assert not node.take("f", State)
    node.receive("f", Wanted(node.engine.core.term, 0, 0))
    node.step()
    assert node.take("f", State)


def test_all_who_ask_meanwhile_get_the_same_picture() -> None:
    """Peers that ask during a picture get the same one."""
    node = leader()
    node.receive("g", Wanted(node.engine.core.term, 0, 0))
    node.step()
    machine = node.machine
    assert isinstance(machine, Large)
    assert machine.encoded == SLICES
    assert node.take("f", State) == node.take("g", State)


@pytest.mark.parametrize("holds", [1, 2])
def test_nothing_is_applied_while_the_machines_owner_holds_it(holds: int) -> None:
    """Nothing is applied while the machine's owner reads its state, until the last is done."""
    node = ScriptedNode(machine=Large())
    node.serve("g")
    before = node.machine.applied_index
    node.engine.applying.holds = holds
    index = commit_one_more(node)
    node.step()
    assert (node.engine.core.commit_index, node.machine.applied_index) == (index, before)
    node.engine.applying.holds = 0
    node.step()
    assert node.machine.applied_index == index


def given(donor: Donor, first: int) -> ScriptedNode:
    """A node that begins anew with entry `first` of f's log, and takes the first slice of f's
    state."""
    node = ScriptedNode(machine=Large())
    node.begin_anew("f", donor, first, 300)
    node.receive("f", State(1, 295, 5, 0, crc32(b"state"), run=b"state"))
    node.take("f")
    node.turn()
    return node


def test_nothing_is_applied_before_the_last_slice_of_a_state_that_is_taken_over() -> None:
    """Nothing is applied before a taken state's last slice; heartbeats are answered meanwhile."""
    donor = Donor()
    donor.add(1, 300)
    node = given(donor, 290)
    node.receive("f", State(1, 295, 5, 0, crc32(b"state"), run=b"state"))
    node.now += 5.0
    node.receive_append("f", 1, donor, 301, 300, commit_index=300)
    assert node.turn()
    assert node.machine.applied_index == 0
    assert node.take("f", Learned)
    assert not node.take("f", Wanted)
    node.step()
    assert node.machine.applied_index == 300
    assert [index for index, _ in node.machine.applied] == [*range(290, 301)]


def test_a_state_is_not_taken_over_if_the_log_has_begun_anew_meanwhile() -> None:
    """A state is not taken over if the log begins anew meanwhile, and another is asked for."""
    donor = Donor()
    donor.add(1, 500)
    node = given(donor, 290)
    node.begin_anew("f", donor, 400, 500)
    assert node.machine.applied_index == 0
    node.now += 5.0
    node.take("f")
    node.step()
    assert node.take("f", Wanted)
    node.receive("f", State(1, 450, 5, 0, crc32(b"state"), run=b"state"))
    node.step()
    assert [index for index, _ in node.machine.applied] == [*range(400, 501)]
