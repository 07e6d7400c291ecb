"""The key index: which messages of a topic have a key, for QUERY_MESSAGE.

A message is found by its unique key (UNIQ_KEY) and by each word of its KEYS. The index holds a
64-bit hash of topic and key (`keys`); a reader compares the messages' own keys. Files hold
`KEYS_PER_FILE` units and are named by the number of their first one::

    index/<first unit>          units in the order of the log, while they come in
    index/<first unit>.sorted   a full file, sorted by hash: all hashes, then all positions

A look-up compares the hashes of the last file one by one, and uses binary search in the sorted
ones. Units that were not yet handed to the operating system are in memory. All units that are read
are checked. Binary search compares the units on both sides of where it ends, so a search for a hash
that has rotted notices it.

Like consume queues, all is derived from committed entries: a snapshot claims the units up to a
number, in files that were made durable before. After a restart later units are cut off, and their
entries applied again.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from dledger.errors import StorageError
from dledger.failpoints import failpoint
from dledger.log.disk import make_folder, new_file
from mqbroker import limits
from mqbroker.state.derived.consume_queue import sync_path
from mqbroker.state.derived.keys import (
    POSITION_MASK,
    U64,
    UNIT,
    Key,
    Keys,
    all_check,
    checks,
    encode_keys,
    key_hashes,
)
from mqbroker.state.derived.units import Damage

_U64_STRUCT: Final = struct.Struct("<Q")
_SORTED: Final = ".sorted"
_NAME: Final = re.compile(rf"(\d{{20}})(?:{re.escape(_SORTED)})?")


class KeyIndex:
    """All keys, in files below one directory. It has the units from `first` up to, but without,
    `end`."""

    def __init__(
        self,
        directory: Path,
        keys_per_file: int | None = None,
        damage: Damage | None = None,
    ) -> None:
        self._directory = directory
        self._damage = damage or Damage()
        self._per_file = keys_per_file or limits.KEYS_PER_FILE
        self.first = 0
        self._written = 0
        self._pending: list[Key | bytes] = []
        self._pending_count = 0
        self._unsynced: set[Path] = set()

    @property
    def end(self) -> int:
        """The number that the next unit gets."""
        return self._written + self._pending_count

    def append(self, keys: Keys) -> None:
        """Add the keys of an entry, after those of all earlier entries."""
        self._pending += keys
        for key in keys:
            self._pending_count += 1 if isinstance(key, Key) else len(key) // UNIT.itemsize
        if self._pending_count >= limits.KEYS_PENDING_MAX:
            with suppress(OSError):
                self.flush()

    def find(self, topic: str, key: str) -> Iterator[int]:
        """The positions of the records that may have a key, the newest first.

        Raises DamagedFiles where a file holds something else than was written.
        """
        name = np.frombuffer(key.encode(), np.uint8)
        wanted = int(key_hashes(topic.encode(), name.reshape(1, len(name)))[0])
        yield from self._matching(np.frombuffer(encode_keys(self._pending), UNIT), wanted)
        for number in reversed(self._file_numbers()):
            yield from self._find_in_file(number, wanted)

    def flush(self) -> None:
        """Hand the units that only memory holds to the operating system.

        After an OSError units that were not written stay in memory: a disk may be full.
        """
        failpoint("index.flush")
        data = memoryview(encode_keys(self._pending))
        self._pending = [bytes(data)]
        while data:
            within = self._written % self._per_file
            path = self._path(self._written - within)
            room = (self._per_file - within) * UNIT.itemsize
            make_folder(self._directory)
            with path.open("r+b") if within else new_file(path) as file:
                file.seek(within * UNIT.itemsize)
                file.write(data[:room])
            self._unsynced.add(path)
            written = len(data[:room]) // UNIT.itemsize
            data = data[room:]
            self._written += written
            self._pending_count -= written
            self._pending = [bytes(data)]
        self._pending = []

    def take_unsynced(self) -> set[Path]:
        """The files written to since the last call: the caller makes them durable."""
        taken, self._unsynced = self._unsynced, set()
        return taken

    def seal(self, end: int) -> None:
        """Sort the full files among the first `end` units, which are durable. May run in a thread.

        A crash leaves a file sorted or as it was. OSError leaves it as it was, and so does
        DamagedFiles.
        """
        for number in range(self.first, end - self._per_file + 1, self._per_file):
            path = self._path(number)
            if path.exists():
                units = np.frombuffer(self._content(path), UNIT)
                if not all_check(units["hash"], units["position"]):
                    self._damage.found(f"{path}: a unit does not check")
                _write_sorted(path, units)
                sync_path(self._directory)
                path.unlink()

    def restore(self, first: int, end: int) -> None:
        """After a restart: have the units that a snapshot claims. Changes no file.

        Raises StorageError if the files hold fewer.
        """
        for number in range(first, end, self._per_file):
            needed = min(end - number, self._per_file) * UNIT.itemsize
            found = [path for path in self._paths(number) if path.exists()]
            if not found or max(path.stat().st_size for path in found) < needed:
                raise StorageError(f"{self._path(number)} has not the {needed} bytes synced once")
        self.first, self._written = first, end

    def trim(self) -> None:
        """Cut the files back to what was restored, and remove all others."""
        for path in self._directory.glob("*"):
            match = _NAME.fullmatch(path.name)
            number = int(match[1]) if match else -1
            keep = min(self._written - number, self._per_file) * UNIT.itemsize
            if number < self.first or keep <= 0:
                path.unlink()
            elif not path.name.endswith(_SORTED) and path.stat().st_size > keep:
                os.truncate(path, keep)

    def forget(self) -> None:
        """Drop all units, as if nothing had been restored.

        New files get new names: another thread may still be sorting one of the old ones.
        """
        self.first = self._written = -(-self.end // self._per_file) * self._per_file
        self._pending_count = 0
        self._pending.clear()
        self._unsynced.clear()

    def files_before(self, position: int) -> int:
        """How many of the first files have only records that lie before `position`. Raises
        DamagedFiles."""
        numbers = self._file_numbers()[:-1]
        for count, number in enumerate(numbers):
            if self._newest_position(number) >= position:
                return count
        return len(numbers)

    def forget_files(self, count: int) -> list[Path]:
        """Forget the first files: the log begins behind all that they name.

        Returns them: a snapshot that no longer claims them must be durable before they go.
        """
        failpoint("retention.applied")
        numbers = self._file_numbers()[:count]
        self.first += count * self._per_file
        return [path for number in numbers for path in self._paths(number)]

    def _find_in_file(self, number: int, wanted: int) -> list[int]:
        """The positions, the newest first. Another thread may be sorting the file: then the sorted
        one is read."""
        plain, ordered = self._paths(number)
        if not ordered.exists():
            with suppress(FileNotFoundError):
                return self._matching(np.frombuffer(self._content(plain), UNIT), wanted, plain)
        with ordered.open("rb", buffering=0) as file:
            read = partial(self._damage.read, ordered, file.fileno())
            found = _search(read, ordered.stat().st_size // UNIT.itemsize, wanted)
            if found is None:
                self._damage.found(f"{ordered}: a unit does not check")
            return found

    def _content(self, path: Path) -> bytes:
        """The bytes of a whole file. Raises DamagedFiles if the disk has lost a part of it."""
        try:
            return path.read_bytes()
        except OSError as error:
            self._damage.look_at(error, path)
            raise

    def _matching(
        self, units: npt.NDArray[np.void], wanted: int, path: Path | None = None
    ) -> list[int]:
        """The positions of units with a hash, the newest first."""
        if path is not None and not all_check(units["hash"], units["position"]):
            self._damage.found(f"{path}: a unit does not check")
        words = units["position"][units["hash"] == np.uint64(wanted)]
        found: list[int] = (words & POSITION_MASK)[::-1].tolist()
        return found

    def _newest_position(self, number: int) -> int:
        plain, ordered = self._paths(number)
        if ordered.exists():
            both = np.frombuffer(self._content(ordered), U64)
            hashes, words = both[: self._per_file], both[self._per_file :]
        else:
            units = np.frombuffer(self._content(plain), UNIT)
            hashes, words = units["hash"], units["position"]
        if not all_check(hashes, words):
            self._damage.found(f"{plain}: a unit does not check")
        return int((words & POSITION_MASK).max())

    def _file_numbers(self) -> list[int]:
        return list(range(self.first, self._written, self._per_file))

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:020}"

    def _paths(self, number: int) -> tuple[Path, Path]:
        """The paths of a file, unsorted and sorted: one of them exists."""
        plain = self._path(number)
        return plain, plain.with_name(plain.name + _SORTED)


def _search(read: Callable[[int, int], bytes], count: int, wanted: int) -> list[int] | None:
    """The positions of units with a hash in a sorted file of `count`, the newest first; None if a
    unit does not check.

    `read` takes a size and an offset. The file is not mapped: there the process would end where the
    disk has lost something.
    """
    rotten = False

    def hash_of(number: int) -> int:
        nonlocal rotten
        (value,) = _U64_STRUCT.unpack(read(8, number * 8))
        (word,) = _U64_STRUCT.unpack(read(8, (count + number) * 8))
        rotten = rotten or not checks(value, word)
        return int(value)

    begin = bisect_left(range(count), wanted, key=hash_of)
    end = bisect_right(range(count), wanted, begin, key=hash_of)
    hashes = np.frombuffer(read((end - begin) * 8, begin * 8), U64)
    words = np.frombuffer(read((end - begin) * 8, (count + begin) * 8), U64)
    if rotten or not all_check(hashes, words):
        return None
    return sorted((words & POSITION_MASK).tolist(), reverse=True)


def _write_sorted(path: Path, units: npt.NDArray[np.void]) -> None:
    order = np.argsort(units["hash"], kind="stable")
    new = path.with_name(path.name + ".new")
    with new_file(new) as file:
        file.write(units["hash"][order].tobytes())
        file.write(units["position"][order].tobytes())
        file.flush()
        os.fsync(file.fileno())
    new.replace(path.with_name(path.name + _SORTED))
