"""Repair of a damaged log: the node is silent until the leader has sent what it lacks."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace

from dledger.errors import CorruptLog, FrameError, Rot
from dledger.ledger.opening import _Repairing
from dledger.log.entry import HEADER_BYTES
from dledger.log.hard_state import HardStateFile
from dledger.log.recovery.repair import DamagedLog, LogRepair
from dledger.log.recovery.startup import open_log
from dledger.log.segments.segment import Segment, segment_path
from dledger.log.store import SegmentedLog
from dledger.raft.limits import BATCH_BYTES, HEARTBEAT_S
from dledger.raft.messages import Ack, Append, Confirmed, Given, Lacking
from dledger.raft.replication.repair import Asking
from dledger.testing.disk import SECTOR_BYTES, Crashed, SimulatedDisk
from dledger.testing.log_store import copy_to
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import FOLDER, TERM_AT, Donor, ScriptedNode, Wire

SEGMENT_BYTES = 4096
BODY = b"x" * 500


class Replica:
    """A stopped replica that holds a donor's entries 1 to `last`, all durable and marked so."""

    def __init__(self, donor: Donor, last: int) -> None:
        self.donor = donor
        self.disk = SimulatedDisk()
        log = open_log(FOLDER, SEGMENT_BYTES, self.disk)[0]
        copy_to(log, donor.log, last)
        log.sync()
        segments = log._contents.segments
        for before, segment in pairwise(segments):
            before.mark(segment.first_index)
            before.sync()
        segments[-1].mark(last)
        segments[-1].sync()
        log.close()
        self.disk.remove(FOLDER / "checkpoint")
        self.disk.sync_folder(FOLDER)

    def damage(self, index: int) -> None:
        """Flip a bit in the middle of an entry."""
        header = self.donor.log.reader.header(index)
        base = header.position - header.position % SEGMENT_BYTES
        offset = header.position - base + header.size // 2
        self.disk.flip_bit(segment_path(FOLDER, base), offset, 3)

    def lose(self, position: int) -> None:
        """Make the disk unable to read the sector at this position of the log."""
        base = position - position % SEGMENT_BYTES
        self.disk.lose(segment_path(FOLDER, base), position - base)

    def shorten(self, end_position: int) -> None:
        """Cut the file at this position of the log."""
        base = end_position - end_position % SEGMENT_BYTES
        self.disk.shorten(segment_path(FOLDER, base), end_position - base)

    def stored(self) -> dict[str, bytes]:
        """Bytes of each file that a power loss would leave."""
        disk = self.disk
        return {name: disk.durable_bytes(FOLDER / name, 0, 1 << 20) for name in disk.names(FOLDER)}

    def start(self, commit: int) -> SegmentedLog:
        """Start and be repaired by a leader with the donor's log, as often as it takes."""
        committed_end: int | None = None
        for _ in range(20):
            try:
                return self.open(committed_end)
            except DamagedLog as damage:
                repair = LogRepair(FOLDER, SEGMENT_BYTES, self.disk, damage)
                asking = Asking(repair, self.hard_state)
                committed_end = repaired(asking, lambda at: given(self.donor.log, at, commit))
        raise AssertionError("still damaged")

    def open(self, committed_end: int | None = None) -> SegmentedLog:
        return open_log(FOLDER, SEGMENT_BYTES, self.disk, committed_end)[0]

    def ask(self) -> Asking:
        """Start, and find the damage."""
        with pytest.raises(DamagedLog) as raised:
            self.open()
        repair = LogRepair(FOLDER, SEGMENT_BYTES, self.disk, raised.value)
        return Asking(repair, self.hard_state)

    @property
    def hard_state(self) -> HardStateFile:
        return HardStateFile(FOLDER / "term", self.disk)


def donor(*terms: int) -> Donor:
    """A log of one entry of each term behind the first no-op, in segments of the test's size."""
    made = Donor()
    made.log = open_log(FOLDER, SEGMENT_BYTES, SimulatedDisk())[0]
    made.log.append(1, 0, 1, b"")
    for term in terms:
        made.add(term, body=BODY)
    return made


def given(log: SegmentedLog, first: int, commit: int, term: int = 9) -> Given:
    """A leader's answer to a node that lacks the entry `first`."""
    if first > commit:
        return Given(term, first, 0, commit, 0)
    last = min(log.reader.batch_end(first, 1 << 20), commit)
    place = first, log.reader.chain_crc_before(first)
    return Given(term, *place, commit, last - first + 1, log.reader.run_of(first, last))


def one(log: SegmentedLog, at: int, commit: int) -> Given:
    """A leader's answer with one committed entry."""
    return Given(9, at, log.reader.chain_crc_before(at), commit, 1, log.reader.run_of(at, at))


def repaired(asking: Asking, answer: Callable[[int], Given]) -> int:
    """Ask and take until the repair is over; the commit index that it was told."""
    for _ in range(100):
        outcome = asking.take(answer(asking.wanted_index))
        if isinstance(outcome, int):
            return outcome
    raise AssertionError("the repair does not end")


def test_a_repair_ends_though_messages_come_faster_than_it_gets_them() -> None:
    """A repair ends at the commit index of its beginning; a follower gets the rest as usual."""

    def ends() -> tuple[int, int]:
        made, told = donor(*[1] * 30), list[int]()
        replica = Replica(made, 20)
        for index in range(9, 21):
            replica.damage(index)

        def answer(at: int) -> Given:
            told.append(made.add(1, 2, BODY))
            return one(made.log, at, commit=told[-1])

        committed_end = repaired(replica.ask(), answer)
        return replica.open(committed_end).last_index, told[0]

    last_index, first_told = ends()
    assert last_index == first_told
    with plant("chase the leader's end"), pytest.raises(AssertionError, match="does not end"):
        ends()


async def test_an_answer_that_comes_again_is_followed_by_no_question() -> None:
    """An answer that is repeated causes no new question, or questions would multiply."""
    made = donor(*[1] * 30)
    replica = Replica(made, 20)
    for index in range(4, 10):
        replica.damage(index)
    node, link = _Repairing("n", replica.ask()), Wire()
    node.link_up("f", link)

    for _ in range(3):
        node.receive("f", link, one(made.log, 4, commit=20))

    assert link.take() == [Lacking(0, 4), Lacking(0, 5)]
    assert not node.over.is_set()


def test_a_leader_answers_nothing_while_an_answer_waits_to_be_sent() -> None:
    """A leader gives one answer at a time to a node that asks again over a slow link."""

    def answers(queued_bytes: int) -> int:
        node = ScriptedNode()
        node.serve("f")
        node.append(b"committed")
        node.step()
        node.acknowledge("f", node.log.last_index)
        node.wires["g"].queued_bytes = queued_bytes
        node.receive("g", Lacking(0, 2))
        node.step()
        node.receive("f", Confirmed(node.engine.core.term, 1))
        node.step()
        return len(node.take("g", Given))

    assert [answers(BATCH_BYTES - 1), answers(BATCH_BYTES)] == [1, 0]


def test_a_leader_gives_the_same_once_in_a_step_and_the_next_as_well() -> None:
    """A question that came twice must not keep the next one without its answer; nor may many
    questions fill the link."""
    node = ScriptedNode()
    node.serve("f")
    for _ in range(3):
        node.append(b"committed")
    node.step()
    node.acknowledge("f", node.log.last_index)
    for index in (2, 2, 3, 4):
        node.receive("g", Lacking(0, index))
    node.step()
    node.receive("f", Confirmed(node.engine.core.term, 1))
    node.step()
    assert [given.first_index for given in node.take("g", Given)] == [2, 3]


@pytest.mark.parametrize("index", [2, 9, 30])
def test_one_damaged_entry_is_written_over_and_the_rest_is_kept(index: int) -> None:
    """Entries behind a damaged one are judged by their own checksums, committed or not."""
    source = donor(*[3] * 40)
    replica = Replica(source, 41)
    replica.damage(index)
    asking = replica.ask()
    assert asking.wanted_index == index
    commit_index = repaired(asking, lambda first: given(source.log, first, index))
    log = replica.open(commit_index)
    assert log.last_index == 41
    assert log.chain_crc == source.log.chain_crc
    log.close()
    assert replica.open().last_index == 41


def test_several_damaged_ranges_are_repaired_one_after_the_other() -> None:
    """Several damaged ranges are repaired in turn, each found by the next start."""
    source = donor(*[3] * 40)
    replica = Replica(source, 41)
    for index in (3, 4, 5, 20, 41):
        replica.damage(index)
    replica.disk.remove(segment_path(FOLDER, SEGMENT_BYTES))
    for _ in range(10):
        try:
            log = replica.open(41)
        except DamagedLog:
            repaired(replica.ask(), lambda first: given(source.log, first, 41))
            continue
        assert log.chain_crc == source.log.chain_crc
        return
    raise AssertionError("still damaged")


def test_a_repair_that_was_interrupted_anywhere_begins_again() -> None:
    """A repair that ends anywhere begins again, at bytes that it did or did not write."""
    source = donor(*[3] * 12)
    for operations in range(7):
        replica = Replica(source, 13)
        for index in range(4, 10):
            replica.damage(index)
        asking = replica.ask()
        replica.disk.crash_in = operations
        with pytest.raises(Crashed):
            repaired(asking, lambda first: given(source.log, first, 13))
        replica.disk.lose_power(random.Random(operations))
        while True:
            try:
                log = replica.open(13)
            except DamagedLog:
                repaired(replica.ask(), lambda first: given(source.log, first, 13))
            else:
                break
        assert log.chain_crc == source.log.chain_crc


def assert_repaired(replica: Replica, commit: int) -> None:
    """Assert that the log has what is committed and no wrong entry, and can be opened again."""
    log = replica.start(commit)
    assert commit <= log.last_index <= 41
    assert log.chain_crc == replica.donor.log.reader.header(log.last_index).chain_crc
    log.close()
    assert replica.open().last_index == log.last_index


@pytest.mark.parametrize("commit", [3, 20, 41])
def test_whatever_the_disk_cant_read_is_repaired(commit: int) -> None:
    """A sector that can't be read is repaired, in each segment, and no mark says too much."""
    source = donor(*[3] * 40)
    end = -(-source.log.end_position // SEGMENT_BYTES) * SEGMENT_BYTES
    for position in range(0, end, SECTOR_BYTES):
        replica = Replica(source, 41)
        replica.lose(position)
        assert_repaired(replica, commit)


@pytest.mark.parametrize("commit", [3, 20, 41])
def test_a_file_that_ends_too_early_is_repaired(commit: int) -> None:
    """A file that ends too early, in an entry, in the mark or at once, is repaired."""
    source = donor(*[3] * 40)
    end = -(-source.log.end_position // SEGMENT_BYTES) * SEGMENT_BYTES
    for position in (*range(0, end, 331), *range(SEGMENT_BYTES - 1, end, SEGMENT_BYTES)):
        replica = Replica(source, 41)
        replica.shorten(position)
        assert_repaired(replica, commit)


def test_a_group_of_sectors_is_lost_and_the_node_may_die_while_that_is_repaired() -> None:
    """A group of lost sectors is repaired over crashes, in marks and beyond the commit, too."""
    source = donor(*[3] * 40)
    for seed in range(150):
        rng = random.Random(seed)
        print("seed", seed)
        held, commit = rng.randint(20, 41), rng.randint(1, 41)
        replica = Replica(source, held)
        sizes = [replica.disk.size(FOLDER / name) or 0 for name in replica.disk.names(FOLDER)]
        end = sum(size for size in sizes if size == SEGMENT_BYTES)
        for _ in range(rng.randint(1, 6)):
            replica.lose(rng.randrange(end))
        if rng.random() < 0.5:
            replica.shorten(rng.randrange(end))
        while True:
            replica.disk.crash_in = rng.randrange(1, 80)
            try:
                log = replica.start(commit)
                break
            except Crashed:
                replica.disk.lose_power(rng)
        assert log.last_index >= min(held, commit)
        assert log.chain_crc == source.log.reader.header(log.last_index).chain_crc
        replica.disk.crash_in = None
        log.close()
        assert replica.open().last_index == log.last_index


def test_newest_files_that_are_gone_are_repaired_though_the_node_dies_meanwhile() -> None:
    """A file that is made anew claims that all was durable, until the repair is over."""
    source = donor(*[3] * 40)

    def last_index_after_the_loss(seed: int) -> int:
        rng = random.Random(seed)
        replica = Replica(source, 41)
        for name in replica.disk.names(FOLDER)[-rng.randint(1, 4) :]:
            replica.disk.remove(FOLDER / name)
        replica.disk.sync_folder(FOLDER)
        while True:
            replica.disk.crash_in = rng.randrange(1, 80)
            try:
                return replica.start(41).last_index
            except Crashed:
                replica.disk.lose_power(rng)

    assert {last_index_after_the_loss(seed) for seed in range(100)} == {41}
    with plant("make a lost file without a mark"):
        assert min(last_index_after_the_loss(seed) for seed in range(100)) < 41


@pytest.mark.parametrize("shortened", [False, True])
def test_what_was_acknowledged_beyond_the_watermark_is_demanded_after_a_loss(
    shortened: bool,
) -> None:
    """Entry 8 is demanded after a loss, as this node may have acknowledged it beyond its mark."""
    source = donor(*[3] * 10)
    replica = Replica(source, 11)
    for base in (0, SEGMENT_BYTES):
        segment = Segment(replica.disk, segment_path(FOLDER, base), 0, SEGMENT_BYTES)
        segment.mark(5)
        segment.sync()
    place = source.log.reader.header(8).position + HEADER_BYTES
    (replica.shorten if shortened else replica.lose)(place)
    assert replica.start(11).last_index == 11


def test_a_start_changes_nothing_that_it_cant_read() -> None:
    """The disk may be able to read it the next time; a node without peers has nobody to ask."""
    source = donor(*[3] * 10)
    replica = Replica(source, 11)
    replica.lose(600)
    before = replica.stored()
    with pytest.raises(DamagedLog, match=r"can't read .* Nothing was cut"):
        replica.open()
    assert replica.stored() == before


def test_what_cant_be_read_is_dropped_if_all_of_it_is_behind_what_is_committed() -> None:
    """A leader that was confirmed after the question says so: nobody relies on it."""
    source = donor(*[3] * 20)
    replica = Replica(source, 21)
    replica.damage(3)
    last_segment = source.log.end_position // SEGMENT_BYTES * SEGMENT_BYTES
    replica.lose(last_segment + 100)
    log = replica.start(4)
    assert 4 <= log.last_index < 21
    assert log.end_position <= last_segment


def test_damaged_entries_that_nobody_has_committed_are_cut() -> None:
    """A leader that was confirmed after the question does not know them: nobody ever will."""
    source = donor(*[3] * 10)
    replica = Replica(source, 11)
    replica.damage(9)
    commit_index = repaired(replica.ask(), lambda first: given(source.log, first, 6))
    log = replica.open(commit_index)
    assert (commit_index, log.last_index) == (6, 8)
    log.close()
    assert replica.open().last_index == 8


def test_a_conflicting_log_is_repaired_from_where_it_was_committed() -> None:
    """Entries 6 and later were never committed here; the leader has others in their places."""
    common = donor(3, 3, 3, 3)
    source, ours = donor(3, 3, 3, 3), donor(3, 3, 3, 3)
    assert common.log.chain_crc == source.log.chain_crc
    ours.add(4, 20, BODY)
    source.add(5, 20, BODY)
    replica = Replica(ours, 25)
    replica.damage(15)
    log = replica.open
    asking = replica.ask()
    commit_index = repaired(asking, lambda first: given(source.log, first, 25))
    assert log(commit_index).chain_crc == source.log.chain_crc
    assert replica.hard_state.state.term == 9


def test_the_leaders_term_is_durable_before_its_entries_are_written() -> None:
    """The leader's term is durable before its entries, or a start would not know their term."""
    source = donor(3, 3, 7)
    replica = Replica(source, 4)
    replica.damage(3)
    repaired(replica.ask(), lambda first: given(source.log, first, 4, term=8))
    assert replica.hard_state.state.term == 8


def test_bytes_that_do_not_continue_the_log_are_not_written() -> None:
    """Bytes of a damaged run, of another index or chain, are not written: the link is at fault."""
    source = donor(*[3] * 10)
    replica = Replica(source, 11)
    replica.damage(5)
    good = given(source.log, 5, 11)
    bad_body = bytearray(good.run)
    bad_body[100] ^= 1
    bad_term = bytearray(good.run)
    bad_term[23] ^= 1
    for run in (bad_body, bad_term):
        asking = replica.ask()
        message = replace(good, run=memoryview(bytes(run)))
        with pytest.raises(FrameError):
            asking.take(message)
        assert asking.wanted_index == 5
    assert isinstance(replica.ask().take(good), int)


def test_entries_that_are_gone_at_the_leader_need_the_operator() -> None:
    """The leader's log begins behind the damage: only an empty folder copies a newer state."""
    source = donor(*[3] * 10)
    replica = Replica(source, 11)
    replica.damage(5)
    answer = Given(9, 8, 0, 11, 0)
    with pytest.raises(CorruptLog, match="gone at the leader"):
        replica.ask().take(answer)


def test_a_leader_gives_what_is_committed_when_a_majority_has_confirmed_it() -> None:
    """A leader gives committed entries alone, after a majority has confirmed its lead."""
    node = ScriptedNode()
    node.serve("f")
    node.append(b"committed")
    node.step()
    node.acknowledge("f", node.log.last_index)
    node.append(b"not yet")
    node.step()
    node.receive("g", Lacking(0, 2))
    node.step()
    assert not node.take("g", Given)
    node.receive("f", Confirmed(node.engine.core.term, 1))
    node.step()
    (answer,) = node.take("g", Given)
    assert answer.first_index == 2
    assert (answer.commit_index, answer.count) == (3, 2)


def test_a_follower_gives_nothing() -> None:
    """A follower gives nothing, as it does not know what is committed."""
    node = ScriptedNode()
    node.receive("g", Lacking(0, 1))
    node.step()
    assert not node.take("g")


# -- what a node that runs comes upon ----------------------------------------------------------


def rotten_at(node: ScriptedNode, index: int, at: int) -> None:
    """A bit flips on a node's disk, in an entry of an old segment."""
    position = node.log.reader.header(index).position + at
    base = position - position % node.log.segment_bytes
    assert base < node.log.end_position - node.log.segment_bytes
    node.disk.flip_bit(segment_path(FOLDER, base), position - base, 1)


@pytest.mark.parametrize("at", [TERM_AT, HEADER_BYTES + 9], ids=["header", "body"])
@pytest.mark.parametrize("rotten", [7, 8])
def test_a_leader_sends_nothing_that_has_rotted(rotten: int, at: int) -> None:
    """A leader that reads a rotten entry, or the term of one, sends nothing and raises Rot."""
    node = ScriptedNode(segment_bytes=SEGMENT_BYTES)
    term = node.serve("g")
    for _ in range(40):
        node.append(BODY)
    node.step()
    node.acknowledge("g", node.log.last_index)
    node.take("f")
    rotten_at(node, rotten, at)
    node.receive("f", Ack(term, 8, True, False, 1 << 32))
    with pytest.raises(Rot, match=f"entry {rotten} "):
        node.step()
    assert not node.take("f", Append)
    with plant("send what has rotted"):
        node.advance(HEARTBEAT_S + 0.1)
        assert node.take("f", Append)


def test_an_entry_whose_term_flips_on_the_way_cuts_nothing() -> None:
    """A run with a flipped term looks like another leader's, and must cut no entry."""
    node, donor = ScriptedNode(), Donor()
    donor.add(3, 8)
    node.receive_append("f", 3, donor, 2, 9)
    node.step()
    run = bytearray(donor.run(5, 9))
    run[TERM_AT] ^= 2
    node.receive("f", Append(3, 1, 4, 3, 2, 5, run=bytes(run)))
    with pytest.raises(CorruptLog, match="Nothing was cut"):
        node.step()
    assert node.log.last_index == 9


def test_an_own_entry_that_has_rotted_is_not_taken_for_another_leaders() -> None:
    """An own rotten entry is not cut as another leader's, since it was acknowledged."""
    disk, donor = SimulatedDisk(), Donor()
    last = donor.add(3, 200, BODY)
    second = donor.log.reader.segments()[1].first_index
    node = ScriptedNode(disk=disk)
    node.receive_append("f", 3, donor, 2, second - 1)
    node.receive_append("f", 3, donor, second, last)
    node.step()
    node.sync()
    node.log.close()
    node = ScriptedNode(disk=disk)
    rotten_at(node, 9, TERM_AT)
    node.receive_append("f", 3, donor, 8, 12)
    with pytest.raises(Rot, match="entry 9 "):
        node.step()
    assert node.log.last_index == last
