"""Scripted nodes that are connected: a whole group on virtual time, without any randomness.

Messages arrive as soon as they are sent, in order, and nodes take turns by their names, so
everything follows from the script and the time alone. A script may hold messages back, let single
ones through, stop a disk, kill nodes, damage logs. `on_message`, `on_step` and the like are called
for all that happens.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Generator
from functools import partial

from dledger.buffers import Buffer
from dledger.errors import AppendError
from dledger.log.entry import HEADER_BYTES
from dledger.log.hard_state import HardStateFile
from dledger.log.recovery.repair import DamagedLog, LogRepair
from dledger.log.recovery.startup import open_log
from dledger.log.segments.segment import segment_path
from dledger.raft.appends import Appended
from dledger.raft.messages import Given, PeerMessage
from dledger.raft.replication.base_state import Hold
from dledger.raft.replication.repair import Asking
from dledger.testing.disk import SimulatedDisk
from dledger.testing.scripted.node import FOLDER, Recorder, ScriptedNode, Wire

SEGMENT_BYTES = 4096
TICK_S = 0.01
ROUNDS_MAX = 1000
"""Rounds of messages without a pause after which they must be causing each other for ever."""


class Portable(Recorder):
    """A state machine whose state can travel: the number of entries that were applied."""

    def __init__(self, saved_index: int) -> None:
        super().__init__(saved_index)
        self.saved_index = saved_index

    def capture(self) -> Generator[Hold, None, tuple[int, bytes]]:
        """The number of entries that were applied."""
        yield Hold.APPLYING
        return self.applied_index, b"%d applied" % self.applied_index

    def install(self, index: int, payload: Buffer, first_index: int) -> Generator[None, None, None]:
        """Take another's number of entries."""
        yield
        self.applied_index = first_index - 1


class ScriptedGroup:
    """Nodes by name, their disks, and the links between them."""

    def __init__(self, node_ids: Collection[str]) -> None:
        random.seed(3)  # the library draws its timeouts from the module's generator
        self.now = 0.0
        self.on_message: Callable[[str, str, PeerMessage], None] = lambda *_: None
        self.on_step: Callable[[str], None] = lambda _: None
        self.on_cut: Callable[[str, int, int], None] = lambda *_: None
        self.on_repaired: Callable[[str, int], None] = lambda *_: None
        self.nodes: dict[str, ScriptedNode] = {}
        self.repairing: dict[str, Asking] = {}
        self.hanging: set[str] = set()
        self._members = {node_id: {*node_ids} for node_id in node_ids}
        self._disks: dict[str, SimulatedDisk] = defaultdict(SimulatedDisk)
        self._saved: dict[str, int] = defaultdict(int)
        self._silent: set[tuple[str, str]] = set()
        self._held: dict[tuple[str, str], deque[PeerMessage]] = defaultdict(deque)

    # -- nodes that come and go ------------------------------------------------------------

    def start(self, node_id: str, committed_end: int | None = None) -> None:
        """Start a node on what its disk holds. One whose log is damaged only asks for help."""
        members = self._members.setdefault(node_id, {*self.nodes, node_id})
        disk = self._disks[node_id]
        disk.stop_process()
        try:
            log = open_log(FOLDER, SEGMENT_BYTES, disk, committed_end)[0]
        except DamagedLog as damage:
            repair = LogRepair(FOLDER, SEGMENT_BYTES, disk, damage)
            self.repairing[node_id] = Asking(repair, HardStateFile(FOLDER / "term", disk))
        else:
            log.on_cut = partial(self._cut, node_id)
            self.nodes[node_id] = ScriptedNode(
                sorted(members - {node_id}),
                node_id=node_id,
                disk=disk,
                now=self.now,
                segment_bytes=SEGMENT_BYTES,
                log=log,
                machine=Portable(self._saved[node_id]),
                eligible=False,
                seed=sum(node_id.encode()),
            )
            self._disconnect(node_id, members - {*self.nodes})
        for other in sorted({*self.nodes} - {node_id}):
            self.nodes[other].connect(node_id)
            if node_id in self.nodes and other not in members:
                self.nodes[node_id].connect(other)

    def _cut(self, node_id: str, first_index: int, last_index: int) -> None:
        self.on_cut(node_id, first_index, last_index)

    def _disconnect(self, node_id: str, others: Collection[str]) -> None:
        node = self.nodes[node_id]
        for other in sorted(others):
            node.engine.link_down(other, node.wires[other])
            node.wires[other] = Wire()

    def kill(self, node_id: str, *, power: bool = False) -> None:
        """Kill a process or its machine: its links close, and what was under way is lost."""
        del self.nodes[node_id]
        self.hanging.discard(node_id)
        if power:
            self._disks[node_id].lose_power(random.Random(0), keep=0.0)
        for pair in [pair for pair in self._held if node_id in pair]:
            del self._held[pair]
        for other in sorted(self.nodes):
            self._disconnect(other, [node_id])

    def empty(self, node_id: str) -> None:
        """A node that is not up gets a new disk."""
        self._disks[node_id] = SimulatedDisk()
        self._saved[node_id] = 0

    def save_state(self, node_id: str) -> None:
        """A node saves the state of its state machine, so that it has it when it starts again."""
        machine = self.nodes[node_id].machine
        assert isinstance(machine, Portable)
        machine.saved_index = self._saved[node_id] = machine.applied_index

    def damage(self, node_id: str, index: int) -> None:
        """Flip a bit in an entry on the disk of a node, running or not."""
        header = self.nodes[node_id].log.reader.header(index)
        offset = header.position % SEGMENT_BYTES
        path = segment_path(FOLDER, header.position - offset)
        self._disks[node_id].flip_bit(path, offset + HEADER_BYTES, 0)

    # -- what lies between them ------------------------------------------------------------

    def hush(self, sender: str, receiver: str) -> None:
        """Hold back what one node sends to another; the connection stands."""
        self._silent.add((sender, receiver))

    def heal(self) -> None:
        """End all cuts; held messages come first."""
        self._silent.clear()
        for sender, receiver in sorted(self._held):
            self.let_through(sender, receiver, len(self._held[sender, receiver]))

    def let_through(self, sender: str, receiver: str, count: int) -> None:
        """Deliver the first of the messages that are held back."""
        for _ in range(count):
            self._arrive(sender, receiver, self._held[sender, receiver].popleft())

    def _send(self, sender: str, receiver: str, message: PeerMessage) -> None:
        self.on_message(sender, receiver, message)
        if (sender, receiver) in self._silent:
            self._held[sender, receiver].append(message)
        else:
            self._arrive(sender, receiver, message)

    def _arrive(self, sender: str, receiver: str, message: PeerMessage) -> None:
        if receiver in self.repairing and isinstance(message, Given):
            self._repair(receiver, message)
        elif receiver in self.nodes:
            self.nodes[receiver].receive(sender, message)

    def _repair(self, node_id: str, message: Given) -> None:
        outcome = self.repairing[node_id].take(message)
        if not isinstance(outcome, int):
            self._ask(node_id)
            return
        del self.repairing[node_id]
        self.on_repaired(node_id, outcome)
        self.start(node_id, outcome)

    def _ask(self, node_id: str) -> None:
        question = self.repairing[node_id].question
        for other in sorted(self.nodes):
            self._send(node_id, other, question)

    # -- time ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Step all nodes and deliver all messages until there are none left."""
        for _ in range(ROUNDS_MAX):
            sent = 0
            for node_id in sorted(self.nodes):
                node = self.nodes[node_id]
                node.step(sync=node_id not in self.hanging)
                self.on_step(node_id)
                for peer in sorted(node.wires):
                    for message in node.take(peer):
                        self._send(node_id, peer, message)
                        sent += 1
            if not sent:
                return
        raise AssertionError("the group does not come to rest: messages cause messages without end")

    def wait(self, seconds: float) -> None:
        """Pass `seconds` of virtual time, a tick after the other, on all nodes."""
        for node_id in sorted(self.repairing):
            self._ask(node_id)
        for _ in range(round(seconds / TICK_S)):
            self.now += TICK_S
            for node in self.nodes.values():
                node.now = self.now
            self.settle()

    def wait_until(self, holds: Callable[[], bool], limit_s: float = 10.0) -> None:
        """Run virtual time until something holds."""
        give_up_at = self.now + limit_s
        while not holds():
            assert self.now < give_up_at, f"not within {limit_s} s"
            self.wait(TICK_S)

    # -- what is asked of a node -----------------------------------------------------------

    def serves(self, node_id: str) -> bool:
        """Whether a node is up, leads, and takes appends."""
        return node_id in self.nodes and self.nodes[node_id].engine.standing.serving

    def elect(self, node_id: str) -> None:
        """Make a node the first to want a leader, and wait until it serves."""
        self.settle()
        for other in self.nodes.values():
            other.engine.core.election_deadline = self.now + (other.node_id != node_id)
        self.wait_until(lambda: self.serves(node_id))

    def append(self, node_id: str, body: bytes) -> list[Appended | AppendError]:
        """Append at a node; the list gets the outcome. Raises AppendError."""
        return self.nodes[node_id].append(body)
