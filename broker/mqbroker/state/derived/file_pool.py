"""The open files of consume queues: thousands of queues share a bounded number of descriptors."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

from dledger.limits import FILE_MODE
from mqbroker import limits
from mqbroker.state.derived.units import Damage


class FilePool:
    """Open file descriptors by path, the least recently used closed beyond `open_max`."""

    def __init__(
        self, open_max: int = limits.QUEUE_FILES_OPEN_MAX, damage: Damage | None = None
    ) -> None:
        #: Damage that readers of these files have found.
        self.damage = damage or Damage()
        self._open_max = open_max
        self._open: OrderedDict[Path, int] = OrderedDict()

    def get(self, path: Path) -> int:
        """A descriptor to read and write `path`, which is created if missing."""
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            return descriptor
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._open[path] = descriptor
        if len(self._open) > self._open_max:
            os.close(self._open.popitem(last=False)[1])
        return descriptor

    def drop(self, path: Path) -> None:
        """Close the descriptor of a file that will be removed."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def forget(self, directory: Path) -> None:
        """Close the open files below `directory`, before it is removed."""
        for path in [path for path in self._open if directory in path.parents]:
            os.close(self._open.pop(path))

    def close(self) -> None:
        """Close all files that the pool holds open."""
        while self._open:
            os.close(self._open.popitem()[1])
