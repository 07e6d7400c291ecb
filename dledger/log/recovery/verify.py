"""Checks a replica's folder, of a stopped or a running node, without changing a byte.

A start reads only what it must and stops at the first fault. This check reads everything and goes
on after each fault, so that an operator sees how much is affected before deciding what to do. There
are three kinds of faults:

- ``damaged``: bytes that were durable once, and may have been acknowledged, can't be read any more.
  In segments the leader can repair them; elsewhere the node refuses to start;
- ``torn``: an incomplete entry behind the last index that was surely durable. A start wipes it. On
  a running node it may be an entry that is being written;
- ``stale``: derived data that does not fit the log. A start reads more, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dledger.errors import CorruptLog
from dledger.limits import VERIFY_FAULTS_MAX
from dledger.log.disk import Disk, Unreadable, mapped
from dledger.log.entry import Header, padded
from dledger.log.hard_state import HardState, read_slots
from dledger.log.head import decode_head
from dledger.log.recovery.rescue import STEP_BYTES, pieces
from dledger.log.replica import describe_replica, is_held
from dledger.log.scanning.checkpoint import Checkpoint, SealedSegment, decode_checkpoint
from dledger.log.scanning.scan import Found, scan_entries
from dledger.log.scanning.tail import (
    EVERYTHING,
    WATERMARK_BYTES,
    decode_watermark,
    encode_watermark,
)
from dledger.log.segments.segment import segment_path

Severity = Literal["damaged", "torn", "stale"]
OnEntry = Callable[[int, Found], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong: in which file, at which byte of it, and at which entry if that is known."""

    severity: Severity
    file: str
    offset: int
    index: int | None
    what: str


@dataclass(slots=True)
class Verification:
    """The content of a folder, as a check found it. Indexes count from 1; 0 means none."""

    directory: str
    group: str
    node_id: str
    in_use: bool
    segment_bytes: int
    segments: int
    term: int = 0
    vote: str | None = None
    #: Everything up to here was durable once, by the watermarks and the checkpoint.
    durable_index: int = 0
    #: The commit index that the last checkpoint knew.
    commit_index: int = 0
    first_index: int = 0
    last_index: int = 0
    last_term: int = 0
    last_chain_crc: int = 0
    end_position: int = 0
    entries: int = 0
    damaged: int = 0
    torn: int = 0
    stale: int = 0
    faults: list[Fault] = field(default_factory=list)
    #: Whether all that is damaged are entries, which a leader has.
    is_repairable: bool = True

    def note(self, fault: Fault, *, repairable: bool = True) -> None:
        """Count a fault, and keep it while there are few."""
        self.is_repairable &= repairable
        setattr(self, fault.severity, getattr(self, fault.severity) + 1)
        if len(self.faults) < VERIFY_FAULTS_MAX:
            self.faults.append(fault)


def verify_replica(folder: Path, on_entry: OnEntry = lambda base, found: None) -> Verification:
    """Read all of a replica. `on_entry` is called with the base position of a segment and each
    entry or fault in it.

    Raises ConfigError if the folder is no replica's, OSError if it may not be read.
    """
    about = describe_replica(folder)
    result = Verification(
        directory=str(folder),
        group=about.group,
        node_id=about.node_id,
        in_use=is_held(folder),
        segment_bytes=about.segment_bytes,
        segments=len(about.segments),
    )
    checkpoint = _read_checkpoint(folder / "log", result)
    _read_watermarks(folder / "log", about.segments, checkpoint, result)
    begins_at = _read_head(folder / "log", result)
    _Walk(folder / "log", checkpoint, result, on_entry).run(about.segments, begins_at)
    _read_hard_state(folder / "log", result)
    return result


def _content(path: Path) -> bytes:
    """A small file's bytes; none if it is not there, and such as nothing is made of if the disk
    can't read them."""
    try:
        return Disk().read(path)
    except Unreadable:
        return b"\xff"


def _read_checkpoint(folder: Path, result: Verification) -> Checkpoint:
    path = folder / "checkpoint"
    checkpoint = decode_checkpoint(_content(path))
    if path.exists() and checkpoint == Checkpoint():
        what = "it does not check; a start reads the whole log"
        result.note(Fault("stale", "checkpoint", 0, None, what))
    result.commit_index = checkpoint.commit_index
    return checkpoint


def _read_head(folder: Path, result: Verification) -> int | None:
    """The position where the log begins; None if that can't be said, or all of it is void.

    It is read after the segments' names: it goes forward only, so none seems to be missing that
    retention removes meanwhile.
    """
    try:
        head = decode_head(_content(folder / "head"))
    except CorruptLog as error:
        result.note(Fault("damaged", "head", 0, None, str(error)), repairable=False)
        return None
    return None if head.replacing else head.base_position


def _read_watermarks(
    folder: Path, bases: tuple[int, ...], checkpoint: Checkpoint, result: Verification
) -> None:
    result.durable_index = checkpoint.commit_index
    disk, at = Disk(), result.segment_bytes - WATERMARK_BYTES
    for path in (segment_path(folder, base) for base in bases):
        size_bytes = disk.size(path)
        if size_bytes is None:  # removed meanwhile by retention
            continue
        if size_bytes > result.segment_bytes:
            what = f"the file has {size_bytes} bytes, more than a segment: a start refuses it"
            result.note(
                Fault("damaged", path.name, result.segment_bytes, None, what), repairable=False
            )
        if size_bytes < result.segment_bytes:
            what = "the file has lost its end, and with it how far it was durable"
            result.note(Fault("damaged", path.name, size_bytes, None, what))
            continue
        try:
            raw = disk.read_part(path, at, WATERMARK_BYTES)
        except Unreadable:
            continue  # that is noted for the segment
        durable_index = decode_watermark(memoryview(raw))
        if durable_index == EVERYTHING:
            what = "the disk had lost a part of it, and no leader has repaired it to the end yet"
            result.note(Fault("damaged", path.name, at, None, what))
            continue
        written = raw.rstrip(b"\0")
        if written and not encode_watermark(durable_index).startswith(written):
            what = "the watermark does not check; damage may be taken for a torn tail"
            result.note(Fault("stale", path.name, at, None, what))
        result.durable_index = max(result.durable_index, durable_index)


def _read_hard_state(folder: Path, result: Verification) -> None:
    """Term and vote, as a start would read them."""
    content = _content(folder / "term")
    good = read_slots(content)
    result.term, result.vote = (state := good[-1][1] if good else HardState()).term, state.vote
    if not good and any(content):
        what = "neither copy of term and vote can be read: the node could vote twice"
        result.note(Fault("damaged", "term", 0, None, what), repairable=False)
    elif result.last_term > state.term:
        what = (
            f"the saved term is {state.term}, but the log has entries of term {result.last_term}: "
            "the file was lost, or replaced by an older one"
        )
        result.note(Fault("damaged", "term", 0, result.last_index, what), repairable=False)


class _Walk:
    """The state of one pass: the last entry so far, and what must follow it."""

    def __init__(
        self, folder: Path, checkpoint: Checkpoint, result: Verification, on_entry: OnEntry
    ) -> None:
        self._folder = folder
        self._sealed = {summary.base_position: summary for summary in checkpoint.sealed}
        self._result = result
        self._on_entry = on_entry
        self._last: Header | None = None

    def run(self, bases: tuple[int, ...], begins_at: int | None) -> None:
        """Walk all segments; `begins_at` is where the first one must stand, if that is known."""
        result = self._result
        if bases and begins_at is not None and bases[0] > begins_at:
            self._miss(begins_at, bases[0])
        for number, base in enumerate(bases):
            if number and base != bases[number - 1] + result.segment_bytes:
                self._miss(bases[number - 1] + result.segment_bytes, base)
            self._read(base)
        if self._last is not None:
            result.last_index, result.last_term = self._last.index, self._last.term
            result.last_chain_crc, result.end_position = self._last.chain_crc, self._last.end
        if result.last_index < result.durable_index:
            what = (
                f"the log ends at entry {result.last_index}, although it was durable up to "
                f"{result.durable_index}"
            )
            result.note(Fault("damaged", "log", 0, result.last_index + 1, what))

    @property
    def _next_index(self) -> int | None:
        return None if self._last is None else self._last.index + 1

    def _miss(self, first: int, following: int) -> None:
        what = f"the segments of positions {first} to {following} are missing"
        self._note(first, 0, what)

    def _read(self, base: int) -> None:
        """Walk the entries of one segment."""
        # If the log's head was removed, the chain continues a value that went with it.
        previous = self._last.chain_crc if self._last else None if base else 0
        before = self._last
        path = segment_path(self._folder, base)
        if (lost_at := self._lost_at(path)) is not None:
            self._note(base, lost_at, "the disk can't read it: the rest of the segment is unknown")
            return
        with mapped(path) as raw:
            if raw is None:  # removed meanwhile by retention
                return
            size = self._result.segment_bytes
            for found in scan_entries(raw, base, size, previous, verify=True):
                self._on_entry(base, found)
                self._take(base, found)
        summary = self._sealed.get(base)
        if summary is not None and self._last is not before:
            self._check_summary(summary)

    def _lost_at(self, path: Path) -> int | None:
        """The first offset that the disk can't read; to look there in a mapping ends a process."""
        disk, lost_at = Disk(), None
        with suppress(FileNotFoundError):  # removed meanwhile by retention
            for step_bytes in (STEP_BYTES, disk.page_bytes):
                every = pieces(disk, path, disk.size(path) or 0, step_bytes)
                lost_at = next((offset for offset, raw in every if raw is None), None)
                if lost_at is None:
                    break
        return lost_at

    def _take(self, base: int, found: Found) -> None:
        result, header = self._result, found.header
        if found.error is not None:
            self._note(base, found.offset, found.error)
        if header is None:
            return
        wanted = self._next_index
        if wanted is not None and header.index != wanted:
            what = f"entry {header.index} stands where {wanted} must follow"
            self._note(base, found.offset, what)
        if self._last is not None and header.term < self._last.term:
            what = f"entry {header.index} of term {header.term} follows one of {self._last.term}"
            self._note(base, found.offset, what)
        result.entries += 1
        result.first_index = result.first_index or header.index
        self._last = header

    def _note(self, base: int, offset: int, what: str) -> None:
        index = self._next_index or 1
        severity: Severity = "damaged" if index <= self._result.durable_index else "torn"
        name = segment_path(self._folder, base).name
        self._result.note(Fault(severity, name, offset, index, what))

    def _check_summary(self, summary: SealedSegment) -> None:
        assert self._last is not None
        last = self._last
        end = last.position - summary.base_position + padded(last.size)
        found = last.index, last.chain_crc, end
        if found != (summary.last_index, summary.last_chain_crc, summary.end):
            name = segment_path(self._folder, summary.base_position).name
            what = "the checkpoint's summary of it does not hold; a start reads the segment"
            self._result.note(Fault("stale", name, 0, summary.last_index, what))
