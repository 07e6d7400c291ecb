"""Holes 4 to 9 of the Raft library: snapshots, trimming, durability, long logs.

docs/explanation/raft-holes.md says how these tests work.
"""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from unittest.mock import patch

import pytest
from pysyncobj import SyncObj
from pysyncobj.journal import FileJournal
from pysyncobj.transport import Transport

from dledger.errors import CorruptLog, StorageError
from dledger.log.entry import Kind
from dledger.log.recovery.startup import open_log
from dledger.log.scanning.checkpoint import Checkpoint, encode_checkpoint
from dledger.raft.appends import Appended
from dledger.raft.library.adapter import Core, Node
from dledger.raft.limits import ACK_AGAIN_S
from dledger.raft.messages import Ack, Denied, Prevote, Prevoted, Vote, Voted
from dledger.testing.disk import SimulatedDisk
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import (
    FOLDER,
    SEGMENT_BYTES,
    Donor,
    Recorder,
    ScriptedNode,
    follower_of,
    log_without_head,
)

# The library leaves files open, and the garbage collector says so.
stock_library = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_hole_04_the_commit_index_covers_only_what_a_message_verified() -> None:
    """A heartbeat that verifies entry 1 says that 500 are committed: the node's own tail, which
    nobody has verified, is not applied."""

    def applied_after_a_heartbeat() -> list[int]:
        donor = Donor()
        donor.add(1, 3)
        node = follower_of(donor, 4)
        node.receive_append("g", 2, donor, 2, 1, commit_index=500)
        node.step()
        return [index for index, _ in node.machine.applied]

    assert applied_after_a_heartbeat() == [1]
    with plant("take the commit index unclamped"):
        assert applied_after_a_heartbeat() == [1, 2, 3, 4]


def test_hole_04_a_snapshot_through_the_library_is_refused() -> None:
    """A snapshot that can't be read raises here; the library would acknowledge the whole log."""
    message = {
        "type": "append_entries",
        "term": 1,
        "commit_index": 1,
        "serialized": (b"garbage", True, True),
    }
    donor = Donor()
    donor.add(1, 3)
    node = follower_of(donor, 4)
    with pytest.raises(StorageError, match="snapshot"):
        node.engine.transport._onMessageReceived(Node("f"), message)
    load = SyncObj._SyncObj__loadDumpFile
    node.now += 2 * ACK_AGAIN_S
    with patch.object(Core, "_SyncObj__loadDumpFile", load):
        node.engine.transport._onMessageReceived(Node("f"), message)
        node.step()
    assert node.take("f", Ack)[-1] == Ack(1, 5, False, True, 1)


def test_hole_04_no_frame_can_carry_a_snapshot() -> None:
    """Whatever a peer sends, the library hears of entries, acknowledgements and votes only; and a
    leader whose follower is behind its log's head sends it nothing."""
    heard: list[dict] = []
    donor = Donor()
    donor.add(1, 2)
    node = ScriptedNode()
    with patch.object(Transport, "_onMessageReceived", lambda _, __, m: heard.append(m)):
        node.receive_append("f", 1, donor, 2, 3)
        for message in (
            Ack(0, 1, True, False, 1),
            Vote(0, 1, 0, False),
            Voted(0),
            Denied(0),
            Prevote(0, 1, 0),
            Prevoted(0, True, 0),
        ):
            node.receive("g", message)
        node.step()
    assert {message["type"] for message in heard} <= {
        "append_entries",
        "next_node_idx",
        "request_vote",
        "response_vote",
    }
    assert not any({"serialized", "transmission", "data"} & set(message) for message in heard)
    snapshot = {"type": "append_entries", "term": 1, "commit_index": 1, "serialized": None}
    assert not node.engine.transport.send(Node("f"), snapshot)


def test_hole_05_the_library_makes_no_dumps() -> None:
    """Asked to compact its log, the library does nothing; by itself it would dump, and trim."""

    def compacted() -> None:
        donor = Donor()
        donor.add(1, 20)
        node = follower_of(donor, 21, commit_index=21)
        node.engine.core.forceLogCompaction()
        node.engine.core.doTick(0)
        assert node.log.first_index == 1

    compacted()
    compaction = SyncObj._SyncObj__tryLogCompaction
    with (
        patch.object(Core, "_SyncObj__tryLogCompaction", compaction),
        pytest.raises((StorageError, TypeError)),
    ):
        compacted()


@stock_library
def test_hole_06_the_head_is_never_trimmed_by_rewriting(tmp_path: Path) -> None:
    """The library may neither trim nor clear our log; its own loses the tail if it is killed
    while it trims."""
    donor = Donor()
    donor.add(1, 20)
    node = follower_of(donor, 21)
    journal = node.engine.core._SyncObj__raftLog
    for operation in (lambda: journal.deleteEntriesTo(5), journal.clear):
        with pytest.raises(StorageError, match="refused"):
            operation()
    assert (node.log.first_index, node.log.last_index) == (1, 21)

    stock = FileJournal(str(tmp_path / "journal"))
    for index in range(1, 101):
        stock.add(b"\x01", index, 1)
    with (
        patch.object(FileJournal, "add", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        stock.deleteEntriesTo(50)
    stock._destroy()
    stock = FileJournal(str(tmp_path / "journal"))
    assert len(stock) == 0
    stock._destroy()


def test_hole_07_a_vote_is_durable_before_it_is_sent() -> None:
    """The power goes right after the vote has left: the node that wakes up gives no second one."""

    def votes_in_term_5() -> int:
        node = ScriptedNode()
        node.receive("f", Vote(5, 1, 0, False))
        node.step(sync=False)
        count = len(node.take("f", Voted))
        again = node.restarted(power_lost=True)
        again.receive("g", Vote(5, 1, 0, False))
        again.step(sync=False)
        return count + len(again.take("g", Voted))

    assert votes_in_term_5() == 1
    for bug in ("forget term and vote", "vote again after a restart"):
        with plant(bug):
            assert votes_in_term_5() == 2


def test_hole_07_an_acknowledgement_waits_until_the_entries_are_durable() -> None:
    """Entries that a follower has acknowledged are there after a power loss."""

    def acknowledged_and_left() -> tuple[int, int]:
        donor = Donor()
        donor.add(1, 5)
        node = ScriptedNode()
        node.sync()
        node.receive_append("f", 1, donor, 2, 6)
        node.step(sync=False)
        acknowledged = max((m.next_index - 1 for m in node.take("f", Ack)), default=0)
        return acknowledged, node.restarted(power_lost=True).log.last_index

    assert acknowledged_and_left() == (0, 1)
    with plant("acknowledge before the sync"):
        assert acknowledged_and_left() == (6, 1)


def test_hole_07_a_leader_counts_its_own_copy_only_when_it_is_durable() -> None:
    """A leader's copy that is not durable does not count, though a follower's sync is quicker."""

    def answered_before_the_leaders_own_sync() -> bool:
        node = ScriptedNode()
        node.serve("f")
        outcome = node.append()
        node.step(sync=False)
        node.receive("f", Ack(node.engine.core.term, 4, False, True, 9))
        node.step(sync=False)
        early = bool(outcome)
        node.sync()
        assert isinstance(outcome[0], Appended)
        return early

    assert not answered_before_the_leaders_own_sync()
    with plant("count the leader's copy before its sync"):
        assert answered_before_the_leaders_own_sync()


@stock_library
def test_hole_07_an_unreadable_vote_stops_the_node(tmp_path: Path) -> None:
    """Term and vote that can't be read, or that are older than the log, are an error; the library
    takes them for term 0 and votes again."""
    node = ScriptedNode()
    node.receive("f", Vote(5, 1, 0, False))
    node.step()
    node.disk.flip_bit(FOLDER / "term", 512 + 20, 3)
    node.disk.flip_bit(FOLDER / "term", 20, 3)
    with pytest.raises(CorruptLog, match="vote"):
        node.restarted(power_lost=False)

    path = tmp_path / "journal"
    stock = FileJournal(str(path))
    stock.setCurrentTerm(5, "f")
    stock._destroy()
    path.with_suffix(".meta").write_bytes(b"garbage")
    stock = FileJournal(str(path))
    assert (stock.getCurrentTerm(), stock.getVotedForNodeId()) == (0, None)
    stock._destroy()


def test_hole_07_a_vote_file_that_is_older_than_the_log_stops_the_node() -> None:
    """A lost or restored `term` file would let the node vote again in a term that its log has
    seen. The library takes the log's term and forgets the vote."""

    def started_without_its_vote() -> ScriptedNode:
        node = ScriptedNode()
        node.elect("f")
        node.disk.remove(FOLDER / "term")
        return node.restarted(power_lost=False)

    with pytest.raises(CorruptLog, match="term"):
        started_without_its_vote()
    with plant("accept a vote file older than the log"):
        assert started_without_its_vote().engine.core.term == 1


def test_hole_08_a_commit_index_beyond_the_logs_end_commits_nothing_new() -> None:
    """The state machine's snapshot goes up to 29, a power loss left 10 entries: what is appended
    from index 11 on still needs a majority."""

    def committed_without_acknowledgements() -> bool:
        donor = Donor()
        donor.add(1, 9)
        disk = follower_of(donor, 10).disk
        node = ScriptedNode(disk=disk, machine=Recorder(applied_index=29))
        node.elect("f")
        return node.engine.core.commit_index > 10

    assert not committed_without_acknowledgements()
    with (
        plant("trust a commit index beyond the log"),
        pytest.raises(StorageError, match="index 30 is outside of the log"),
    ):
        committed_without_acknowledgements()


def test_hole_08_a_log_that_ends_before_what_was_committed_stops_the_node() -> None:
    """The checkpoint's commit index was durable when it was written: a log that ends before it
    has lost entries that others rely on."""
    donor = Donor()
    donor.add(1, 9)
    node = follower_of(donor, 10)
    node.disk.replace(FOLDER / "checkpoint", encode_checkpoint(Checkpoint(commit_index=29)))
    with pytest.raises(CorruptLog, match="ends at index 10, although it was durable up to 29"):
        node.restarted(power_lost=False)


def test_hole_09_a_log_goes_on_past_4_gib() -> None:
    """Entries on both sides of position 2 ** 32 are read back after a restart; the library's
    journal can't write down an offset above it."""
    boundary, disk = 1 << 32, SimulatedDisk()
    log = log_without_head(1001, 200, bytes(range(250)) * 4, disk, boundary - 2 * SEGMENT_BYTES)
    assert log.reader.entry(1001).position < boundary < log.reader.entry(1200).position
    log.close()
    again = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
    bodies = {bytes(again.reader.entry(index).body) for index in range(1001, 1201)}
    assert (again.last_index, bodies) == (1200, {bytes(range(250)) * 4})


@stock_library
def test_hole_09_the_librarys_journal_ends_at_4_gib(tmp_path: Path) -> None:
    """The library's journal is not used: past 4 GiB every append to its file fails."""
    stock = FileJournal(str(tmp_path / "journal"))
    stock._FileJournal__currentOffset = (1 << 32) - 10
    with (
        patch("pysyncobj.journal.ResizableFile.write", lambda *_: None),
        pytest.raises(struct.error),
    ):
        stock.add(bytes(50), 1, 1)
    stock._destroy()


def test_hole_09_memory_does_not_grow_with_what_is_read() -> None:
    """Walking over a 4 MiB log's indices and terms, and slicing it, keeps none in memory."""

    def peak_of_a_walk(*, copying: bool) -> int:
        journal = node.engine.core._SyncObj__raftLog
        tracemalloc.start()
        tail = journal[0:]
        entries = [
            (bytes(node.log.reader.entry(index).body) if copying else command, term)
            for command, index, term in (tail[at] for at in range(0, len(tail), 8))
        ]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(entries) == 64
        return peak

    node = ScriptedNode(segment_bytes=1 << 20)
    for index in range(2, 513):
        node.log.append(index, 1, Kind.MESSAGES, bytes(8192))
    node.log.write_out()
    node.log.reader.header(1)
    assert peak_of_a_walk(copying=False) < 64 << 10
    assert peak_of_a_walk(copying=True) > 256 << 10
