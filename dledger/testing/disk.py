"""A disk in memory that forgets what was not synced, and tears what was being written."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dledger.log.disk import Disk
from dledger.remoting.command import Buffer

SECTOR_BYTES = 512
"""A sector is written whole or not at all; anything longer may be torn between sectors."""


@dataclass(slots=True)
class _File:
    """`content` is what the processes see; `durable` what a power loss leaves."""

    content: bytearray
    durable: bytearray
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)


class SimulatedDisk(Disk):
    """One node's disk. :meth:`lose_power` keeps what was synced, and some of the rest.

    Names are durable at once here; what a crash does to bytes is what this disk is about.
    """

    def __init__(self) -> None:
        self._files: dict[Path, _File] = {}
        self._open: dict[int, _File] = {}
        self._next_descriptor = 1000

    def lose_power(self, rng: random.Random, keep: float = 0.5) -> None:
        """Forget unsynced writes, but for a random part of them, torn at random sectors.

        `keep` is the probability that an unsynced write reached the disk, whole or in part.
        """
        self._open.clear()
        for file in self._files.values():
            for offset, data in file.unsynced:
                if rng.random() >= keep:
                    continue
                kept = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data
                end = offset + len(kept)
                if end // SECTOR_BYTES != offset // SECTOR_BYTES and len(kept) < len(data):
                    end -= end % SECTOR_BYTES
                file.durable[offset:end] = kept[: end - offset]
            file.content = bytearray(file.durable)
            file.unsynced.clear()

    def stop_process(self) -> None:
        """The process died, the machine did not: everything written is still there."""
        self._open.clear()
        for file in self._files.values():
            file.content = bytearray(file.content)

    def flip_bit(self, path: Path, offset: int, bit: int) -> None:
        """Damage one bit, as a rotting disk does."""
        file = self._files[path]
        file.content[offset] ^= 1 << bit
        file.durable[offset] ^= 1 << bit

    # -- Disk ------------------------------------------------------------------------------

    def make_folder(self, path: Path) -> None:
        """Folders need no making here."""

    def names(self, folder: Path) -> list[str]:
        """The names of a folder's files, sorted."""
        return sorted(path.name for path in self._files if path.parent == folder)

    def size(self, path: Path) -> int | None:
        """A file's length in bytes; None if it does not exist."""
        file = self._files.get(path)
        return None if file is None else len(file.content)

    def open(self, path: Path) -> int:
        """A descriptor of an existing file."""
        self._next_descriptor += 1
        self._open[self._next_descriptor] = self._files[path]
        return self._next_descriptor

    def close(self, descriptor: int) -> None:
        """Forget a descriptor."""
        self._open.pop(descriptor, None)

    def create(self, path: Path, size_bytes: int) -> int:
        """A new file of zeros, durable."""
        self._files[path] = _File(bytearray(size_bytes), bytearray(size_bytes))
        return self.open(path)

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all the buffers, one after another, from `offset`."""
        file, data = self._open[descriptor], b"".join(buffers)
        file.content[offset : offset + len(data)] = data
        file.unsynced.append((offset, data))

    def sync_data(self, descriptor: int) -> None:
        """Make what was written durable."""
        file = self._open.get(descriptor)
        if file is not None:
            for offset, data in file.unsynced:
                file.durable[offset : offset + len(data)] = data
            file.unsynced.clear()

    def sync_folder(self, path: Path) -> None:
        """Names are durable already."""

    def map(self, descriptor: int, size_bytes: int) -> memoryview:
        """A view of the file's content."""
        return memoryview(self._open[descriptor].content)[:size_bytes].toreadonly()

    def replace(self, path: Path, content: bytes) -> None:
        """Give a file new content, durable."""
        self._files[path] = _File(bytearray(content), bytearray(content))

    def read(self, path: Path) -> bytes:
        """The whole of a file; empty if it does not exist."""
        file = self._files.get(path)
        return b"" if file is None else bytes(file.content)

    def remove(self, path: Path) -> None:
        """Remove a file, durably."""
        self._files.pop(path, None)
