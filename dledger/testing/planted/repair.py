"""Planted bugs of the repair of damaged logs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

from dledger.log.checkpoints import Checkpoints
from dledger.log.disk import Disk
from dledger.log.entry import Kind
from dledger.log.reading import LogReader
from dledger.log.recovery import repair as recovery_repair
from dledger.log.recovery import rescue, startup
from dledger.log.recovery.scrub import Scrub
from dledger.log.store import SegmentedLog
from dledger.raft.engine import RaftEngine
from dledger.raft.membership import members
from dledger.raft.membership.configuration import Configuration
from dledger.raft.messages import Given, Lacking, PeerMessage
from dledger.raft.peer import Peer
from dledger.raft.replication.repair import Asking

Planted = AbstractContextManager[object]


def _answering(commit_index: Callable[[RaftEngine], int | None]) -> Planted:
    """A node answers a damaged peer at once, with what it takes for committed."""
    original = RaftEngine._deliver

    def deliver(
        self: RaftEngine, peer: Peer, node_id: str, message: PeerMessage, now: float
    ) -> None:
        if not isinstance(message, Lacking):
            original(self, peer, node_id, message, now)
            return
        index = commit_index(self)
        if index is not None:
            self._giving.give(peer, message.index, index)

    return patch.object(RaftEngine, "_deliver", deliver)


def give_what_is_not_committed() -> Planted:
    """A node that is asked gives all that it holds."""
    return _answering(lambda engine: engine.log.last_index)


def give_without_a_round() -> Planted:
    """A node that is asked says that nothing is committed beyond its own commit index."""
    return _answering(lambda engine: engine.core.commit_index)


def chase_the_leaders_end() -> Planted:
    """A repair is over when it has all that was committed at the last answer, not at the first."""
    original = Asking.take

    def take(self: Asking, message: Given) -> int | Lacking | None:
        self._committed = None
        return original(self, message)

    return patch.object(Asking, "take", take)


def write_entries_before_their_term() -> Planted:
    """The leader's term is not made durable before its entries are written."""
    return patch.object(Asking, "_take_term", lambda self, term: None)


def replay_what_no_start_has_checked() -> Planted:
    """A replay takes sealed segments as they are."""
    return patch.object(LogReader, "checked_entry", LogReader.entry)


def never_scrub() -> Planted:
    """Sealed segments are never read again."""
    return patch.object(Scrub, "next_slice", lambda self, committed_index: None)


def send_what_has_rotted() -> Planted:
    """A leader sends old entries as they stand on its disk."""
    return patch.object(LogReader, "check_run", lambda self, first, last: None)


def vouch_for_rot_that_was_found() -> Planted:
    """The checkpoint that a node leaves behind, when it has found rot, vouches for the segment."""
    return patch.object(Checkpoints, "distrust", lambda self, base_position: None)


def forget_what_could_not_be_read() -> Planted:
    """A file of which a part was lost gets a copy that vouches for nothing."""
    return patch.object(rescue, "EVERYTHING", 0)


def make_a_lost_file_without_a_mark() -> Planted:
    """A file that is made in the place of a lost one vouches for nothing."""

    def make_zeros(disk: Disk, path: Path, size_bytes: int) -> None:
        disk.close(disk.create(path, size_bytes))

    return patch.object(recovery_repair, "make_empty", make_zeros)


def fill_a_short_file_with_zeros() -> Planted:
    """A file that has lost its end is long enough again, before it is looked at."""
    original = startup._segment_bases

    def bases(folder: Path, names: list[str], segment_bytes: int, disk: Disk) -> list[int]:
        for path in (folder / name for name in names if name.endswith(".seg")):
            if (disk.size(path) or 0) < segment_bytes:
                raw = disk.read_part(path, 0, segment_bytes)
                disk.replace(path, raw.ljust(segment_bytes, b"\0"))
        return original(folder, names, segment_bytes, disk)

    return patch.object(startup, "_segment_bases", bases)


def take_a_rotten_header_for_another_entry() -> Planted:
    """Whether the log holds a configuration is read off its header as it stands on the disk."""

    def holds(log: SegmentedLog, held: Configuration) -> bool:
        if held.index > log.last_index:
            return False
        header = log.reader.header(held.index)
        return (header.term, header.kind) == (held.term, Kind.CONFIGURATION)

    return patch.object(members, "_holds", holds)


def apply_what_waited_for_the_state() -> Planted:
    """Entries that came in while the state was missing are applied as they stand on the disk."""
    return patch.object(LogReader, "doubt_all", lambda self: None)
