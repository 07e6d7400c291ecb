"""A whole group in one thread, on virtual time, under a seed.

Each node is a real :class:`~dledger.raft.engine.RaftEngine` over a real log on a
:class:`~dledger.testing.disk.SimulatedDisk`, stepped as the ledger's loops would. The seed draws
the run's :class:`~dledger.testing.simulation.odds.Odds` and everything that happens; a
:class:`~dledger.testing.judge.Judge` looks at every step. In the end all faults stop, and the
group must heal: equal logs that hold every acknowledged append.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from unittest.mock import patch

from dledger.errors import CorruptLog, DledgerError, Rot
from dledger.log.recovery.repair import DamagedLog
from dledger.log.recovery.startup import open_log
from dledger.raft.library.adapter import use_clock
from dledger.raft.membership.configuration import Member
from dledger.raft.replication import sending
from dledger.raft.roles import Role
from dledger.testing.disk import Crashed, SimulatedDisk
from dledger.testing.simulation.clients import Clients
from dledger.testing.simulation.judge.client_history import Violation
from dledger.testing.simulation.judge.invariants import FIRST_INDEX, Judge
from dledger.testing.simulation.nemesis.damage import Damages
from dledger.testing.simulation.nemesis.faults import Faults
from dledger.testing.simulation.nemesis.healing import heal
from dledger.testing.simulation.nemesis.regrouping import Regrouping
from dledger.testing.simulation.network import Network, SimulatedLink
from dledger.testing.simulation.node import FOLDER, SimulatedNode
from dledger.testing.simulation.odds import Odds, calmer, draw_odds
from dledger.testing.simulation.repairing import CRASH_IN_REPAIR, Repairs
from dledger.testing.simulation.streams import Streams
from dledger.world import steady_s

TRANSCRIPT_LINES = 60
REOPENED = 0.7
"""The odds that a process which finds rot goes on, with the state that it has in memory."""


class Simulation:
    """A group, what happens to it, and its judge."""

    def __init__(self, seed: int, size: int = 3, without: Collection[str] = ()) -> None:
        self.seed = seed
        self.streams = Streams(f"{seed}/{size}")
        self.odds: Odds = calmer(draw_odds(self.streams), without)
        random.seed(seed)  # the library draws its timeouts from the module's generator
        self.network = Network(self.streams)
        self.network.on_down = self._link_down
        self.node_ids = [f"n{at}" for at in range(size)]
        self.disks = {node_id: SimulatedDisk() for node_id in self.node_ids}
        #: The entry after which each node's state was saved last.
        self.snapshots = dict.fromkeys(self.node_ids, 0)
        self.judge = Judge(FOLDER, self.disks, self.snapshots, self.node_ids, self.violation)
        self.network.on_send = self.judge.on_send
        self.nodes: dict[str, SimulatedNode] = {}
        self.down_until: dict[str, float] = {}
        self.transcript: list[str] = []
        self.elections = 0
        self.healed_s = 0.0
        self.clients = Clients(self)
        self.faults = Faults(self)
        self.damages = Damages(self)
        self.repairs = Repairs(self)
        #: Index that each process had applied when it began to wait for a repair.
        self.kept: dict[str, int] = {}
        self.regrouping = Regrouping(self, self.streams["member_change"])
        for node_id in self.node_ids:
            self.start(node_id)
        self._reconnect(probability=1.0)

    def members_of(self, node_id: str) -> dict[str, Member]:
        """The members by a node's config file."""
        return self.regrouping.files[node_id]

    def note(self, text: str) -> None:
        """A line of the transcript."""
        self.transcript.append(f"{self.network.now - 1000:9.4f}  {text}")

    def violation(self, text: str) -> Violation:
        """The exception for a broken invariant."""
        self.note(text)
        return Violation(f"seed {self.seed}, at {self.network.now - 1000:.4f} s: {text}")

    def sync_time_s(self, node_id: str) -> float:
        """How long a node's next sync takes: mostly quick, sometimes not; 0 for one that its step
        waits for."""
        stuck_s = self.faults.stuck_until.get(node_id, 0.0) - self.network.now
        if stuck_s > 0:
            return stuck_s
        in_step = self.odds.sync_in_step
        if in_step and self.streams["sync_in_step"].random() < in_step:
            return 0.0
        rng = self.streams["slow_sync"]
        if rng.random() < self.odds.slow_sync:
            return rng.uniform(0, self.odds.slow_sync_s)
        return rng.choice((0.0005, 0.002, 0.01))

    # -- nodes that come and go ------------------------------------------------------------

    def start(self, node_id: str) -> None:
        """Start a node on what its disk holds; one whose log is damaged asks for help first."""
        damaged = None
        flips = self.streams["bit_flip"].random() < self.odds.bit_flip
        if flips and self.damages.may_rot(node_id):
            damaged = self._damage(node_id)
        applied = self.kept.get(node_id, self.snapshots[node_id])
        committed_end = self.repairs.committed_end(node_id)
        try:
            node = SimulatedNode(node_id, self, applied, committed_end)
        except DamagedLog as damage:
            if node_id not in self.damages.damaged:
                raise self.violation(f"{node_id} takes its log for damaged: {damage}") from damage
            self.repairs.begin(node_id, damage)
            return
        if damaged is not None:
            raise self.violation(f"{node_id} starts although {damaged}")
        self.kept.pop(node_id, None)
        self.damages.started(node_id)
        self.judge.started(node_id, node.engine)
        self.nodes[node_id] = node
        self.note(f"{node_id} starts, log ends at {self.nodes[node_id].log.last_index}")

    def _damage(self, node_id: str) -> str | None:
        """Damage what was durable for sure; the node may die while that is found or repaired."""
        disk, segment_bytes = self.disks[node_id], self.odds.segment_bytes
        try:
            log = open_log(FOLDER, segment_bytes, disk)[0]
        except CorruptLog as error:
            raise self.violation(f"{node_id} refuses to start: {error}") from error
        rng = self.streams["damage"]
        what = self.damages.damage(node_id, log, rng)
        if what is not None and rng.random() < CRASH_IN_REPAIR:
            disk.crash_in = rng.randrange(10)
        return what

    def let_rot(self, node_id: str, rng: random.Random) -> None:
        """Damage an entry of a sealed segment while its node runs, if the group can bear it."""
        if self.damages.may_rot(node_id):
            self.damages.let_rot(node_id, self.nodes[node_id].log, rng)

    def _stop_the_rotten(self) -> None:
        """A node that has found rot on its disk opens its log again, in the same process or in
        another."""
        for node in [node for node in self.nodes.values() if node.is_rotten]:
            self.cut_off(node.node_id)
            self.judge.died(node.node_id)
            if self.streams["reopen"].random() < REOPENED:
                self.kept[node.node_id] = node.engine.machine.applied_index
                self.note(f"{node.node_id} opens its log again")
            del self.nodes[node.node_id]
            self.disks[node.node_id].stop_process()
            self.down_until[node.node_id] = self.network.now + 0.05

    def cut_off(self, node_id: str) -> None:
        """Break all links of a node."""
        for other in self.node_ids:
            if (node_id, other) in self.network.links:
                self.network.cut(node_id, other)

    def replace_disk(self, node_id: str) -> None:
        """Give a node an empty disk."""
        self.disks[node_id] = SimulatedDisk()
        self.snapshots[node_id] = 0
        self.kept.pop(node_id, None)
        self.damages.replaced(node_id)
        self.judge.emptied(node_id)

    def crash(self, node_id: str, *, power: bool) -> None:
        """Kill a node's process, or cut its machine's power."""
        self.note(f"{node_id} {'loses power' if power else 'is killed'}")
        self.cut_off(node_id)
        node = self.nodes.pop(node_id)
        self.judge.died(node_id)
        if self.streams["snapshot"].random() < 0.3:
            node.save_state(node.engine.machine.applied_index)
        disk = self.disks[node_id]
        if self._loses_disk() and self.damages.may_lose_disk(node_id):
            self.note(f"the disk of {node_id} is replaced by an empty one")
            self.replace_disk(node_id)
        elif power or disk.failed:
            self.lose_power(node_id)
        else:
            disk.stop_process()
        rng = self.streams["restart"]
        quick = rng.random() < self.odds.quick_restart
        wait_s = rng.uniform(0, 0.05) if quick else rng.uniform(0.05, 3.0)
        self.down_until[node_id] = self.network.now + wait_s

    def lose_power(self, node_id: str) -> None:
        """A power loss: everything in the machine's memory is gone."""
        self.kept.pop(node_id, None)
        self.disks[node_id].lose_power(self.streams["lose_power"])

    def _loses_disk(self) -> bool:
        """Draw it; the odds are others until the group has its first entry."""
        kind = "empty_at_birth" if self.judge.committed_end == FIRST_INDEX else "empty"
        return bool(self.streams[kind].random() < getattr(self.odds, kind))

    def retire(self, node_id: str) -> None:
        """Stop a node for good, or until its disk is used again."""
        if node_id in self.repairs.under_way:
            self.repairs.stop(node_id)
        elif node_id in self.nodes:
            self.crash(node_id, power=False)
        self.down_until.pop(node_id, None)
        self.kept.pop(node_id, None)
        self.node_ids.remove(node_id)

    def crash_somehow(self, node_id: str) -> None:
        """Kill the process or cut the power, by the odds."""
        self.crash(node_id, power=self.streams["power"].random() < self.odds.power)

    def _link_down(self, link: SimulatedLink) -> None:
        node = self.nodes.get(link.receiver)
        if node is not None:
            use_clock(node.clock)
            node.engine.link_down(link.sender, link.other)

    def _reconnect(self, probability: float) -> None:
        for first in self.node_ids:
            for second in self.node_ids:
                if first >= second or (first, second) in self.network.links:
                    continue
                if self._is_up(first) and self._is_up(second):
                    if not (self._knows(first, second) or self._knows(second, first)):
                        continue
                    if self.network.is_stalled(first, second):
                        continue
                    if self.streams["reconnect"].random() >= probability:
                        continue
                    there, back = self.network.connect(first, second)
                    for node_id, other, link in ((first, second, there), (second, first, back)):
                        if node_id in self.nodes:
                            self.nodes[node_id].engine.link_up(other, link)

    def _is_up(self, node_id: str) -> bool:
        node = self.nodes.get(node_id)
        return node_id in self.repairs.under_way or (node is not None and not node.fenced)

    def _knows(self, node_id: str, other: str) -> bool:
        node = self.nodes.get(node_id)
        return node is None or other in node.engine.members.current.members

    # -- time ------------------------------------------------------------------------------

    def run(self, duration_s: float, *, faults: bool) -> None:
        """Run the group for some virtual time."""
        network, streams = self.network, self.streams
        end = network.now + duration_s
        while network.now < end:
            network.now += streams["time"].uniform(0.001, 0.01)
            if faults:
                self.faults.inject()
            for node_id, until in sorted(self.down_until.items()):
                if until < network.now or not faults:
                    self._restart(node_id)
            self._reconnect(self.odds.reconnect if faults else 1.0)
            self._stop_the_rotten()
            self.repairs.step()
            order = sorted(self.nodes)
            streams["order"].shuffle(order)
            for node_id in order:
                self._step(node_id, faults=faults)

    def _restart(self, node_id: str) -> None:
        del self.down_until[node_id]
        try:
            self.start(node_id)
        except Crashed:
            self.note(f"{node_id} dies while it starts")
            self.lose_power(node_id)
            self.down_until[node_id] = self.network.now

    def _step(self, node_id: str, *, faults: bool) -> None:
        node = self.nodes.get(node_id)
        if node is None or node.fenced or (faults and node.paused_until > self.network.now):
            return
        odds, streams = self.odds, self.streams
        if faults and node.engine.standing.serving:
            self.clients.wish_for_another(node)
        core = node.engine.core
        committed, standing = core.commit_index, (core.role, core.term)
        try:
            if core.role is Role.LEADER:
                self.regrouping.step(node, calm=not faults)
            if faults:
                self.clients.ask(node)
            took_part = not node.fenced and node.step(calm=not faults)
            if took_part:
                # A look reads the log, which first writes out what a step has staged at its end.
                self._look(node)
        except Crashed:
            self.judge.dying(node_id, node.engine)
            self.crash_somehow(node_id)
            return
        if not took_part:
            self.judge.dying(node_id, node.engine)
            return
        if not faults:
            return
        committing = core.role is Role.LEADER and core.commit_index > committed
        electing = standing != (core.role, core.term)
        if committing and streams["crash_after_commit"].random() < odds.crash_after_commit:
            self.crash_somehow(node_id)
        elif electing:
            self.faults.hit_while_electing(node_id)

    def _look(self, node: SimulatedNode) -> None:
        try:
            elected = self.judge.look(node.node_id, node.engine, node.began_s, node.heard_at)
        except Rot as rot:
            node.fence(rot)
            return
        if elected:
            self.elections += 1
            self.note(f"{node.node_id} leads term {node.engine.core.term}")


def run_seed(
    seed: int, size: int = 3, duration_s: float = 8.0, without: Collection[str] = ()
) -> Simulation:
    """Run a seed: faults for `duration_s` of virtual time, then healing and the final checks.

    Faults named in `without` don't come.

    Raises Violation, with the end of the transcript as a note; any other error of a node counts
    as one too.
    """
    simulation = Simulation(seed, size, without)
    try:
        with patch.object(sending, "BATCH_BYTES", simulation.odds.batch_bytes):
            simulation.run(duration_s, faults=True)
            simulation.healed_s = heal(simulation)
    except Violation as violation:
        violation.add_note("\n".join(simulation.transcript[-TRANSCRIPT_LINES:]))
        raise
    except (DledgerError, OSError, AssertionError, LookupError) as error:
        broken = simulation.violation(f"{type(error).__name__}: {error}")
        broken.add_note("\n".join(simulation.transcript[-TRANSCRIPT_LINES:]))
        raise broken from error
    finally:
        use_clock(steady_s)
    return simulation
