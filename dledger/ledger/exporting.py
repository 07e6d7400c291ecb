"""A consistent copy of a replica, made while it serves.

What is copied is the committed prefix of the log, as far as it is durable here: no later write, cut
or leader changes a byte of it. Segments that lie wholly in it are hard links where the file system
has them, so they cost no room and no time; the tail is copied up to its last committed entry, and
the rest of that file stays zero, as if nothing had been written behind it.

**Half a copy is never taken for one.** A copy begins with the file `export.partial` and ends when
`export.json`, the manifest, has been renamed into place; every file is durable by then. If it
fails, all of it is removed again. After a crash the file `export.partial` tells. A copy is to be
read, and a node refuses to start on it: it would not know of what was promised later.

**Retention may go on.** It removes the oldest segments first, so links are made from the newest to
the oldest, and the first file that is not there any more ends them: then the copy begins behind it.
A file that is linked already, or open, stays.

**A log without its beginning needs the state before it.** So the copy has the state machine's last
snapshot, too, if there is one. Invariant: it reaches from before the copy's first entry to its last
one at most. It was opened when the plan was made, when it held nothing that was not committed and
durable; if retention then removes what lies behind it, the copy is refused.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from dledger import limits
from dledger.errors import StorageError
from dledger.limits import FOLDER_MODE
from dledger.log.disk import Disk, copy_whole, make_folder, new_file
from dledger.log.head import LogHead, decode_head, encode_head
from dledger.log.replica import MANIFEST_FILE, PARTIAL_FILE, Manifest, identity_of
from dledger.log.scanning.tail import WATERMARK_BYTES, encode_watermark
from dledger.log.segments.segment import segment_path
from dledger.log.store import SegmentedLog

#: Hard links can't be made: another file system, or one without them.
_NO_LINKS: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EACCES}
)


@dataclass(frozen=True, slots=True)
class SavedState:
    """The state machine's snapshot, as an open file, and an entry that it reaches at least."""

    file: BinaryIO
    name: str
    index: int


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The plan of a copy of a replica: the committed prefix of its log, as it was at one moment.

    `bases` are the first positions of its segments, in order; the last one has the last entry.
    `state` must be opened in the turn of the loop in which the plan is made.
    """

    folder: Path
    group: str
    node_id: str
    segment_bytes: int
    bases: tuple[int, ...]
    last_index: int
    last_term: int
    last_chain_crc: int
    end_position: int
    head: LogHead
    state: SavedState | None = None


@dataclass(slots=True)
class Progress:
    """How far a copy is, for whoever asks meanwhile."""

    segments: int
    done: int = 0
    linked: int = 0
    copied_bytes: int = 0


class Export:
    """A copy of a replica under way. `run` is slow: call it in a thread. `cancelled` makes it end
    soon, and clean up."""

    def __init__(self, plan: ExportPlan, target: Path) -> None:
        self.plan = plan
        self.target = target
        self.progress = Progress(len(plan.bases))
        self.cancelled = False
        self._disk = Disk()

    def run(self, made_at_ms: int) -> Manifest:
        """Make the copy; returns its manifest. Raises StorageError, and leaves no files then."""
        self._refuse_full_disk()
        self._make_target()
        try:
            return self._fill(made_at_ms)
        except BaseException as error:
            shutil.rmtree(self.target, ignore_errors=True)
            if isinstance(error, OSError):
                raise StorageError(
                    f"the copy in {self.target} failed and is removed: {error.strerror}; the "
                    "replica itself is as it was"
                ) from error
            raise

    def _refuse_full_disk(self) -> None:
        """Refuse a copy that would not leave room for the log to go on."""
        above = next(path for path in self.target.parents if path.exists())
        free_bytes = shutil.disk_usage(above).free
        needed_bytes = limits.EXPORT_SEGMENTS_FREE_MIN * self.plan.segment_bytes
        same_disk = above.stat().st_dev == (self.plan.folder / "log").stat().st_dev
        needed_bytes += self.plan.segment_bytes * (1 if same_disk else len(self.plan.bases))
        if free_bytes < needed_bytes:
            raise StorageError(
                f"{above} has {free_bytes >> 20} MiB free; the copy may take, with room left for "
                f"the log, {needed_bytes >> 20} MiB: make room or export to another disk"
            )

    def _make_target(self) -> None:
        try:
            make_folder(self.target.parent)
            self.target.mkdir(FOLDER_MODE)
        except FileExistsError:
            raise StorageError(
                f"{self.target} exists already: remove it, or name another place"
            ) from None
        except OSError as error:
            raise StorageError(f"{self.target} can't be made: {error.strerror}") from error

    def _fill(self, made_at_ms: int) -> Manifest:
        plan, folder = self.plan, self.target / "log"
        self._write(self.target / PARTIAL_FILE, b"{}")
        self._disk.sync_folder(self.target.parent)
        folder.mkdir(FOLDER_MODE)
        *whole, last = plan.bases
        used_bytes = plan.end_position - last
        self._copy(last, used_bytes)
        self._mark(last)
        self.progress.done += 1
        first = self._link_all(whole, last)
        first, first_index = self._write_head(first, last)
        self._copy_state(first_index)
        identity = identity_of(plan.group, plan.node_id, plan.segment_bytes)
        self._write(folder / "term", self._disk.read(plan.folder / "log" / "term"))
        self._write(self.target / "replica.json", json.dumps(identity).encode())
        self._disk.sync_folder(folder)
        manifest = Manifest(
            version=1,
            made_at_ms=made_at_ms,
            first_position=first,
            end_position=plan.end_position,
            last_index=plan.last_index,
            last_term=plan.last_term,
            last_chain_crc=plan.last_chain_crc,
            segments=sum(base >= first for base in plan.bases),
            linked=self.progress.linked,
            copied_bytes=self.progress.copied_bytes,
            state_index=plan.state.index if plan.state else 0,
        )
        self._disk.replace(
            self.target / MANIFEST_FILE,
            msgspec.json.format(msgspec.json.encode(manifest), indent=1),
        )
        (self.target / PARTIAL_FILE).unlink()
        self._disk.sync_folder(self.target)
        return manifest

    def _link_all(self, whole: list[int], first: int) -> int:
        """Link or copy the segments before the last, newest first; where the copy begins."""
        for base in reversed(whole):
            if self.cancelled:
                raise StorageError(f"the copy in {self.target} was broken off and is removed")
            try:
                self._link(base)
            except FileNotFoundError:
                break  # removed by retention, as all before it are
            first = base
            self.progress.done += 1
        return first

    def _link(self, base: int) -> None:
        source, target = self._paths(base)
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._copy(base, self.plan.segment_bytes)
        else:
            self.progress.linked += 1

    def _paths(self, base: int) -> tuple[Path, Path]:
        folders = self.plan.folder / "log", self.target / "log"
        source, target = (segment_path(folder, base) for folder in folders)
        return source, target

    def _copy(self, base: int, used_bytes: int) -> None:
        """Copy the beginning of a segment's file; the rest is a hole of zeros. Durable."""
        source, target = self._paths(base)
        with source.open("rb") as read, new_file(target, os.O_EXCL) as written:
            written.truncate(self.plan.segment_bytes)
            left_bytes = used_bytes
            while left_bytes:
                began_s = time.monotonic()
                data = read.read(min(left_bytes, limits.EXPORT_PART_BYTES))
                if not data:
                    raise StorageError(f"{source} ends before the log does")
                if self.cancelled:
                    raise StorageError(f"the copy in {self.target} was broken off and is removed")
                written.write(data)
                left_bytes -= len(data)
                self.progress.copied_bytes += len(data)
                took_s = time.monotonic() - began_s
                time.sleep(max(0.0, len(data) / limits.EXPORT_BYTES_PER_S - took_s))
            written.flush()
            os.fsync(written.fileno())

    def _mark(self, base: int) -> None:
        """All that is in the last segment's copy is durable."""
        _, target = self._paths(base)
        with target.open("r+b") as file:
            file.seek(self.plan.segment_bytes - WATERMARK_BYTES)
            file.write(encode_watermark(self.plan.last_index))
            file.flush()
            os.fsync(file.fileno())

    def _write_head(self, first: int, last: int) -> tuple[int, int]:
        """Say where the copy begins, if its first segments are gone; drop what lies before.

        Returns its first position and the index of its first entry.
        """
        head = self.plan.head
        if first > head.base_position:
            # Retention was faster: by now its own head is behind what was linked, or at it.
            head = decode_head(self._disk.read(self.plan.folder / "log" / "head"))
        if head.base_position > last or head.replacing:
            raise StorageError(f"the log of {self.plan.folder} was replaced meanwhile: try again")
        for base in self.plan.bases:
            if first <= base < head.base_position:
                with suppress(FileNotFoundError):
                    self._paths(base)[1].unlink()
        if head.base_position:
            self._write(self.target / "log" / "head", encode_head(head))
        return max(first, head.base_position), head.first_index

    def _copy_state(self, first_index: int) -> None:
        """Copy the snapshot that was open when the copy was planned."""
        state = self.plan.state
        if state is None:
            return
        if first_index > state.index + 1:
            raise StorageError(
                f"retention went past the snapshot of {self.plan.folder} meanwhile, so nothing "
                "could be restored from this copy; it is removed: try again"
            )
        self.progress.copied_bytes += copy_whole(state.file, self.target / state.name)

    def _write(self, path: Path, data: bytes) -> None:
        with new_file(path, os.O_EXCL) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def digests(log: SegmentedLog, commit_index: int) -> list[tuple[int, int]]:
    """Indices of committed, durable entries, and the chain CRC of each.

    It speaks for all entries up to there, so members whose logs are alike have the same one at the
    same index. The last entry is in the list, and the last ones whose indices are round: members
    whose logs grow while they are asked have one of these in common.
    """
    last = min(commit_index, log.durable_index)
    indices = {last - last % step for step in limits.DIGEST_STEPS}
    return [
        (index, log.reader.header(index).chain_crc)
        for index in sorted(indices)
        if index >= log.first_index
    ]
