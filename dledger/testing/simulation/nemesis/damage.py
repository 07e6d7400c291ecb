"""Disks of a simulated group that are damaged: how they come to it, and how much a group bears.

Entries are damaged under a stopped node, so that its start must notice, or in sealed segments
under a running one, which may not notice for long. Either only while those that are well, and
hold what they have ever acknowledged, are a majority of everybody who may be counted: what is
damaged in too many places can't be repaired by anybody, and the group is right to stand still.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from dledger.log.entry import HEADER_BYTES, Kind
from dledger.log.hard_state import HardStateFile
from dledger.log.scanning.checkpoint import decode_checkpoint
from dledger.log.scanning.tail import decode_watermark
from dledger.log.segments.segment import segment_path
from dledger.log.store import SegmentedLog
from dledger.testing.disk import SimulatedDisk
from dledger.testing.simulation.judge.configurations import is_majority
from dledger.testing.simulation.judge.invariants import Judge
from dledger.testing.simulation.node import FOLDER
from dledger.testing.simulation.streams import Streams

HEADER_ROTS = 0.5
UNREADABLE = 0.3
"""The odds that damage is something which the disk can't read any more."""
NEWEST = 0.15
"""The odds that the newest segments are gone, and the checkpoint with them."""
SHORTENED = 0.3
"""The odds that this is the end of a file, which is gone."""


class Bearing(Protocol):
    """The group whose disks are damaged."""

    streams: Streams
    judge: Judge
    node_ids: list[str]
    disks: dict[str, SimulatedDisk]

    def note(self, text: str) -> None:
        """Write a line of the transcript."""


class Damages:
    """Which nodes' disks are damaged, found or not."""

    def __init__(self, group: Bearing) -> None:
        self.damaged = group.judge.damaged
        self._rotten: dict[str, RottenEntry] = {}
        self._group = group

    def damage(self, node_id: str, log: SegmentedLog, rng: random.Random) -> str | None:
        """Damage what was durable for sure on the disk of a stopped node; what was done."""
        streams = self._group.streams
        draws = rng, streams["unreadable"], streams["shortened"], streams["newest"]
        what = damage_log(self._group.disks[node_id], log, *draws)
        if what is not None:
            self._group.note(f"on the disk of {node_id} {what}")
            self.damaged.add(node_id)
        return what

    def let_rot(self, node_id: str, log: SegmentedLog, rng: random.Random) -> None:
        """Damage an entry of a sealed segment while its node runs."""
        which = self._group.streams["rot_header"]
        rotten = rot_entry(self._group.disks[node_id], log, rng, which)
        if rotten is not None:
            self._group.note(f"on the disk of {node_id} entry {rotten.index} rots")
            self.damaged.add(node_id)
            self._rotten[node_id] = rotten
            self._group.judge.rotten[node_id] = rotten.index

    def started(self, node_id: str) -> None:
        """A node takes part: its log is whole, but for what it has not looked at."""
        if not self.is_rotten(node_id):
            self.damaged.discard(node_id)

    def replaced(self, node_id: str) -> None:
        """A node has another disk."""
        self.damaged.discard(node_id)
        self._rotten.pop(node_id, None)

    def is_rotten(self, node_id: str) -> bool:
        """Whether an entry that rotted is still there."""
        rotten = self._rotten.get(node_id)
        return rotten is not None and rotten.is_there(self._group.disks[node_id])

    # -- what the group can bear -----------------------------------------------------------

    def may_rot(self, node_id: str) -> bool:
        """Whether a leader is left to repair a node whose entry rots."""
        return node_id not in self.damaged and self._bears({*self.damaged, node_id}, node_id)

    def may_lose_disk(self, node_id: str) -> bool:
        """Whether commits survive the loss of a disk: most of the others must hold their own."""
        return self._bears(self.damaged, node_id)

    def may_belong(self, members: Collection[str], voters: Collection[str]) -> bool:
        """Whether a group of these members could go on, in spite of damaged ones."""
        return not self.damaged or self._is_led(members, voters, self.damaged, ())

    def _bears(self, damaged: Collection[str], without: str) -> bool:
        judge = self._group.judge
        possible = judge.configurations.possible(judge.committed)
        # A node that takes itself for a learner does not stand for election: it is no help yet.
        learning = {*possible[-1][1]} - frozenset.intersection(*[voters for _, voters in possible])
        away = {without, *learning} if damaged else {without}
        return all(self._is_led(*members, damaged, away) for members in possible)

    def _is_led(
        self,
        members: Collection[str],
        voters: Collection[str],
        damaged: Collection[str],
        away: Collection[str],
    ) -> bool:
        """Whether undamaged nodes are a majority, also if damaged learners become voters."""
        well = {*self._group.node_ids} - {*damaged, *away}
        eligible = [node_id for node_id in well if self._holds_its_own(node_id)]
        return is_majority(eligible, {*voters, *({*members} & {*damaged})})

    def _holds_its_own(self, node_id: str) -> bool:
        """Whether its eligibility would outlive a power loss: the sync of it may have failed."""
        path, disk, kept = FOLDER / "term", self._group.disks[node_id], SimulatedDisk()
        kept.replace(path, disk.durable_bytes(path, 0, disk.size(path) or 0))
        return HardStateFile(path, kept).state.eligible


def damage_log(
    disk: SimulatedDisk,
    log: SegmentedLog,
    rng: random.Random,
    unread: random.Random,
    shortened: random.Random,
    newest: random.Random,
) -> str | None:
    """Damage entries that were durable for sure, so that a start must notice; what was done.

    None if there are no such entries. The checkpoint goes, so that a start reads everything, unless
    the newest segment goes: only the checkpoint shows that for sure. `unread` draws what can't be
    read, `shortened` what of it lies behind a file's end, `newest` how many of the newest segments
    go with the checkpoint.
    """
    watermark = _watermark(disk, log)
    if watermark < log.first_index:
        return None
    header = log.reader.header(rng.randint(log.first_index, watermark))
    base = header.position - header.position % log.segment_bytes
    path, offset = segment_path(FOLDER, base), header.position - base
    kind = rng.random()
    last = log.reader.segments()[-1]
    known = decode_checkpoint(disk.read(FOLDER / "checkpoint"))
    if kind > 0.9 and last.first_index <= known.commit_index:
        disk.remove(segment_path(FOLDER, last.base_position))
        disk.sync_folder(FOLDER)
        return f"the newest segment, from entry {last.first_index} on, is gone"
    disk.remove(FOLDER / "checkpoint")
    disk.sync_folder(FOLDER)
    if newest.random() < NEWEST:
        lost = log.reader.segments()[-newest.randint(1, 3) :]
        before = log.reader.segments()[: -len(lost)]
        if before and lost[0].first_index <= _mark(disk, before[-1].base_position):
            for segment in lost:
                disk.remove(segment_path(FOLDER, segment.base_position))
            disk.sync_folder(FOLDER)
            return f"the newest segments, from entry {lost[0].first_index} on, are gone"
    sealed = [
        segment.base_position
        for segment, following in pairwise(log.reader.segments())
        if following.first_index - 1 <= watermark
    ]
    if kind < 0.1 and base in sealed:
        disk.remove(path)
        disk.sync_folder(FOLDER)
        return f"the segment with entry {header.index} is gone"
    if kind < 0.3:
        disk.zero(path, offset, header.size)
        return f"entry {header.index} is all zeros"
    if unread.random() < UNREADABLE:
        if shortened.random() < SHORTENED:
            disk.shorten(path, offset + shortened.randrange(header.size))
            return f"the file with entry {header.index} ends within it"
        disk.lose(path, offset + unread.randrange(header.size))
        if unread.random() < 0.5:
            disk.lose(path, log.segment_bytes - 1)
            return f"entry {header.index} and the segment's watermark can't be read"
        return f"entry {header.index} can't be read"
    count = rng.randint(1, 3)
    # A set: a bit that flips twice is none.
    for at, bit in {(rng.randrange(header.size), rng.randrange(8)) for _ in range(count)}:
        disk.flip_bit(path, offset + at, bit)
    return f"bits of entry {header.index} flip"


def _watermark(disk: SimulatedDisk, log: SegmentedLog) -> int:
    """The position below which a start knows entries as durable; damage above it is cut."""
    return max((_mark(disk, segment.base_position) for segment in log.reader.segments()), default=0)


def _mark(disk: SimulatedDisk, base_position: int) -> int:
    return decode_watermark(memoryview(disk.read(segment_path(FOLDER, base_position))))


@dataclass(frozen=True, slots=True)
class RottenEntry:
    """An entry that rots in a sealed segment, and its bytes as they were."""

    index: int
    path: Path
    offset: int
    raw: bytes

    def is_there(self, disk: SimulatedDisk) -> bool:
        """Whether the file still has that entry, and it is not repaired."""
        if disk.size(self.path) is None:
            return False
        raw = disk.read_part(self.path, self.offset, len(self.raw))
        # Damage is a single bit: if header and body both differ, the entry is another.
        header_is_same = raw[:HEADER_BYTES] == self.raw[:HEADER_BYTES]
        return header_is_same != (raw[HEADER_BYTES:] == self.raw[HEADER_BYTES:])


def rot_entry(
    disk: SimulatedDisk, log: SegmentedLog, rng: random.Random, which: random.Random
) -> RottenEntry | None:
    """Flip a bit of an entry of a sealed segment, in its body or its header; None if there is none.

    `which` draws the part. Only of a message's header: the judge asks the logs who the members are.
    """
    sealed = log.reader.sealed(min(log.commit_index, log.durable_index, _watermark(disk, log)))
    if not sealed:
        return None
    segment = rng.choice(sealed)
    index = segment.first_index + rng.randrange(len(segment.offsets))
    header = segment.header(index)
    if header.position < segment.base_position or not header.body_length:
        return None
    offset = header.position - segment.base_position
    raw = disk.read_part(segment.path, offset, header.size)
    at = HEADER_BYTES + rng.randrange(header.body_length)
    if header.kind == Kind.MESSAGES and which.random() < HEADER_ROTS:
        at = which.randrange(HEADER_BYTES)
    disk.flip_bit(segment.path, offset + at, 2)
    return RottenEntry(index, segment.path, offset, raw)
