"""A disk in memory that fails in all the ways in which real disks fail.

It forgets what was not synced, tears what was being written, loses names whose folder was not
synced, fails a sync once, dies in the middle of an operation, flips bits, loses ends of files, and
can't read a sector any more, when it is told to.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dledger.buffers import Buffer
from dledger.log.disk import Disk, Unreadable

SECTOR_BYTES = 512
"""A sector is written whole or not at all; anything longer may be torn between sectors."""


LOST = bytes(range(1, 256)) * 2 + b"\1\2"
"""Bytes in a mapping where a sector is lost; with a real disk the process ends there."""


class Crashed(BaseException):
    """The node died in the middle of a file operation. No part of the node may catch it."""


@dataclass(frozen=True, slots=True)
class _Write:
    number: int
    offset: int
    data: bytes

    def sectors(self) -> Iterator[tuple[int, bytes]]:
        """The parts of this write that reach the disk whole or not at all."""
        start, end = self.offset, self.offset + len(self.data)
        while start < end:
            stop = min(end, start - start % SECTOR_BYTES + SECTOR_BYTES)
            yield start, self.data[start - self.offset : stop - self.offset]
            start = stop


@dataclass(slots=True)
class _File:
    """`content` is what the processes see; `durable` what a power loss leaves."""

    content: bytearray
    durable: bytearray
    unsynced: list[_Write] = field(default_factory=list)
    unreadable: set[int] = field(default_factory=set)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """A part, less at the end. Raises Unreadable."""
        end = min(offset + size_bytes, len(self.content))
        if self.unreadable & {*range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES))}:
            raise Unreadable(errno.EIO, "input/output error, as told")
        return bytes(self.content[offset:end])


class SimulatedDisk(Disk):
    """A node's disk in memory.

    `crash_in`: the node dies in the operation after so many more. `fail_in`: the sync after so many
    more fails, and the disk forgets what that sync should have made durable, as Linux does. `full`:
    no file can be created, not durably at least. All three end with a restart; `failed` says that
    one happened.
    """

    page_bytes = SECTOR_BYTES

    def __init__(self) -> None:
        self.crash_in: int | None = None
        self.fail_in: int | None = None
        self.full = False
        self.failed = False
        self.writes = 0
        self._horizon: int | None = None
        self._names: dict[Path, _File] = {}
        self._durable_names: dict[Path, _File] = {}
        self._open: dict[int, _File] = {}
        self._next_descriptor = 1000

    def copy(self) -> SimulatedDisk:
        """Another disk with the same files, to look at them without touching these."""
        other = SimulatedDisk()
        other._names = {
            path: _File(
                bytearray(file.content), bytearray(file.durable), unreadable={*file.unreadable}
            )
            for path, file in self._names.items()
        }
        return other

    # -- what happens to it ----------------------------------------------------------------

    def lose_power(self, rng: random.Random, keep: float = 0.5) -> None:
        """Forget what was not synced: writes, and names of files.

        `keep` is the probability that an unsynced write, or a part of it, or an unsynced change
        of a name, reached the disk all the same.
        """
        for path in sorted({*self._names, *self._durable_names}):
            visible, durable = self._names.get(path), self._durable_names.get(path)
            survivor = visible if visible is durable or rng.random() < keep else durable
            if survivor is None:
                self._durable_names.pop(path, None)
            else:
                self._durable_names[path] = survivor
        for file in self._durable_names.values():
            for write in file.unsynced:
                torn = rng.random() < 0.3
                whole = rng.random() < keep
                for offset, data in write.sectors():
                    if (rng.random() < keep) if torn else whole:
                        file.durable[offset : offset + len(data)] = data
            file.content = bytearray(file.durable)
            file.unsynced.clear()
        self._names = dict(self._durable_names)
        self._restart()

    def stop_process(self) -> None:
        """The process died, the machine did not: everything written is still there."""
        for file in self._names.values():
            file.content = bytearray(file.content)
        self._restart()

    def _restart(self) -> None:
        self._open.clear()
        self.crash_in = self.fail_in = self._horizon = None
        self.failed = self.full = False

    def flip_bit(self, path: Path, offset: int, bit: int) -> None:
        """Damage one bit, as a rotting disk does."""
        file = self._names[path]
        file.content[offset] ^= 1 << bit
        file.durable[offset] ^= 1 << bit

    def lose(self, path: Path, offset: int) -> None:
        """Lose the sector with a byte of a file: it can't be read any more, and a mapping has
        something else there. In a new file of that name it can."""
        sector = offset // SECTOR_BYTES
        start = sector * SECTOR_BYTES
        self._names[path].unreadable.add(sector)
        for content in (self._names[path].content, self._names[path].durable):
            content[start : start + SECTOR_BYTES] = LOST[: len(content) - start]

    def zero(self, path: Path, offset: int, size_bytes: int) -> None:
        """Lose a part of a file: it reads as zeros."""
        for content in (self._names[path].content, self._names[path].durable):
            content[offset : offset + size_bytes] = bytes(size_bytes)

    def shorten(self, path: Path, size_bytes: int) -> None:
        """Lose the end of a file: it has that many bytes left."""
        file = self._names[path]
        file.content, file.durable = file.content[:size_bytes], file.durable[:size_bytes]

    def durable_bytes(self, path: Path, offset: int, size_bytes: int) -> bytes:
        """Bytes of a part of a file that a power loss now would certainly leave; empty without
        it."""
        file = self._durable_names.get(path)
        return b"" if file is None else bytes(file.durable[offset : offset + size_bytes])

    @contextmanager
    def syncing_from(self, writes: int) -> Iterator[None]:
        """Syncs in here began when `writes` writes had been made: they cover no later ones."""
        self._horizon = writes
        try:
            yield
        finally:
            self._horizon = None

    def _operation(self) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                raise Crashed

    # -- Disk ------------------------------------------------------------------------------

    def make_folder(self, path: Path) -> None:
        """Folders need no making here."""

    def names(self, folder: Path) -> list[str]:
        """The names of a folder's files, sorted."""
        return sorted(path.name for path in self._names if path.parent == folder)

    def size(self, path: Path) -> int | None:
        """A file's length in bytes; None if it does not exist."""
        file = self._names.get(path)
        return None if file is None else len(file.content)

    def modified_s(self, path: Path) -> float:
        """Files have no age here: simulations draw which segments are removed."""
        return 0.0

    def open(self, path: Path) -> int:
        """A descriptor of an existing file."""
        self._next_descriptor += 1
        self._open[self._next_descriptor] = self._names[path]
        return self._next_descriptor

    def close(self, descriptor: int) -> None:
        """Forget a descriptor; unsynced writes of its file stay at risk."""
        self._open.pop(descriptor, None)

    def create(self, path: Path, size_bytes: int) -> int:
        """A new file of zeros, durable under its name. A full disk may have room for the file, and
        none for its name in the folder."""
        self._operation()
        if not self.full or self.writes % 2:
            self._names[path] = _File(bytearray(size_bytes), bytearray(size_bytes))
        if self.full:
            self.failed = True
            raise OSError(errno.ENOSPC, "no space left on device, as told")
        self.sync_folder(path.parent)
        return self.open(path)

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all the buffers, one after another, from `offset`."""
        file, data = self._open[descriptor], b"".join(buffers)
        self.writes += 1
        file.content[offset : offset + len(data)] = data
        file.unsynced.append(_Write(self.writes, offset, data))
        self._operation()

    def sync_data(self, descriptor: int) -> None:
        """Make what was written durable."""
        self._operation()
        file = self._open.get(descriptor)
        if file is None:
            return
        failing = self._fails_now()
        horizon = self.writes if self._horizon is None else self._horizon
        for write in file.unsynced:
            if write.number <= horizon and not failing:
                file.durable[write.offset : write.offset + len(write.data)] = write.data
        file.unsynced = [write for write in file.unsynced if write.number > horizon]
        if failing:
            self.failed = True
            raise OSError(errno.EIO, "input/output error, as told")

    def _fails_now(self) -> bool:
        if self.fail_in is None:
            return False
        self.fail_in -= 1
        return self.fail_in < 0

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        self._operation()
        for name in [name for name in self._durable_names if name.parent == path]:
            if name not in self._names:
                del self._durable_names[name]
        for name, file in self._names.items():
            if name.parent == path:
                self._durable_names[name] = file

    def map(self, descriptor: int, size_bytes: int) -> memoryview:
        """A view of the file's content."""
        return memoryview(self._open[descriptor].content)[:size_bytes].toreadonly()

    def forget_pages(self, view: memoryview) -> None:
        """Do nothing: there are no mapped pages."""

    def replace(self, path: Path, *content: bytes) -> None:
        """Give a file new content: after a crash it has the old or the new one."""
        self._operation()
        whole = b"".join(content)
        self._names[path] = _File(bytearray(whole), bytearray(whole))
        self.sync_folder(path.parent)

    def read(self, path: Path) -> bytes:
        """The whole of a file; empty if it does not exist."""
        file = self._names.get(path)
        return b"" if file is None else file.read(0, len(file.content))

    def read_part(self, path: Path, offset: int, size_bytes: int) -> bytes:
        """A part of a file."""
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return self._names[path].read(offset, size_bytes)

    def read_at(self, descriptor: int, offset: int, size_bytes: int) -> bytes:
        """A part of an open file."""
        return self._open[descriptor].read(offset, size_bytes)

    def remove(self, path: Path) -> None:
        """Remove a file; durable once the folder is synced."""
        self._operation()
        self._names.pop(path, None)
