"""A whole group in one thread, on virtual time, under a seed.

Each node is a real :class:`~dledger.raft.engine.RaftEngine` over a real log on a simulated disk.
The network delays, stalls one way, cuts and restores links; nodes pause, lose power or are killed,
restart; clocks run at different speeds; syncs are slow. After every step the invariants of Raft
are checked against a record of everything that was ever committed, and in the end, when all is
healed, every acknowledged append must be in every log.

A run is determined by its seed (and PYTHONHASHSEED, since the library iterates over sets).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dledger.errors import AppendError, DledgerError
from dledger.log.entry import Entry, Kind
from dledger.log.hard_state import HardStateFile
from dledger.log.startup import open_log
from dledger.log.store import SegmentedLog, SyncJob
from dledger.raft.engine import Appended, RaftEngine
from dledger.raft.library import Role, Timing, use_clock
from dledger.raft.messages import decode_message
from dledger.remoting.command import Buffer
from dledger.testing.disk import SimulatedDisk

SEGMENT_BYTES = 1 << 14
FOLDER = Path("/log")
HEAL_LIMIT_S = 60.0


class Violation(AssertionError):  # noqa: N818 - the field's word for it
    """An invariant does not hold; the text says which, where and when."""


class SimulatedLink:
    """One direction's sending end, held by the node that sends."""

    def __init__(self, network: Network, sender: str, receiver: str) -> None:
        self.sender = sender
        self.receiver = receiver
        self.other: SimulatedLink
        self.alive = True
        self.queued_bytes = 0
        self.in_flight: deque[tuple[float, bytes]] = deque()
        self._network = network

    def send(self, buffers: tuple[Buffer, ...]) -> None:
        """Put a frame on the wire."""
        if self.alive:
            arrives = self._network.now + self._network.delay(self.sender, self.receiver)
            last = self.in_flight[-1][0] if self.in_flight else 0.0
            self.in_flight.append((max(arrives, last), b"".join(buffers)))

    def close(self, reason: str) -> None:
        """Close the connection."""
        self._network.cut(self.sender, self.receiver, reason)


@dataclass
class Network:
    """All links of the group."""

    rng: random.Random
    now: float = 1000.0
    slow: dict[tuple[str, str], float] = field(default_factory=dict)
    stalled_until: dict[tuple[str, str], float] = field(default_factory=dict)
    links: dict[tuple[str, str], SimulatedLink] = field(default_factory=dict)
    on_down: Callable[[SimulatedLink], None] = lambda _: None

    def delay(self, sender: str, receiver: str) -> float:
        """How long a frame sent now takes."""
        return self.slow.get((sender, receiver), 0.001) * self.rng.uniform(0.5, 1.5)

    def connect(self, first: str, second: str) -> tuple[SimulatedLink, SimulatedLink]:
        """A new connection between two nodes."""
        there, back = SimulatedLink(self, first, second), SimulatedLink(self, second, first)
        there.other, back.other = back, there
        self.links[first, second], self.links[second, first] = there, back
        return there, back

    def cut(self, first: str, second: str, reason: str) -> None:
        """Break a connection. Of what is in flight a random first part was received already."""
        for pair in ((first, second), (second, first)):
            link = self.links.pop(pair, None)
            if link is not None:
                keep = self.rng.randint(0, len(link.in_flight))
                while len(link.in_flight) > keep:
                    link.in_flight.pop()
                link.alive = False
                self.on_down(link)

    def due(self, receiver: str) -> list[tuple[SimulatedLink, bytes]]:
        """The frames that reach a node now, in order per link."""
        frames = []
        for (sender, to), link in sorted(self.links.items()):
            if to != receiver or self.stalled_until.get((sender, to), 0.0) > self.now:
                continue
            while link.in_flight and link.in_flight[0][0] <= self.now:
                frames.append((link, link.in_flight.popleft()[1]))
        return frames


class Recorder:
    """The state machine of a simulated node: it reports what it applies."""

    def __init__(self, node_id: str, simulation: Simulation) -> None:
        self.applied_index = 0
        self._node_id = node_id
        self._simulation = simulation

    def apply(self, entry: Entry) -> object:
        """Check the entry against what any node ever applied at its index."""
        self._simulation.check_applied(self._node_id, entry)
        return entry.index

    def leading(self, term: int) -> None:
        """Note a leader that serves."""
        self._simulation.note(f"{self._node_id} serves in term {term}")

    def following(self, leader: str | None, term: int) -> None:
        """Note who is followed."""
        self._simulation.note(f"{self._node_id} follows {leader} in term {term}")


class SimulatedNode:
    """A node that is up."""

    def __init__(self, node_id: str, disk: SimulatedDisk, simulation: Simulation) -> None:
        self.node_id = node_id
        self.disk = disk
        self.simulation = simulation
        self.rate = simulation.rng.uniform(0.95, 1.05)
        self.paused_until = 0.0
        self.sync_done: tuple[float, SyncJob] | None = None
        use_clock(self.clock)
        self.log: SegmentedLog = open_log(FOLDER, SEGMENT_BYTES, disk)[0]
        self.hard_state = HardStateFile(FOLDER / "term", disk)
        self.engine = RaftEngine(
            node_id,
            [other for other in simulation.node_ids if other != node_id],
            self.log,
            self.hard_state,
            Recorder(node_id, simulation),
            sync=True,
            timing=Timing(),
            clock=self.clock,
            rng=random.Random(simulation.rng.random()),
        )

    def clock(self) -> float:
        """This node's own time, in seconds."""
        return self.simulation.network.now * self.rate

    def step(self) -> None:
        """Receive what is due, step, and let a sync end or begin."""
        simulation = self.simulation
        use_clock(self.clock)
        for link, frame in simulation.network.due(self.node_id):
            self.engine.receive(link.sender, link.other, decode_message(memoryview(frame)))
        if self.sync_done is not None and self.sync_done[0] <= simulation.network.now:
            job, self.sync_done = self.sync_done[1], None
            if simulation.rng.random() < 0.5:
                job.run()
            self.engine.synced(job)
        while self.engine.step():
            pass
        if self.sync_done is None:
            job_now = self.log.start_sync()
            if job_now is not None:
                job_now.run()
                self.sync_done = simulation.network.now + simulation.sync_time_s(), job_now


class Simulation:
    """A group, its faults and its judge."""

    def __init__(self, seed: int, size: int = 3) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        random.seed(seed)  # the library draws its timeouts from the module's generator
        self.network = Network(self.rng)
        self.network.on_down = self._link_down
        self.node_ids = [f"n{at}" for at in range(size)]
        self.disks = {node_id: SimulatedDisk() for node_id in self.node_ids}
        self.nodes: dict[str, SimulatedNode] = {}
        self.down_until: dict[str, float] = {}
        self.transcript: list[str] = []
        self.committed: dict[int, tuple[int, int]] = {}
        self.acknowledged: dict[int, tuple[int, bytes]] = {}
        self.leaders: dict[int, str] = {}
        self.elections = 0
        self._sent = 0
        self._max_leader_end: dict[tuple[str, int], int] = {}
        for node_id in self.node_ids:
            self.start(node_id)
        self._reconnect(probability=1.0)

    # -- what happens ----------------------------------------------------------------------

    def note(self, text: str) -> None:
        """A line of the transcript."""
        self.transcript.append(f"{self.network.now - 1000:9.4f}  {text}")

    def sync_time_s(self) -> float:
        """How long a sync takes: mostly quick, sometimes not."""
        return self.rng.choice((0.0005, 0.002, 0.01, 0.05 if self.rng.random() < 0.2 else 0.001))

    def start(self, node_id: str) -> None:
        """Start a node on what its disk holds."""
        self.nodes[node_id] = SimulatedNode(node_id, self.disks[node_id], self)
        self.note(f"{node_id} starts, log ends at {self.nodes[node_id].log.last_index}")

    def crash(self, node_id: str, *, power: bool) -> None:
        """Kill a node's process, or cut its machine's power."""
        self.note(f"{node_id} {'loses power' if power else 'is killed'}")
        for other in self.node_ids:
            if (node_id, other) in self.network.links:
                self.network.cut(node_id, other, "crash")
        self.nodes.pop(node_id)
        disk = self.disks[node_id]
        if power:
            disk.lose_power(self.rng)
        else:
            disk.stop_process()
        self.down_until[node_id] = self.network.now + self.rng.uniform(0.05, 3.0)

    def _link_down(self, link: SimulatedLink) -> None:
        node = self.nodes.get(link.receiver)
        if node is None:
            return
        use_clock(node.clock)
        for _, frame in link.in_flight:
            node.engine.receive(link.sender, link.other, decode_message(memoryview(frame)))
        node.engine.link_down(link.sender, link.other)

    def _reconnect(self, probability: float) -> None:
        for first in self.node_ids:
            for second in self.node_ids:
                up = first in self.nodes and second in self.nodes
                if first < second and up and (first, second) not in self.network.links:
                    if self.rng.random() >= probability:
                        continue
                    there, back = self.network.connect(first, second)
                    self.nodes[first].engine.link_up(second, there)
                    self.nodes[second].engine.link_up(first, back)

    def _inject(self) -> None:
        rng, network, roll = self.rng, self.network, self.rng.random()
        first, second = rng.sample(self.node_ids, 2)
        if roll < 0.004:
            if (first, second) in network.links:
                self.note(f"the link {first}-{second} is cut")
                network.cut(first, second, "cut")
        elif roll < 0.010:
            network.stalled_until[first, second] = network.now + rng.uniform(0.1, 3.0)
        elif roll < 0.012:
            self.note(f"{first} is partitioned")
            until = network.now + rng.uniform(0.3, 2.0)
            for other in self.node_ids:
                network.stalled_until[first, other] = until
                network.stalled_until[other, first] = until
        elif roll < 0.0145 and len(self.nodes) > 1:
            self.crash(rng.choice(sorted(self.nodes)), power=rng.random() < 0.7)
        elif roll < 0.016 and self.nodes:
            node = self.nodes[rng.choice(sorted(self.nodes))]
            node.paused_until = network.now + rng.uniform(0.1, 2.0)
        elif roll < 0.03:
            network.slow[first, second] = rng.choice((0.001, 0.02, 0.05, 0.2))

    def _append_some(self, node: SimulatedNode) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self._sent += 1
            body = b"%d:" % self._sent + b"x" * self.rng.choice((0, 40, 400))

            def on_done(outcome: Appended | AppendError, body: bytes = body) -> None:
                if isinstance(outcome, Appended):
                    self.acknowledged[outcome.index] = (outcome.term, body)

            try:
                node.engine.append(body, Kind.MESSAGES, on_done)
            except AppendError:
                return

    def run(self, duration_s: float, *, faults: bool) -> None:
        """Let the group run for some virtual time."""
        network, rng = self.network, self.rng
        end = network.now + duration_s
        if not faults:
            network.stalled_until.clear()
            network.slow.clear()
        while network.now < end:
            network.now += rng.uniform(0.001, 0.01)
            if faults:
                self._inject()
            for node_id, until in sorted(self.down_until.items()):
                if until < network.now or not faults:
                    del self.down_until[node_id]
                    self.start(node_id)
            self._reconnect(0.03 if faults else 1.0)
            order = sorted(self.nodes)
            rng.shuffle(order)
            for node_id in order:
                self._step(node_id, faults=faults)

    def _step(self, node_id: str, *, faults: bool) -> None:
        node = self.nodes.get(node_id)
        if node is None or (faults and node.paused_until > self.network.now):
            return
        if faults and node.engine.standing.serving and self.rng.random() < 0.3:
            self._append_some(node)
        committed = node.engine.core.commit_index
        node.step()
        self.check_leader(node)
        advanced = node.engine.core.role is Role.LEADER and (
            node.engine.core.commit_index > committed
        )
        if faults and advanced and self.rng.random() < 0.01 and len(self.nodes) > 1:
            self.crash(node_id, power=self.rng.random() < 0.5)

    # -- the judge -------------------------------------------------------------------------

    def violation(self, text: str) -> Violation:
        """The exception for a broken invariant."""
        return Violation(f"seed {self.seed}, at {self.network.now - 1000:.4f} s: {text}")

    def check_applied(self, node_id: str, entry: Entry) -> None:
        """State machine safety: one entry per index, for ever, on all nodes."""
        chain = self.nodes[node_id].log.header(entry.index).chain_crc
        first = self.committed.setdefault(entry.index, (entry.term, chain))
        if first != (entry.term, chain):
            raise self.violation(
                f"{node_id} applied another entry {entry.index} (term {entry.term}) than the one "
                f"of term {first[0]} that was committed"
            )

    def check_leader(self, node: SimulatedNode) -> None:
        """Election safety, leader completeness, leader append-only."""
        core, log = node.engine.core, node.log
        if core.role is not Role.LEADER:
            return
        known = self.leaders.setdefault(core.term, node.node_id)
        if known != node.node_id:
            raise self.violation(f"{known} and {node.node_id} both lead in term {core.term}")
        key = (node.node_id, core.term)
        if key not in self._max_leader_end:
            self.elections += 1
            self.note(f"{node.node_id} leads term {core.term}")
            self._check_complete(node)
        if log.last_index < self._max_leader_end.get(key, 0):
            raise self.violation(f"leader {node.node_id} removed entries of its own log")
        self._max_leader_end[key] = log.last_index

    def _check_complete(self, node: SimulatedNode) -> None:
        for index in sorted(self.committed)[-50:]:
            term, chain = self.committed[index]
            # What a later term committed does not bind a leader of an earlier one.
            if term > node.engine.core.term:
                continue
            if index > node.log.last_index or node.log.header(index).chain_crc != chain:
                raise self.violation(
                    f"{node.node_id} leads term {node.engine.core.term} without entry {index} of "
                    f"term {term}, which is committed"
                )

    def finish(self) -> None:
        """Heal everything; all logs must become equal and hold what was acknowledged."""
        waited = 0.0
        while True:
            self.run(2.0, faults=False)
            waited += 2.0
            ends = {node.log.last_index for node in self.nodes.values()}
            commits = {node.engine.core.commit_index for node in self.nodes.values()}
            if ends == commits and len(ends) == 1:
                break
            if waited > HEAL_LIMIT_S:
                raise self.violation(
                    f"not healed after {waited:.0f} calm seconds: ends {ends}, commits {commits}"
                )
        for node_id, node in sorted(self.nodes.items()):
            for index, (term, body) in self.acknowledged.items():
                entry = node.log.entry(index)
                if entry.term != term or bytes(entry.body) != body:
                    raise self.violation(f"{node_id} lost acknowledged entry {index}")


def run_seed(seed: int, size: int = 3, duration_s: float = 20.0) -> Simulation:
    """One run: faults for `duration_s` of virtual time, then healing and the final checks.

    Raises Violation; any other error of a node counts as one too.
    """
    simulation = Simulation(seed, size)
    try:
        simulation.run(duration_s, faults=True)
        simulation.finish()
    except Violation as violation:
        violation.add_note("\n".join(simulation.transcript[-60:]))
        raise
    except (DledgerError, AssertionError, KeyError) as error:
        broken = simulation.violation(f"{type(error).__name__}: {error}")
        broken.add_note("\n".join(simulation.transcript[-60:]))
        raise broken from error
    return simulation
