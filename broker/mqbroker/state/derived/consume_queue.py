"""Consume queues: for each queue of a topic, the positions of its messages in the log.

A queue is an array of fixed 32-byte units, big-endian; a unit's number is the queue offset::

    0  position u64         of the message record in the log's address space
    8  size u32             of the record, in bytes
    12 check u32            of the unit, its number and its queue (`mqbroker.state.derived.units`)
    16 lives u32            when the message expires (`mqbroker.state.derived.units`), 0 for never
    20 tags code i32        Java string hash of the TAGS property, 0 without one
    24 store timestamp i64  ms; never goes back within a log, so it can be searched

(RocketMQ's unit, a check, and times: searching by them, and expiry, needs no look at the log.)
Units lie in files of `UNITS_PER_FILE`, named by their first queue offset, in a directory for each
queue: ``queues/<topic>.<index of the entry that made the topic>/<queue id>/``. So a topic that is
deleted and made again gets new directories, and the old ones can stay until the next snapshot.

Everything here is derived from committed entries of the log and can be rebuilt from them. Units are
checked when they are read; if they have changed, DamagedFiles is raised. New units wait in memory
until there are enough to write; `flush` hands them to the operating system, and `sync_files` makes
them durable. Only then may a snapshot claim them. After a restart a queue is cut back to what the
snapshot claims, and the entries applied since are applied again.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from dledger.checksum import crc32
from dledger.errors import StorageError
from dledger.limits import FOLDER_MODE
from dledger.log.disk import make_folder
from mqbroker import limits
from mqbroker.state.derived.file_pool import FilePool
from mqbroker.state.derived.units import UNIT, UNIT_BYTES, Damage, Units, filed, unfiled

#: Added to the directory's name for files that will be removed.
_OUTDATED: Final = ".outdated"


class ConsumeQueue:
    """Positions of one queue's messages, a unit of fixed size for each. `begin` and `end` bound its
    offsets: begin <= offset < end."""

    def __init__(self, directory: Path, files: FilePool) -> None:
        self.directory = directory
        self.begin = 0
        self._files = files
        self._seed = crc32("/".join(directory.parts[-2:]).encode())
        self._written = 0  # units handed to files; those after it are in _pending
        self._pending = bytearray()
        self._unsynced: set[Path] = set()
        self._made_directory = False
        #: Whether its files may hold more than was restored: then they are cut at the next write.
        self._untrimmed = False

    @property
    def end(self) -> int:
        """The offset that the next message gets."""
        return self._written + len(self._pending) // UNIT_BYTES

    @property
    def pending_bytes(self) -> int:
        """Bytes that only memory holds."""
        return len(self._pending)

    def append(self, units: bytes) -> None:
        """Add whole units after the last."""
        self._pending += units
        if len(self._pending) > limits.QUEUE_PENDING_BYTES_MAX:
            with suppress(OSError):
                self.flush()

    def read(self, first: int, count: int) -> Units:
        """Up to `count` units from offset `first`; fewer at the end of the queue.

        Raises DamagedFiles where a file holds something else than was written.
        """
        last = min(first + count, self.end)
        if not self.begin <= first < last:
            return np.empty(0, UNIT)
        parts = list(self._read_files(first, min(last, self._written)))
        if last > self._written:
            start = max(first - self._written, 0) * UNIT_BYTES
            pending = bytes(self._pending[start : (last - self._written) * UNIT_BYTES])
            parts.append(np.frombuffer(pending, UNIT))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, dtype=UNIT)

    def first_at(self, timestamp_ms: int) -> int:
        """The smallest offset stored at `timestamp_ms` or later; `end` if there is none."""
        return self._first("store_timestamp_ms", timestamp_ms)

    def stored_ms(self, offset: int) -> int:
        """When the message at an offset was stored; 0 if none is there."""
        units = self.read(offset, 1)
        return int(units["store_timestamp_ms"][0]) if len(units) else 0

    @property
    def new_file(self) -> Path | None:
        """The file that the next flush has to make, if it is this queue's first."""
        return None if self._made_directory else self._file_of(self._written)[0]

    def flush(self) -> None:
        """Hand the units that only memory holds to the operating system.

        After an OSError units that were not written stay in memory: a disk may be full.
        """
        if self._untrimmed:
            self.trim()
        data = memoryview(filed(bytes(self._pending), self._written, self._seed))
        while data:
            path, unit = self._file_of(self._written)
            if not self._made_directory:
                make_folder(self.directory)
                self._made_directory = True
            room = (limits.UNITS_PER_FILE - unit) * UNIT_BYTES
            _write_all(self._files.get(path), data[:room], unit * UNIT_BYTES)
            self._unsynced.add(path)
            written = len(data[:room]) // UNIT_BYTES
            self._written += written
            del self._pending[: written * UNIT_BYTES]
            data = data[room:]

    def take_unsynced(self) -> set[Path]:
        """The files written to since the last call: the caller makes them durable."""
        taken, self._unsynced = self._unsynced, set()
        return taken

    def first_behind(self, position: int) -> int:
        """The offset of the first message at `position` of the log or behind it."""
        return self._first("position", position)

    def _first(self, field: str, least: int) -> int:
        """The first offset whose unit has `least` or more in a field that never falls; or `end`."""
        low, high = self.begin, self.end
        while low < high:
            middle = (low + high) // 2
            if int(self.read(middle, 1)[field][0]) < least:
                low = middle + 1
            else:
                high = middle
        return low

    def begin_at(self, offset: int) -> list[Path]:
        """Drop the units before `offset`.

        Returns the files that hold nothing else: a snapshot that does not claim them must be
        durable before they go.
        """
        first, kept = int(self._file_of(self.begin)[0].name), int(self._file_of(offset)[0].name)
        self.begin = offset
        names = range(first, kept, limits.UNITS_PER_FILE)
        return [self.directory / f"{name:020}" for name in names]

    def restore(self, begin: int, end: int) -> None:
        """After a restart: have the units from `begin` to `end`, which are on disk. Changes no
        file.

        Raises StorageError if the files hold fewer, as after a lost disk block.
        """
        self.begin = begin
        if end > begin:
            path, unit = self._file_of(end - 1)
            needed = (unit + 1) * UNIT_BYTES
            if not path.exists() or path.stat().st_size < needed:
                raise StorageError(f"{path} is shorter than the {needed} bytes that were synced")
        self._written = end
        self._untrimmed = True

    def trim(self) -> None:
        """Cut the files back to what was restored."""
        for path in self.directory.glob("*"):
            keep = min(max(self._written - int(path.name), 0), limits.UNITS_PER_FILE) * UNIT_BYTES
            if keep == 0 or int(path.name) + limits.UNITS_PER_FILE <= self.begin:
                path.unlink()
            elif path.stat().st_size > keep:
                os.truncate(path, keep)
        self._untrimmed = False

    def _file_of(self, offset: int) -> tuple[Path, int]:
        """The file that holds a unit, and the unit's number in it."""
        unit = offset % limits.UNITS_PER_FILE
        return self.directory / f"{offset - unit:020}", unit

    def _read_files(self, first: int, last: int) -> Iterator[Units]:
        while first < last:
            path, unit = self._file_of(first)
            count = min(last - first, limits.UNITS_PER_FILE - unit)
            descriptor, damage = self._files.get(path), self._files.damage
            raw = damage.read(path, descriptor, count * UNIT_BYTES, unit * UNIT_BYTES)
            units, bad = unfiled(raw, first, self._seed)
            if bad is not None:
                damage.found(f"{path}: the unit of offset {bad} does not check")
            yield units
            first += count


class TopicQueues:
    """The queues of one topic, in a directory of its own."""

    def __init__(self, directory: Path, created_index: int, files: FilePool) -> None:
        self.directory = directory
        self.created_index = created_index
        self._files = files
        self._queues: dict[int, ConsumeQueue] = {}

    def queue(self, queue_id: int) -> ConsumeQueue:
        """The queue, made on first use."""
        queue = self._queues.get(queue_id)
        if queue is None:
            queue = ConsumeQueue(self.directory / str(queue_id), self._files)
            self._queues[queue_id] = queue
        return queue

    def get(self, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it ever had a message."""
        return self._queues.get(queue_id)

    def __iter__(self) -> Iterator[tuple[int, ConsumeQueue]]:
        return iter(self._queues.items())


#: A topic's entry with its first message (index), and {queue id: end}, as a snapshot keeps them.
QueueEnds: TypeAlias = tuple[int, dict[int, int]]
#: topic -> {queue id: begin}; 0 where there is none.
QueueBegins: TypeAlias = Mapping[str, Mapping[int, int]]


class ConsumeQueues:
    """All consume queues of a broker, below one directory."""

    def __init__(self, directory: Path, damage: Damage | None = None) -> None:
        self._directory = directory
        self._files = FilePool(damage=damage)
        self._topics: dict[str, TopicQueues] = {}
        self._deleted: list[Path] = []
        self._pending_bytes = 0
        #: Queues with units that only memory holds, and those with files that were written to.
        self._dirty: dict[ConsumeQueue, None] = {}
        self._written: dict[ConsumeQueue, None] = {}

    def topic(self, topic: str) -> TopicQueues | None:
        """The queues of a topic, if it has any messages."""
        return self._topics.get(topic)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue, if it ever had a message."""
        queues = self._topics.get(topic)
        return queues.get(queue_id) if queues is not None else None

    def end(self, topic: str, queue_id: int) -> int:
        """The offset that the queue's next message gets."""
        queue = self.get(topic, queue_id)
        return queue.end if queue is not None else 0

    def span(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The offsets of a queue's first message, and of its next one; both 0 if it never had
        any."""
        queue = self.get(topic, queue_id)
        return (queue.begin, queue.end) if queue is not None else (0, 0)

    def stored_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at an offset of a queue was stored; 0 if none is there."""
        queue = self.get(topic, queue_id)
        return 0 if queue is None else queue.stored_ms(offset)

    def append(self, topic: str, queue_id: int, units: bytes, index: int) -> None:
        """Add units of the entry `index`."""
        queues = self._topics.get(topic)
        if queues is None:
            queues = TopicQueues(self._directory / f"{topic}.{index}", index, self._files)
            self._topics[topic] = queues
        queue = queues.queue(queue_id)
        queue.append(units)
        self._dirty[queue] = self._written[queue] = None
        self._pending_bytes += len(units)
        if self._pending_bytes > limits.QUEUES_PENDING_BYTES_MAX:
            with suppress(OSError):
                self.flush()

    def delete(self, topic: str) -> None:
        """Drop the queues of a deleted topic. Their files stay until `take_deleted` hands them
        out."""
        queues = self._topics.pop(topic, None)
        if queues is not None:
            self._files.forget(queues.directory)
            self._deleted.append(queues.directory)
            for _, queue in queues:
                self._dirty.pop(queue, None)
                self._written.pop(queue, None)

    @property
    def dirty(self) -> int:
        """How many queues have units that only memory holds."""
        return len(self._dirty)

    def flush(self) -> None:
        """Hand all units that only memory holds to the operating system."""
        for _ in self.flush_steps():
            pass

    def flush_steps(self) -> Iterator[None]:
        """Hand them to the operating system, one queue at each step: there may be thousands, each
        with a file to make.

        After an OSError this queue and the rest are left for the next time.
        """
        while self._dirty:
            queue = next(iter(self._dirty))
            queue.flush()
            del self._dirty[queue]
            yield
        self._pending_bytes = 0

    def new_files(self) -> list[Path]:
        """The files that a flush has to make: `make_files` does that ahead, in a thread."""
        return [path for queue in self._dirty if (path := queue.new_file) is not None]

    def take_unsynced(self) -> set[Path]:
        """The files to make durable before a snapshot may claim the present ends."""
        written, self._written = self._written, {}
        return {path for queue in written for path in queue.take_unsynced()}

    def picture(
        self,
    ) -> Generator[None, None, tuple[dict[str, QueueEnds], dict[str, dict[int, int]]]]:
        """The rows for a snapshot: the ends of the queues, and the begins of those whose first
        messages are gone."""
        ends: dict[str, QueueEnds] = {}
        begins: dict[str, dict[int, int]] = {}
        for topic, queues in self._topics.items():
            ends[topic] = queues.created_index, {number: queue.end for number, queue in queues}
            begun = {queue_id: queue.begin for queue_id, queue in queues if queue.begin}
            if begun:
                begins[topic] = begun
            yield
        return ends, begins

    def forget_before(self, position: int) -> None:
        """Keep no message that lies before `position` of the log.

        Raises DamagedFiles before anything was changed.
        """
        every = [queue for _, queues in self._topics.items() for _, queue in queues]
        begins = [queue.first_behind(position) for queue in every]
        for queue, begin in zip(every, begins, strict=True):
            outdated = queue.begin_at(begin)
            for path in outdated:
                self._files.drop(path)
            self._deleted += outdated

    def take_deleted(self) -> list[Path]:
        """Directories of deleted topics and files of old units.

        They may be removed once a snapshot without them is durable."""
        taken, self._deleted = self._deleted, []
        return taken

    def restoring(
        self, ends: Mapping[str, QueueEnds], begins: QueueBegins
    ) -> Generator[None, None, dict[str, TopicQueues]]:
        """The queues that a snapshot claims, for `adopt`; in steps. Changes nothing, no file
        either. Raises StorageError if some of it is not there."""
        topics: dict[str, TopicQueues] = {}
        for topic, (created_index, queue_ends) in ends.items():
            directory = self._directory / f"{topic}.{created_index}"
            queues = topics[topic] = TopicQueues(directory, created_index, self._files)
            for queue_id, end in queue_ends.items():
                begin = begins.get(topic, {}).get(queue_id, 0)
                queues.queue(queue_id).restore(begin, end)
            yield
        return topics

    def adopt(self, topics: dict[str, TopicQueues]) -> None:
        """Take over these queues, after `forget`."""
        self._topics = topics

    def trim(self) -> None:
        """Move all files away that belong to no queue; `take_deleted` hands them out.

        A queue's own files are cut back to what was restored at its next write. After a crash there
        may be thousands of both, and the start of this replica waits for this.
        """
        known = {queues.directory.name for queues in self._topics.values()}
        name = f"{self._directory.name}{_OUTDATED}"
        left = sorted(self._directory.parent.glob(f"{name}*"))  # of starts that were interrupted
        outdated = self._directory.with_name(f"{name}{len(left) or ''}")
        while outdated in left:
            outdated = outdated.with_name(f"{outdated.name}.")
        self._deleted += left
        if not known and self._directory.exists():
            self._directory.rename(outdated)
        elif self._directory.exists():
            outdated.mkdir(FOLDER_MODE)
            for path in self._directory.iterdir():
                if path.name not in known:
                    path.rename(outdated / path.name)
        if outdated.exists():
            self._deleted.append(outdated)

    def forget(self) -> None:
        """Drop all queues, as if nothing had been restored."""
        self._topics.clear()
        self._dirty.clear()
        self._written.clear()
        self._files.close()

    def close(self) -> None:
        """Close the open files; what was not flushed is derived from the log again."""
        self._files.close()


def make_files(paths: Iterable[Path]) -> None:
    """Make empty files, with their directories. Blocks: a busy disk makes each wait."""
    for path in paths:
        make_folder(path.parent)
        path.touch()


def sync_files(paths: Iterable[Path]) -> None:
    """Make written files durable, with the directories that name them. Blocks; OSError if not."""
    paths = list(paths)
    if len(paths) > limits.SYNCED_ONE_BY_ONE_MAX and _sync_file_system(paths[0]):
        return
    directories: set[Path] = set()
    for path in paths:
        sync_path(path)
        directories |= {path.parent, path.parent.parent, path.parent.parent.parent}
    for directory in directories:
        sync_path(directory)


def _sync_file_system(path: Path) -> bool:
    """Sync the whole file system of a file. Returns whether that was done. Raises OSError if it
    failed.

    Ten thousand new files take a minute one by one, and a second together. Linux reports a failed
    write since 5.8; on older ones and other systems this is not done.
    """
    release = [int(digits) for digits in re.findall(r"\d+", os.uname().release)[:2]]
    if os.uname().sysname != "Linux" or release < [5, 8]:
        return False
    syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)
    return True


def remove_paths(paths: Iterable[Path]) -> None:
    """Remove directories and files that `take_deleted` handed out. Blocks."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Make a file or directory durable. Blocks; OSError if it is not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written
