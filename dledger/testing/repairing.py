"""Simulated nodes whose logs are damaged: how they come to it, and how they ask for help."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from dledger.errors import FrameError
from dledger.log.entry import HEADER_BYTES
from dledger.log.hard_state import HardStateFile
from dledger.log.recovery import decode_watermark
from dledger.log.repair import DamagedLog, LogRepair
from dledger.log.segment import segment_path
from dledger.log.store import SegmentedLog
from dledger.raft.messages import PeerKind, decode_message, encode_message
from dledger.raft.repair import ASK_AGAIN_S, Asking
from dledger.testing.disk import SimulatedDisk
from dledger.testing.network import Network, SimulatedLink
from dledger.testing.node import FOLDER


class Linked(Protocol):
    """What is needed of the group."""

    network: Network
    node_ids: list[str]


class RepairingNode:
    """A node that takes no part but for asking, as :mod:`dledger.opening` does."""

    def __init__(
        self,
        node_id: str,
        group: Linked,
        disk: SimulatedDisk,
        segment_bytes: int,
        damage: DamagedLog,
    ) -> None:
        self.node_id = node_id
        self.place = damage.place
        self.repair = LogRepair(FOLDER, segment_bytes, disk, damage)
        self._group = group
        self._asking = Asking(self.repair, HardStateFile(FOLDER / "term", disk))
        self._asked_at = float("-inf")

    def step(self) -> int | None:
        """Take what has come, ask again; the leader's commit index when the repair is over.

        Raises CorruptLog if the leader can't help.
        """
        network = self._group.network
        peer_ids = [other for other in self._group.node_ids if other != self.node_id]
        for link, frame in network.due(self.node_id, peer_ids):
            message = decode_message(memoryview(frame))
            if message.kind is not PeerKind.GIVEN or not link.alive:
                continue
            try:
                commit_index = self._asking.take(message)
            except FrameError as error:
                link.other.close(str(error))
                continue
            if commit_index is not None:
                return commit_index
            self._ask(link.other)
        if network.now - self._asked_at > ASK_AGAIN_S:
            self._asked_at = network.now
            for peer_id in peer_ids:
                if (self.node_id, peer_id) in network.links:
                    self._ask(network.links[self.node_id, peer_id])
        return None

    def _ask(self, link: SimulatedLink) -> None:
        link.send(encode_message(PeerKind.LACKING, 0, self._asking.question))


def damage_log(disk: SimulatedDisk, log: SegmentedLog, rng: random.Random) -> str | None:
    """Damage entries that were durable for sure, so that a start must notice; what was done.

    None if there are no such entries. The checkpoint goes: a start reads everything.
    """
    bases = [segment.base_position for segment in log.segments()]
    paths = [segment_path(FOLDER, base) for base in bases]
    watermark = max((decode_watermark(memoryview(disk.read(p))) for p in paths), default=0)
    if watermark < log.first_index:
        return None
    header = log.header(rng.randint(log.first_index, watermark))
    base = header.position - header.position % log.segment_bytes
    path, offset = segment_path(FOLDER, base), header.position - base
    disk.remove(FOLDER / "checkpoint")
    disk.sync_folder(FOLDER)
    kind = rng.random()
    sealed = [
        segment.base_position
        for segment, following in pairwise(log.segments())
        if following.first_index - 1 <= watermark
    ]
    if kind < 0.1 and base in sealed:
        disk.remove(path)
        disk.sync_folder(FOLDER)
        return f"the segment with entry {header.index} is gone"
    if kind < 0.3:
        disk.zero(path, offset, header.size)
        return f"entry {header.index} is all zeros"
    for _ in range(rng.randint(1, 3)):
        disk.flip_bit(path, offset + rng.randrange(header.size), rng.randrange(8))
    return f"bits of entry {header.index} flip"


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
        # One bit is another: if header and body both are, it is another entry.
        header_is_same = raw[:HEADER_BYTES] == self.raw[:HEADER_BYTES]
        return header_is_same != (raw[HEADER_BYTES:] == self.raw[HEADER_BYTES:])


def rot_entry(disk: SimulatedDisk, log: SegmentedLog, rng: random.Random) -> RottenEntry | None:
    """Flip a bit in the body of an entry of a sealed segment; None if there is none.

    Not in a header: a follower that is sent one stops, as if the replicas differed, until its
    leader has found the rot. That is safe, but the group may not heal in a run's time.
    """
    sealed = log.sealed(min(log.commit_index, log.durable_index))
    if not sealed:
        return None
    segment = rng.choice(sealed)
    index = segment.first_index + rng.randrange(len(segment.offsets))
    header = segment.header(index)
    if header.position < segment.base_position or not header.body_length:
        return None
    offset = header.position - segment.base_position
    raw = disk.read_part(segment.path, offset, header.size)
    disk.flip_bit(segment.path, offset + HEADER_BYTES + rng.randrange(header.body_length), 2)
    return RottenEntry(index, segment.path, offset, raw)
