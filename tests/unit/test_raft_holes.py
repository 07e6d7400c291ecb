"""The holes of PySyncObj 0.3.17, one test each: closed with the fix, open without it.

The numbers are those of docs/raft-holes.md. A scenario is a function that returns what can be
seen from outside; the test runs it with the fix in place and again with the fix taken out. Where
the fix can't be taken out (the library's part is gone altogether), the stock library is shown to
misbehave instead. Everything runs on virtual time, with peers played by hand.
"""

from __future__ import annotations

import pickle
import socket
import struct
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
import trio
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import FileJournal, MemoryJournal
from pysyncobj.transport import Transport

from dledger import limits
from dledger.errors import (
    CorruptLog,
    FrameError,
    NotLeader,
    OutcomeUnknown,
    StorageError,
    TooLarge,
)
from dledger.log.checkpoint import Checkpoint, encode_checkpoint
from dledger.log.entry import HEADER_BYTES, Entry, Kind, make_header
from dledger.log.hard_state import HardState, HardStateFile
from dledger.log.head import LogHead, encode_head
from dledger.log.startup import open_log
from dledger.log.store import SegmentedLog
from dledger.raft import engine as engine_module
from dledger.raft import transport as transport_module
from dledger.raft.engine import Appended, RaftEngine
from dledger.raft.library import Core, Node, Role, monotonic, use_clock
from dledger.raft.links import PeerNetwork
from dledger.raft.messages import PREFIX, PeerKind, PeerMessage, decode_message, encode_message
from dledger.raft.transport import PeerTransport
from dledger.testing.disk import SimulatedDisk
from dledger.testing.planted import plant
from dledger.testing.scripted import FOLDER, Donor, Recorder, ScriptedNode, Wire, exchange

SEGMENT_BYTES = 1 << 14

# The library leaves files open, and the garbage collector says so.
stock_library = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def real_clock_afterwards() -> Iterator[None]:
    """The library's clock is a module global: give it back."""
    yield
    use_clock(monotonic)


def follower(
    donor: Donor, last_index: int, *, commit_index: int = 1, term: int = 1
) -> ScriptedNode:
    """A node that follows f and holds f's entries up to `last_index`, durable."""
    node = ScriptedNode()
    node.receive_append("f", term, donor, 2, last_index, commit_index)
    node.step()
    node.take("f")
    return node


def log_without_head(
    first_index: int, count: int, body: bytes, disk: SimulatedDisk, start: int = SEGMENT_BYTES
) -> SegmentedLog:
    """A log of `count` entries of term 1 whose segments before position `start` were removed."""
    before, _ = make_header(
        0, index=first_index - 1, term=1, position=start - HEADER_BYTES, kind=16, body=b""
    )
    head = LogHead(start, first_index, before.chain_crc)
    disk.replace(FOLDER / "head", encode_head(head))
    log = SegmentedLog(FOLDER, SEGMENT_BYTES, disk, [], None, head=head)
    for index in range(first_index, first_index + count):
        log.append(index, 1, Kind.MESSAGES, body)
    log.commit_index = log.last_index
    log.sync()
    HardStateFile(FOLDER / "term", disk).save(HardState(1, None, seated=True))
    return log


class HandTransport(Transport):
    """A transport for the stock library: what it sends is kept, what it hears is put in."""

    ready = True

    def __init__(self) -> None:
        super().__init__(None, None, None)
        self.sent: list[tuple[str, dict]] = []

    def send(self, node: Node, message: dict) -> bool:
        self.sent.append((node.id, message))
        return True


class Stock(SyncObj):
    """The library as it comes, for the holes whose fix leaves nothing to take out."""

    def __init__(self, peers: tuple[str, ...] = ("f", "g"), **options: object) -> None:
        self.wire = HandTransport()
        self.now = 1000.0
        use_clock(lambda: self.now)
        config = SyncObjConf(autoTick=False, leaderFallbackTimeout=1e9, **options)
        super().__init__(Node("n"), [Node(p) for p in peers], config, transport=self.wire)
        for peer in peers:
            self.wire._onNodeConnected(Node(peer))

    def hear(self, peer: str, **message: object) -> None:
        self.wire._onMessageReceived(Node(peer), message)

    def hear_append(self, **message: object) -> None:
        """f leads and sends what follows the first entry."""
        self.hear("f", type="append_entries", prevLogIdx=1, prevLogTerm=0, **message)

    def tick(self, seconds: float = 0.01) -> None:
        self.now += seconds
        self.doTick(0)


# -- 1 to 3: what is sent again, what is cut, what counts ----------------------------------


def test_hole_01_an_acknowledgement_never_makes_the_leader_send_again_what_is_in_flight() -> None:
    """After the first of three acknowledgements, the next message carries only what is new."""

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
        (message,) = (m for m in node.take("f", PeerKind.APPEND) if m.fields[4])
        return message.fields[1] + 1 - ends[-1]

    assert first_index_sent_after_an_early_acknowledgement() == 1
    with plant("send again what is in flight"):
        assert first_index_sent_after_an_early_acknowledgement() == -1


def test_hole_01_entries_that_match_are_never_cut() -> None:
    """A repeated message with the first two of ten acknowledged entries leaves all ten."""

    def log_end_after_a_repeated_message() -> int:
        donor = Donor()
        donor.add(1, 10)
        node = follower(donor, 11, commit_index=11)
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
        node.receive("f", PeerKind.ACK, old_term, 6, False, True, 1)
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
        with patch.object(transport_module, "BATCH_BYTES", 1000):
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


# -- 4 to 6: snapshots, dumps, trimming ----------------------------------------------------


def test_hole_04_the_commit_index_covers_only_what_a_message_verified() -> None:
    """A heartbeat that verifies entry 1 says that 500 are committed: the node's own tail, which
    nobody has verified, is not applied."""

    def applied_after_a_heartbeat() -> list[int]:
        donor = Donor()
        donor.add(1, 3)
        node = follower(donor, 4)
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
    node = follower(donor, 4)
    with pytest.raises(StorageError, match="snapshot"):
        node.engine.transport._onMessageReceived(Node("f"), message)
    load = SyncObj._SyncObj__loadDumpFile
    with patch.object(Core, "_SyncObj__loadDumpFile", load):
        node.engine.transport._onMessageReceived(Node("f"), message)
        node.step()
    assert node.take("f", PeerKind.ACK)[-1].fields[:3] == (5, False, True)


def test_hole_04_no_frame_can_carry_a_snapshot() -> None:
    """Whatever a peer sends, the library hears of entries, acknowledgements and votes only; and a
    leader whose follower is behind its log's head sends it nothing."""
    heard: list[dict] = []
    donor = Donor()
    donor.add(1, 2)
    node = ScriptedNode()
    with patch.object(Transport, "_onMessageReceived", lambda _, __, m: heard.append(m)):
        node.receive_append("f", 1, donor, 2, 3)
        for kind, fields in (
            (PeerKind.ACK, (1, True, False, 1)),
            (PeerKind.VOTE, (1, 0, False)),
            (PeerKind.VOTED, ()),
            (PeerKind.DENIED, ()),
            (PeerKind.PREVOTE, (1, 0)),
            (PeerKind.PREVOTED, (True, 0)),
        ):
            node.receive("g", kind, 0, *fields)
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
        node = follower(donor, 21, commit_index=21)
        node.engine.core.forceLogCompaction()
        node.advance(0.1)
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
    node = follower(donor, 21)
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


# -- 7 and 8: what is durable before it is said --------------------------------------------


def test_hole_07_a_vote_is_durable_before_it_is_sent() -> None:
    """The power goes right after the vote has left: the node that wakes up gives no second one."""

    def votes_in_term_5() -> int:
        node = ScriptedNode()
        node.receive("f", PeerKind.VOTE, 5, 1, 0, False)
        node.step(sync=False)
        count = len(node.take("f", PeerKind.VOTED))
        again = node.restarted(power_lost=True)
        again.receive("g", PeerKind.VOTE, 5, 1, 0, False)
        again.step(sync=False)
        return count + len(again.take("g", PeerKind.VOTED))

    assert votes_in_term_5() == 1
    for bug in ("forget term and vote", "vote again after a restart"):
        with plant(bug):
            assert votes_in_term_5() == 2


def test_hole_07_an_acknowledgement_waits_until_the_entries_are_durable() -> None:
    """What a follower has acknowledged is there after a power loss."""

    def acknowledged_and_left() -> tuple[int, int]:
        donor = Donor()
        donor.add(1, 5)
        node = ScriptedNode()
        node.sync()
        node.receive_append("f", 1, donor, 2, 6)
        node.step(sync=False)
        acknowledged = max((m.fields[0] - 1 for m in node.take("f", PeerKind.ACK)), default=0)
        return acknowledged, node.restarted(power_lost=True).log.last_index

    assert acknowledged_and_left() == (0, 1)
    with plant("acknowledge before the sync"):
        assert acknowledged_and_left() == (6, 1)


def test_hole_07_a_leader_counts_its_own_copy_only_when_it_is_durable() -> None:
    """A follower is quicker than the leader's own disk: two copies, of which one may vanish."""

    def answered_before_the_leaders_own_sync() -> bool:
        node = ScriptedNode()
        node.serve("f")
        outcome = node.append()
        node.step(sync=False)
        node.receive("f", PeerKind.ACK, node.engine.core.term, 4, False, True, 9)
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
    node.receive("f", PeerKind.VOTE, 5, 1, 0, False)
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
        disk = follower(donor, 10).disk
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
    node = follower(donor, 10)
    node.disk.replace(FOLDER / "checkpoint", encode_checkpoint(Checkpoint(commit_index=29)))
    with pytest.raises(CorruptLog, match="ends at index 10, although it was durable up to 29"):
        node.restarted(power_lost=False)


# -- 9 and 10: long logs, large entries ----------------------------------------------------


def test_hole_09_a_log_goes_on_past_4_gib() -> None:
    """Entries on both sides of position 2 ** 32 are read back after a restart; the library's
    journal can't write down an offset above it."""
    boundary, disk = 1 << 32, SimulatedDisk()
    log = log_without_head(1001, 100, bytes(range(250)) * 4, disk, boundary - 2 * SEGMENT_BYTES)
    assert log.entry(1001).position < boundary < log.entry(1100).position
    log.close()
    again = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
    bodies = {bytes(again.entry(index).body) for index in range(1001, 1101)}
    assert (again.last_index, bodies) == (1100, {bytes(range(250)) * 4})


@stock_library
def test_hole_09_the_librarys_journal_ends_at_4_gib(tmp_path: Path) -> None:
    """Why it is not used: past 4 GiB every append fails, in memory it goes on."""
    stock = FileJournal(str(tmp_path / "journal"))
    stock._FileJournal__currentOffset = (1 << 32) - 10
    with (
        patch("pysyncobj.journal.ResizableFile.write", lambda *_: None),
        pytest.raises(struct.error),
    ):
        stock.add(bytes(50), 1, 1)
    stock._destroy()


def test_hole_09_memory_does_not_grow_with_what_is_read() -> None:
    """Walking over the indices and terms of a 4 MiB log, and slicing all of it, keeps none of it
    in memory."""

    def peak_of_a_walk(*, copying: bool) -> int:
        journal = node.engine.core._SyncObj__raftLog
        tracemalloc.start()
        tail = journal[0:]
        entries = [
            (bytes(node.log.entry(index).body) if copying else command, term)
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
    node.log.header(1)
    assert peak_of_a_walk(copying=False) < 64 << 10
    assert peak_of_a_walk(copying=True) > 256 << 10


def test_hole_10_the_largest_entry_travels_in_one_message() -> None:
    """An entry of the full size is sent whole. The library cuts it in chunks, whose end it finds by
    the wrong length; our transport takes none of them."""

    def runs_sent() -> list[int]:
        node = ScriptedNode(segment_bytes=1 << 24)
        node.serve("f")
        node.append(bytes(limits.ENTRY_BYTES_MAX - HEADER_BYTES))
        node.step()
        return [len(m.run) for m in node.take("f", PeerKind.APPEND) if m.fields[4]]

    assert runs_sent() == [limits.ENTRY_BYTES_MAX]
    send = SyncObj._SyncObj__sendAppendEntries
    with patch.object(Core, "_SyncObj__sendAppendEntries", send):
        assert runs_sent() == []


@pytest.mark.parametrize("segment_bytes", [1 << 24, 1 << 16])
def test_hole_10_an_entry_above_the_limit_is_refused_at_once(segment_bytes: int) -> None:
    """One byte more than an entry, or than a segment, can hold is refused and nothing is lost."""
    node = ScriptedNode(segment_bytes=segment_bytes)
    node.serve("f")
    room = min(limits.ENTRY_BYTES_MAX, segment_bytes - 64) - HEADER_BYTES
    with pytest.raises(TooLarge):
        node.append(bytes(room + 1))
    outcome = node.append(bytes(room))
    node.step()
    node.acknowledge("f", node.log.last_index)
    assert isinstance(outcome[0], Appended)


# -- 11: what peers may make a node do -----------------------------------------------------


class _Poison:
    """Unpickling it raises LookupError."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise LookupError('unpickled')",)


def test_hole_11_nothing_from_a_peer_is_unpickled() -> None:
    """A committed entry of the library's membership type, with a pickle for a body, is applied as
    the bytes it is. The stock library runs it."""
    pickled = pickle.dumps(_Poison())
    donor = Donor()
    donor.log.append(2, 1, Kind.MESSAGES, b"\x02" + pickled)
    node = ScriptedNode()
    node.receive_append("f", 1, donor, 2, 2, commit_index=2)
    node.step()
    assert node.machine.applied[-1] == (2, b"\x02" + pickled)

    stock = Stock()
    stock.hear_append(term=1, commit_index=2, entries=[(b"\x02" + pickled, 2, 1)])
    with pytest.raises(LookupError, match="unpickled"):
        stock.tick()


def test_hole_11_a_pickled_frame_closes_the_link() -> None:
    """The peers' wire is msgpack: a pickle is refused before anything looks into it."""
    pickled = pickle.dumps(_Poison())
    frame = PREFIX.pack(2 + len(pickled), len(pickled)) + pickled
    with pytest.raises(FrameError):
        decode_message(memoryview(frame))


async def test_hole_11_who_does_not_know_the_secret_is_no_node() -> None:
    """The dialling node claims to be n1. Without the group's secret it is refused."""

    async def greeting(secret: bytes) -> str:
        ours = PeerNetwork("g", "n0", 1 << 20, b"right", owner=None)
        theirs = PeerNetwork("g", "n1", 1 << 20, secret, owner=None)
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        found: list[str] = []

        async def claim() -> None:
            with near:
                await theirs._handshake(near, "n0")

        async def check() -> None:
            with far:
                found.append(await ours._handshake(far, None))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(claim)
            nursery.start_soon(check)
        return found[0]

    assert await greeting(b"right") == "n1"
    with pytest.raises(ExceptionGroup) as refusal:
        await greeting(b"wrong")
    assert refusal.group_contains(FrameError, match="secret")
    with patch.object(PeerNetwork, "_sign", lambda *_: b"no proof"):
        assert await greeting(b"wrong") == "n1"


# -- 12 to 14: terms, elections, quorum ----------------------------------------------------


def test_hole_12_who_is_behind_in_terms_is_told() -> None:
    """A leader and a candidate of term 3 learn that term 5 has begun."""

    def answers() -> list[tuple[PeerKind, int]]:
        donor = Donor()
        donor.add(5)
        node = follower(donor, 2, term=5)
        node.receive_append("g", 3, donor, 2, 1)
        node.receive("g", PeerKind.VOTE, 3, 9, 2, False)
        node.step()
        node.advance(2)
        node.take("g")
        node.receive("g", PeerKind.VOTE, 3, 9, 2, False)
        node.step()
        return [(m.kind, m.term) for m in node.take("g")]

    assert answers() == [(PeerKind.DENIED, 5)]
    with patch.object(PeerTransport, "deny", lambda *_: None):
        assert answers() == []


def test_hole_12_a_leader_that_is_told_of_a_higher_term_steps_down() -> None:
    """One word from a peer is enough, and the new term is durable."""

    def role_and_term_after_a_denial() -> tuple[Role, int]:
        node = ScriptedNode()
        node.serve("f")
        node.receive("g", PeerKind.DENIED, 7)
        node.step()
        role = node.engine.core.role
        return role, node.restarted(power_lost=True).engine.core.term

    assert role_and_term_after_a_denial() == (Role.FOLLOWER, 7)
    with patch.object(PeerTransport, "step_down", lambda *_: None):
        assert role_and_term_after_a_denial() == (Role.LEADER, 1)


def test_hole_13_a_node_alone_does_not_raise_its_term() -> None:
    """Nobody answers for 30 seconds: the term stays, so that coming back deposes nobody."""

    def term_after_30_s_alone() -> int:
        donor = Donor()
        donor.add(1)
        node = follower(donor, 2)
        node.advance(30)
        return node.engine.core.term

    assert term_after_30_s_alone() == 1
    with plant("elect without asking"):
        assert term_after_30_s_alone() > 10


def test_hole_13_a_living_leader_is_not_deposed() -> None:
    """A vote request of a higher term, while the leader is heard from, changes nothing."""

    def term_after_a_vote_request() -> int:
        donor = Donor()
        donor.add(1)
        node = follower(donor, 2)
        node.receive("g", PeerKind.VOTE, 9, 2, 1, False)
        node.step()
        return node.engine.core.term

    assert term_after_a_vote_request() == 1
    with plant("elect without asking"):
        assert term_after_a_vote_request() == 9


def test_hole_14_a_leader_that_hears_from_no_majority_steps_down() -> None:
    """It says so to those who wait for their appends within a little more than a second; the
    library alone would go on for 30."""

    def outcome_after_silence(fallback_s: float | None) -> list[object]:
        node = ScriptedNode()
        if fallback_s is not None:
            node.engine.core.conf.leaderFallbackTimeout = fallback_s
        node.serve("f")
        outcome = node.append()
        node.advance(1.3)
        return [type(result) for result in outcome]

    assert outcome_after_silence(None) == [OutcomeUnknown]
    assert outcome_after_silence(30.0) == []


# -- 15 and 16: membership, appends without an end -----------------------------------------


def test_hole_15_the_librarys_own_membership_changes_are_off() -> None:
    """An entry of the membership type changes nobody's majority, and a request for one is
    refused. Our own changes are entries of a kind of their own, and read, not unpickled."""
    body = b"\x02" + pickle.dumps(("add", "x"))
    donor = Donor()
    donor.log.append(2, 1, Kind.MESSAGES, body)
    donor.log.append(3, 1, Kind.CONFIGURATION, body)
    node = ScriptedNode()
    node.receive_append("f", 1, donor, 2, 2, commit_index=2)
    node.receive_append("f", 1, donor, 3, 3, commit_index=2)
    node.step()
    assert "configuration can't be read" in (node.wires["f"].closed_because or "")
    assert node.log.last_index == 2
    assert {str(other) for other in node.engine.core.otherNodes} == {"f", "g"}
    with pytest.raises(FrameError, match="tried to add"):
        node.engine.transport.addNode(Node("x"))


def test_hole_16_whoever_waits_for_a_deposed_leader_is_told() -> None:
    """The appends of a leader that another one replaced end at once, as unknown. Stock callbacks
    wait for ever."""

    def outcome() -> list[object]:
        node = ScriptedNode()
        term = node.serve("f")
        donor = Donor()
        donor.copy(node.log, 2)
        donor.add(term + 1)
        waiting = node.append()
        node.step()
        node.receive_append("g", term + 1, donor, 3, 3)
        node.step()
        node.advance(5)
        return [type(result) for result in waiting]

    assert outcome() == [OutcomeUnknown]
    with plant("never tell of lost leadership"):
        assert outcome() == []


def test_hole_16_what_was_refused_is_never_appended_later() -> None:
    """An append that a node did not take, since it did not lead, does not turn up when it does."""

    def bodies_after_leading() -> set[bytes]:
        node = ScriptedNode()
        with pytest.raises(NotLeader):
            node.append(b"refused")
        node.serve("f")
        node.step()
        return {bytes(node.log.entry(index).body) for index in range(1, node.log.last_index + 1)}

    assert bodies_after_leading() == {b""}
    with plant("append what was refused"):
        assert bodies_after_leading() == {b"", b"refused"}


def test_hole_16_nothing_is_queued_or_forwarded_without_a_leader() -> None:
    """A follower refuses an append at once and names the leader; the stock library keeps it and
    sends it to whoever leads ten minutes later."""
    donor = Donor()
    donor.add(1)
    node = follower(donor, 2)
    with pytest.raises(NotLeader) as refusal:
        node.append()
    assert refusal.value.leader == "f"
    node.advance(1)
    assert not any(message.kind is PeerKind.APPEND for message in node.take("f"))

    stock = Stock()
    stock._applyCommand(b"old", None)
    stock.tick(0.001)
    stock._SyncObj__raftElectionDeadline = stock.now + 1e6
    stock.now += 600
    stock.hear_append(term=9, commit_index=1, entries=[])
    stock.tick(0.001)
    assert [m["command"] for _, m in stock.wire.sent if m["type"] == "apply_command"] == [b"old"]


# -- 17 and 18: applying -------------------------------------------------------------------


def test_hole_17_an_empty_body_is_an_entry_like_any_other() -> None:
    """It is committed, applied, and followed by others. In the stock library every further tick
    raises."""
    node = ScriptedNode()
    node.serve("f")
    outcomes = [node.append(b""), node.append(b"next")]
    node.step()
    node.acknowledge("f", node.log.last_index)
    assert all(isinstance(outcome[0], Appended) for outcome in outcomes)

    stock = Stock(peers=())
    stock.tick(5)
    stock.tick()
    stock._applyCommand(b"", None)
    stock.tick()
    for _ in range(3):
        with pytest.raises(TypeError):
            stock.tick()


def test_hole_17_an_error_of_the_state_machine_is_not_the_librarys() -> None:
    """What apply raises reaches the shell, which ends the node; the library knows nothing of it
    and its tick is whole. The stock library raises in every tick from then on."""

    class Failing(Recorder):
        def apply(self, entry: Entry) -> object:
            raise ZeroDivisionError

    node = ScriptedNode(machine=Failing())
    with pytest.raises(ZeroDivisionError):
        node.step()
    node.engine.core.doTick(0)
    assert node.engine.core.raftLastApplied == node.engine.core.commit_index

    stock = Stock(peers=())
    stock.tick(5)
    stock.tick()
    no_such_method = pickle.dumps(99)
    stock._applyCommand(no_such_method, None, 0)
    stock.tick()
    for _ in range(3):
        with pytest.raises(KeyError):
            stock.tick()


def test_hole_18_a_restart_applies_what_the_machine_lacks_in_bounded_steps() -> None:
    """The machine's snapshot holds 60 of 100 committed entries: the others are applied, a bounded
    number of bytes in a step, so that the loop is never held up."""
    disk = SimulatedDisk()
    log = log_without_head(1, 100, bytes(1000), disk)
    counts = [0]
    with patch.object(engine_module, "APPLY_BYTES_PER_STEP", 8000):
        node = ScriptedNode(disk=disk, log=log, machine=Recorder(applied_index=60))
        while node.engine.step():
            counts.append(len(node.machine.applied))
    assert [index for index, _ in node.machine.applied] == [*range(61, 101)]
    assert max(after - before for before, after in pairwise(counts)) == 8


def test_hole_18_a_log_without_its_head_is_applied() -> None:
    """The log begins at index 50, the machine's snapshot ends at 49. The stock library applies
    nothing, for ever."""
    disk = SimulatedDisk()
    log = log_without_head(50, 30, b"body", disk)
    node = ScriptedNode(disk=disk, log=log, machine=Recorder(applied_index=49))
    node.step()
    assert [index for index, _ in node.machine.applied] == [*range(50, 80)]

    class Headless(MemoryJournal):
        def getRaftCommitIndex(self) -> int:  # noqa: N802 - the library's name
            return 79

    journal = Headless()
    for index in range(50, 80):
        journal.add(b"\x01", index, 1)
    stock = Stock(peers=(), journalFile=journal)
    for _ in range(10):
        stock.tick(1)
    assert (stock.raftCommitIndex >= 79, stock.raftLastApplied) == (True, 1)


# -- 19 and 20: the links ------------------------------------------------------------------


def test_hole_19_a_peer_that_reads_too_slowly_is_paused() -> None:
    """When 64 MiB are queued for a peer, nothing more is sent to it until the queue has drained;
    then it gets what it lacks."""

    def sent_to_a_slow_peer() -> tuple[int, int]:
        node = ScriptedNode()
        node.serve("f")
        node.wires["f"].queued_bytes = (64 << 20) + 1
        for _ in range(10):
            node.append()
            node.step()
        slow = sum(message.fields[4] for message in node.take("f", PeerKind.APPEND))
        node.wires["f"].queued_bytes = 0
        node.engine.transport.link_drained("f")
        node.step()
        return slow, sum(message.fields[4] for message in node.take("f", PeerKind.APPEND))

    assert sent_to_a_slow_peer() == (1, 9)
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
        late = encode_message(PeerKind.ACK, node.engine.core.term, 2, True, False, 3)
        node.engine.receive("f", old, decode_message(memoryview(b"".join(late))))
        node.engine._deliver_inbox(node.now)
        return node.engine.core.next_index(Node("f"))

    def receive_on_the_live_link(
        self: RaftEngine, node_id: str, _: Wire, message: PeerMessage
    ) -> None:
        receive(self, node_id, self.transport.peers[node_id].link, message)

    receive = RaftEngine.receive
    assert next_index_after_a_late_rejection() == 8
    with patch.object(RaftEngine, "receive", receive_on_the_live_link):
        assert next_index_after_a_late_rejection() == 2
