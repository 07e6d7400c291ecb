"""Simulated nodes whose logs are damaged, and that take no part but for asking what they lack."""

from __future__ import annotations

from typing import Protocol

from dledger.errors import CorruptLog, FrameError
from dledger.log.hard_state import HardStateFile
from dledger.log.recovery.repair import DamagedLog, LogRepair
from dledger.raft.limits import REPAIR_ASK_AGAIN_S
from dledger.raft.messages import Given, Lacking, decode_message, encode_message
from dledger.raft.replication.repair import Asking
from dledger.testing.disk import Crashed, SimulatedDisk
from dledger.testing.simulation.network import Network, SimulatedLink
from dledger.testing.simulation.node import FOLDER
from dledger.testing.simulation.odds import Odds

CRASH_IN_REPAIR = 0.3


class Repaired(Protocol):
    """The group whose nodes are repaired."""

    odds: Odds
    network: Network
    node_ids: list[str]
    disks: dict[str, SimulatedDisk]
    down_until: dict[str, float]

    def note(self, text: str) -> None:
        """Write a line of the transcript."""

    def cut_off(self, node_id: str) -> None:
        """Break all links of a node."""

    def lose_power(self, node_id: str) -> None:
        """Lose the contents of a machine's memory."""

    def replace_disk(self, node_id: str) -> None:
        """Give a node an empty disk."""


class RepairingNode:
    """A node that takes no part but for asking, as :mod:`dledger.ledger.opening` does."""

    def __init__(
        self,
        node_id: str,
        group: Repaired,
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

    @property
    def wanted_index(self) -> int:
        """Index of the entry that a replica wants next."""
        return self._asking.wanted_index

    def step(self) -> int | None:
        """Take what has come, ask again; the leader's commit index when the repair is over.

        Raises CorruptLog if the leader can't help.
        """
        network = self._group.network
        peer_ids = [other for other in self._group.node_ids if other != self.node_id]
        for link, frame in network.due(self.node_id, peer_ids):
            try:
                message = decode_message(memoryview(frame))
                if not isinstance(message, Given) or not link.alive:
                    continue
                outcome = self._asking.take(message)
            except FrameError as error:
                link.end(str(error))
                continue
            if isinstance(outcome, Lacking):
                self._ask(link.other, outcome)
            elif outcome is not None:
                return outcome
        if network.now - self._asked_at > REPAIR_ASK_AGAIN_S:
            for peer_id in peer_ids:
                if (self.node_id, peer_id) in network.links:
                    self._ask(network.links[self.node_id, peer_id], self._asking.question)
        return None

    def _ask(self, link: SimulatedLink, question: Lacking) -> None:
        self._asked_at = self._group.network.now
        link.send(encode_message(question))


class Repairs:
    """The nodes that are being repaired, and up to where those that were are known to be whole."""

    def __init__(self, group: Repaired) -> None:
        self.under_way: dict[str, RepairingNode] = {}
        self.done = 0
        self._committed_end: dict[str, int] = {}
        self._group = group

    @property
    def wanted(self) -> dict[str, int]:
        """The entry that each of these nodes wants next."""
        return {node_id: node.wanted_index for node_id, node in self.under_way.items()}

    def committed_end(self, node_id: str) -> int | None:
        """Committed end that a leader has told a node, since the node takes no part; asked once."""
        return self._committed_end.pop(node_id, None)

    def begin(self, node_id: str, damage: DamagedLog) -> None:
        """A start has found damage; the node may die while it is repaired."""
        group = self._group
        group.note(f"{node_id} is silent: entry {damage.place.next_index} is damaged")
        disk, segment_bytes = group.disks[node_id], group.odds.segment_bytes
        self.under_way[node_id] = RepairingNode(node_id, group, disk, segment_bytes, damage)

    def step(self) -> None:
        """Continue for nodes that take no part; each starts when its log is whole."""
        for node_id in sorted(self.under_way):
            self._go_on(node_id)

    def _go_on(self, node_id: str) -> None:
        group, node = self._group, self.under_way[node_id]
        try:
            commit_index = node.step()
        except Crashed:
            self.stop(node_id)
            group.note(f"{node_id} dies while its log is repaired")
            group.lose_power(node_id)
            group.down_until[node_id] = group.network.now + 0.1
            return
        except CorruptLog as error:
            self.stop(node_id)
            group.note(f"the operator replaces the disk of {node_id}: {error}")
            group.replace_disk(node_id)
            group.down_until[node_id] = group.network.now + 0.1
            return
        if commit_index is not None:
            self.stop(node_id)
            group.note(f"{node_id}: {node.repair.written} entries up to {commit_index} repaired")
            self.done += 1
            self._committed_end[node_id] = commit_index
            group.down_until[node_id] = group.network.now

    def stop(self, node_id: str) -> None:
        """A node goes, or is whole."""
        del self.under_way[node_id]
        self._group.cut_off(node_id)
