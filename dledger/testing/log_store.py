"""The interface of a log that Raft and the broker use, and the places where one can lie.

:class:`LogStore` is the part of :class:`~dledger.log.store.SegmentedLog` that others rely on;
:class:`~dledger.testing.contracts.log.LogStoreContract` says what it must do. A :class:`Storage` is
what outlives the process that has the log open: a test opens it, lets the process die, or the
power go, and opens it again. :class:`OnDisk` is a segmented log on any
:class:`~dledger.log.disk.Disk`, so whoever writes another disk can hold it to the contract.
"""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Protocol

from dledger.buffers import Buffer
from dledger.log.disk import Disk
from dledger.log.entry import HEADER_BYTES, Draft, Entry, Header, Kind
from dledger.log.head import LogHead
from dledger.log.jobs import SyncJob
from dledger.log.recovery.startup import open_log
from dledger.log.segments.segment import segment_path
from dledger.log.store import SegmentedLog
from dledger.testing.disk import SimulatedDisk

SEGMENT_BYTES = 4096
FOLDER = Path("/log")


class Job(Protocol):
    """Slow work on files, which a thread may do."""

    def run(self) -> None:
        """Work until the end. Raises OSError."""


class Reader(Protocol):
    """A reader of a log, as :class:`~dledger.log.reading.LogReader`, which explains each call."""

    def header(self, index: int) -> Header:
        """Header of the entry at `index`. Raises StorageError if it is not in the log."""

    def entry(self, index: int) -> Entry:
        """The entry at `index`, with its body. Raises StorageError if it is not in the log."""

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Bytes by position, of one segment. Raises StorageError."""

    def run_of(self, first_index: int, last_index: int) -> memoryview:
        """The raw bytes of consecutive entries of one segment."""

    def head_before(self, index: int) -> LogHead:
        """Where a log would begin that begins with a segment's first entry."""


class LogStore(Protocol):
    """A log of one replica. What each call does is said at :class:`SegmentedLog`."""

    commit_index: int
    durable_index: int

    @property
    def reader(self) -> Reader:
        """The reader of this log, for entries by index and bytes by position."""

    @property
    def fenced(self) -> str | None:
        """Why the log takes no more, if it does not."""

    @property
    def first_index(self) -> int:
        """The lowest index that can be read; 1 for an empty log."""

    @property
    def last_index(self) -> int:
        """The index of the last entry; 0 for an empty log."""

    @property
    def first_position(self) -> int:
        """The lowest position that can be read."""

    @property
    def end_position(self) -> int:
        """The position behind the last entry."""

    @property
    def chain_crc(self) -> int:
        """The chain CRC that the next entry continues."""

    @property
    def entry_bytes_max(self) -> int:
        """The largest entry, header and body."""

    def append(self, index: int, term: int, kind: int, body: Buffer | Draft) -> Header:
        """Stage a new entry at the end. Raises TooLarge, Fenced, StorageError."""

    def append_copy(self, header: Header, raw_header: Buffer, body: Buffer) -> None:
        """An entry that another replica made. Raises CorruptLog, Fenced, StorageError."""

    def start_sync(self) -> SyncJob | None:
        """The part that has to be made durable; None if there is nothing. Raises Fenced."""

    def finish_sync(self, job: SyncJob, error: OSError | None = None) -> None:
        """Note that a sync has ended. Raises Fenced if it failed."""

    def sync(self) -> None:
        """Make everything durable before this returns. Raises Fenced."""

    def cut(self, first_index: int) -> None:
        """Remove the entries from `first_index` on, durably. Raises StorageError if some of them
        are committed, Fenced."""

    def trim(self, first_index: int) -> Job | None:
        """Forget the whole segments before an index; None if there are none."""

    def replace_by(self, head: LogHead) -> None:
        """Drop everything and begin anew, durably. Raises StorageError, CorruptLog, Fenced."""

    def close(self) -> None:
        """Make everything durable, and let go of the files."""


def fill(log: LogStore, count: int, term: int = 1, size: int = 100) -> None:
    """Append `count` entries, each of which says which one it is."""
    for index in range(log.last_index + 1, log.last_index + count + 1):
        log.append(index, term, Kind.MESSAGES, b"%d of term %d;" % (index, term) * (size // 10))


def entries_of(log: LogStore) -> list[Entry]:
    """The log's entries, so that two logs compare by index, term, kind, position and body."""
    return [log.reader.entry(index) for index in range(log.first_index, log.last_index + 1)]


def copy_to(log: LogStore, source: LogStore, last_index: int) -> None:
    """Append another log's entries up to `last_index`, as a follower does."""
    for index in range(log.last_index + 1, last_index + 1):
        raw, header = source.reader.run_of(index, index), source.reader.header(index)
        log.append_copy(header, raw[:HEADER_BYTES], raw[HEADER_BYTES : header.size])


def head_at(log: LogStore, index: int) -> LogHead:
    """The head that a leader with this log offers to a follower that has to begin at `index`."""
    header, head = log.reader.header(index), log.reader.head_before(index)
    return LogHead(header.position, index, head.chain_crc, bytes(log.reader.run_of(index, index)))


class Storage(Protocol):
    """The place of one log: a folder, or memory that outlives its process."""

    def open(self) -> LogStore:
        """Open the log, or start one, as a new process does. Raises CorruptLog, StorageError.

        If it was not closed, the process that had it open was killed.
        """

    def another(self) -> Storage:
        """An empty place of the same kind."""

    def damage(self, header: Header) -> None:
        """Flip a bit in the body of an entry, while the log is not open."""

    def fail_next_sync(self) -> None:
        """Make the next sync end with an error, and later ones not."""

    def fill_up(self) -> None:
        """Leave no room for what is not reserved yet, until the log is opened again."""


class PoweredStorage(Storage, Protocol):
    """A place that can lose its power."""

    def lose_power(self, seed: int, keep: float) -> None:
        """Forget what was not durable; each part of it survives with the probability `keep`."""


class FailingDisk(Disk):
    """A real disk; `fail` lets its next sync fail, once, `full` every new file."""

    fail = False
    full = False

    def create(self, path: Path, size_bytes: int) -> int:
        """Create a file; raises ENOSPC if the disk is `full`."""
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device, as told")
        return super().create(path, size_bytes)

    def sync_data(self, descriptor: int) -> None:
        """Sync a file; raises EIO once after `fail` was set."""
        if self.fail:
            self.fail = False
            raise OSError(errno.EIO, "input/output error, as told")
        super().sync_data(descriptor)


class OnDisk:
    """A segmented log in a folder of a disk."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self.disk = disk
        self.folder = folder

    def open(self) -> SegmentedLog:
        """See `Storage.open`."""
        return open_log(self.folder, SEGMENT_BYTES, self.disk)[0]

    def damage(self, header: Header) -> None:
        """Flip a bit on the disk."""
        offset = header.position % SEGMENT_BYTES
        path = segment_path(self.folder, header.position - offset)
        raw = bytearray(self.disk.read(path))
        raw[offset + HEADER_BYTES] ^= 1
        self.disk.replace(path, bytes(raw))


class OnRealDisk(OnDisk):
    """A log in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._failing = FailingDisk()
        super().__init__(self._failing, folder)

    def open(self) -> SegmentedLog:
        """Open the log, after somebody has made room."""
        self._failing.full = False
        return super().open()

    def another(self) -> OnRealDisk:
        """A log in a folder beside this one."""
        return OnRealDisk(self.folder.with_name(f"{self.folder.name}-"))

    def fail_next_sync(self) -> None:
        """See `Storage.fail_next_sync`."""
        self._failing.fail = True

    def fill_up(self) -> None:
        """See `Storage.fill_up`."""
        self._failing.full = True


class OnSimulatedDisk(OnDisk):
    """A log on a disk in memory, which forgets and tears."""

    def __init__(self) -> None:
        self.simulated = SimulatedDisk()
        super().__init__(self.simulated, FOLDER)

    def open(self, crash_in: int | None = None) -> SegmentedLog:
        """Open it; what the process before had written is still there. Raises Crashed if the node
        dies on the way, in the operation after so many more."""
        self.simulated.stop_process()
        self.simulated.crash_in = crash_in
        return super().open()

    def another(self) -> OnSimulatedDisk:
        """See `Storage.another`."""
        return OnSimulatedDisk()

    def fail_next_sync(self) -> None:
        """Make the next sync fail; the disk forgets what that sync should have made durable."""
        self.simulated.fail_in = 0

    def fill_up(self) -> None:
        """See `Storage.fill_up`."""
        self.simulated.full = True

    def lose_power(self, seed: int, keep: float) -> None:
        """Lose the power, as the disk does."""
        self.simulated.lose_power(random.Random(seed), keep)
