"""A whole group in one thread, on virtual time, under a seed.

Each node is a real :class:`~dledger.raft.engine.RaftEngine` over a real log on a
:class:`~dledger.testing.disk.SimulatedDisk`, stepped as the ledger's loops would. The seed draws
the run's :class:`~dledger.testing.weather.Weather` and everything that happens; a
:class:`~dledger.testing.judge.Judge` looks at every step. In the end all faults stop, and the
group must heal: equal logs that hold every acknowledged append.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection
from unittest.mock import patch

from dledger.errors import AppendError, CorruptLog, DledgerError, NotLeader, TransferFailed
from dledger.log.hard_state import HardStateFile
from dledger.log.repair import DamagedLog
from dledger.log.startup import open_log
from dledger.raft import transport
from dledger.raft.configuration import Member
from dledger.raft.engine import Appended
from dledger.raft.library import Role, monotonic, use_clock
from dledger.testing.client_history import Violation
from dledger.testing.configurations import is_majority
from dledger.testing.disk import Crashed, SimulatedDisk
from dledger.testing.faults import Faults
from dledger.testing.judge import FIRST_INDEX, Judge
from dledger.testing.network import Network, SimulatedLink
from dledger.testing.node import FOLDER, SimulatedNode
from dledger.testing.regrouping import Regrouping
from dledger.testing.repairing import RepairingNode, RottenEntry, damage_log, rot_entry
from dledger.testing.streams import Streams
from dledger.testing.weather import Weather, calmer, draw_weather

HEAL_LIMIT_S = 15.0
HEAL_FRAMES_MAX = 50_000
"""More messages than this, when nobody appends any more, are messages that beget messages."""
CRASH_IN_REPAIR = 0.3
TRANSCRIPT_LINES = 60
ASK_ANYBODY = 0.02


class Simulation:
    """A group, what happens to it, and its judge."""

    def __init__(self, seed: int, size: int = 3, without: Collection[str] = ()) -> None:
        self.seed = seed
        self.streams = Streams(f"{seed}/{size}")
        self.weather: Weather = calmer(draw_weather(self.streams), without)
        random.seed(seed)  # the library draws its timeouts from the module's generator
        self.network = Network(self.streams)
        self.network.on_down = self._link_down
        self.node_ids = [f"n{at}" for at in range(size)]
        self.disks = {node_id: SimulatedDisk() for node_id in self.node_ids}
        self.judge = Judge(FOLDER, self.disks, self.node_ids, self.violation)
        self.network.on_send = self.judge.on_send
        self.nodes: dict[str, SimulatedNode] = {}
        self.down_until: dict[str, float] = {}
        self.transcript: list[str] = []
        self.elections = 0
        self.transfers = 0
        self.healed_s = 0.0
        self._sent = 0
        self.faults = Faults(self)
        self.damaged: set[str] = set()
        self.repairing: dict[str, RepairingNode] = {}
        self.repaired_to: dict[str, int] = {}
        self.rotten: dict[str, RottenEntry] = {}
        self.repairs = 0
        self.rot_found = 0
        self.snapshots = dict.fromkeys(self.node_ids, 0)
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
        """How long a node's next sync takes: mostly quick, sometimes not."""
        stuck_s = self.faults.stuck_until.get(node_id, 0.0) - self.network.now
        if stuck_s > 0:
            return stuck_s
        rng = self.streams["slow_sync"]
        if rng.random() < self.weather.slow_sync:
            return rng.uniform(0, self.weather.slow_sync_s)
        return rng.choice((0.0005, 0.002, 0.01))

    # -- nodes that come and go ------------------------------------------------------------

    def start(self, node_id: str) -> None:
        """Start a node on what its disk holds; one whose log is damaged asks for help first."""
        damaged = None
        flips = self.streams["bit_flip"].random() < self.weather.bit_flip
        if flips and self._may_rot(node_id):
            damaged = self._damage(node_id)
        try:
            node = SimulatedNode(
                node_id, self, self.snapshots[node_id], self.repaired_to.pop(node_id, None)
            )
        except DamagedLog as damage:
            if node_id not in self.damaged:
                raise self.violation(f"{node_id} takes its log for damaged: {damage}") from damage
            self.note(f"{node_id} is silent: entry {damage.place.next_index} is damaged")
            disk, segment_bytes = self.disks[node_id], self.weather.segment_bytes
            self.repairing[node_id] = RepairingNode(node_id, self, disk, segment_bytes, damage)
            return
        if damaged is not None:
            raise self.violation(f"{node_id} starts although {damaged}")
        if not self._is_rotten(node_id):
            self.damaged.discard(node_id)
        self.judge.started(node_id, node.log)
        self.nodes[node_id] = node
        self.note(f"{node_id} starts, log ends at {self.nodes[node_id].log.last_index}")

    def _damage(self, node_id: str) -> str | None:
        """Damage what was durable for sure."""
        disk, segment_bytes = self.disks[node_id], self.weather.segment_bytes
        try:
            log = open_log(FOLDER, segment_bytes, disk)[0]
        except CorruptLog as error:
            raise self.violation(f"{node_id} refuses to start: {error}") from error
        rng = self.streams["damage"]
        what = damage_log(disk, log, rng)
        if what is not None:
            self.note(f"on the disk of {node_id} {what}")
            self.damaged.add(node_id)
            if rng.random() < CRASH_IN_REPAIR:
                disk.crash_in = rng.randrange(10)
        return what

    def let_rot(self, node_id: str, rng: random.Random) -> None:
        """Damage an entry of a sealed segment while its node runs, if the group can bear it."""
        log = self.nodes[node_id].log
        if not self._may_rot(node_id):
            return
        rotten = rot_entry(self.disks[node_id], log, rng)
        if rotten is not None:
            self.note(f"on the disk of {node_id} entry {rotten.index} rots")
            self.damaged.add(node_id)
            self.rotten[node_id] = rotten

    def _may_rot(self, node_id: str) -> bool:
        """Whether a leader is left to repair it; none that is well may be removed meanwhile."""
        changing = self.weather.member_change > 0
        return not changing and node_id not in self.damaged and self._may_lose_disk(node_id)

    def _is_rotten(self, node_id: str) -> bool:
        rotten = self.rotten.get(node_id)
        return rotten is not None and rotten.is_there(self.disks[node_id])

    def _stop_the_rotten(self) -> None:
        """A process ends when it has found rot on its disk; it is started again."""
        for node in [node for node in self.nodes.values() if node.is_rotten]:
            self._cut_off(node.node_id)
            self.judge.died(node.node_id)
            del self.nodes[node.node_id]
            self.disks[node.node_id].stop_process()
            self.down_until[node.node_id] = self.network.now + 0.05
            self.rot_found += 1

    def _go_on_repairing(self, node_id: str) -> None:
        """Let a node that takes no part go on; it starts when its log is whole."""
        node = self.repairing[node_id]
        try:
            commit_index = node.step()
        except Crashed:
            self._stop_repairing(node_id)
            self.note(f"{node_id} dies while its log is repaired")
            self.disks[node_id].lose_power(self.streams["lose_power"])
            self.down_until[node_id] = self.network.now + 0.1
            return
        except CorruptLog as error:
            self._stop_repairing(node_id)
            self.note(f"the operator replaces the disk of {node_id}: {error}")
            self.replace_disk(node_id)
            self.down_until[node_id] = self.network.now + 0.1
            return
        if commit_index is not None:
            self._stop_repairing(node_id)
            self.note(f"{node_id}: {node.repair.written} entries up to {commit_index} repaired")
            self.repairs += 1
            self.repaired_to[node_id] = commit_index
            self.down_until[node_id] = self.network.now

    def _stop_repairing(self, node_id: str) -> None:
        del self.repairing[node_id]
        self._cut_off(node_id)

    def _cut_off(self, node_id: str) -> None:
        for other in self.node_ids:
            if (node_id, other) in self.network.links:
                self.network.cut(node_id, other)

    def replace_disk(self, node_id: str) -> None:
        """Give a node an empty disk."""
        self.disks[node_id] = SimulatedDisk()
        self.snapshots[node_id] = 0
        self.damaged.discard(node_id)
        self.rotten.pop(node_id, None)
        self.judge.emptied(node_id)

    def crash(self, node_id: str, *, power: bool) -> None:
        """Kill a node's process, or cut its machine's power."""
        self.note(f"{node_id} {'loses power' if power else 'is killed'}")
        self._cut_off(node_id)
        node = self.nodes.pop(node_id)
        self.judge.died(node_id)
        if self.streams["snapshot"].random() < 0.3:
            self.snapshots[node_id] = node.engine.machine.applied_index
        disk = self.disks[node_id]
        if self._loses_disk() and self._may_lose_disk(node_id):
            self.note(f"the disk of {node_id} is replaced by an empty one")
            self.replace_disk(node_id)
        elif power or disk.failed:
            disk.lose_power(self.streams["lose_power"])
        else:
            disk.stop_process()
        rng = self.streams["restart"]
        quick = rng.random() < self.weather.quick_restart
        wait_s = rng.uniform(0, 0.05) if quick else rng.uniform(0.05, 3.0)
        self.down_until[node_id] = self.network.now + wait_s

    def _loses_disk(self) -> bool:
        """Draw it; the odds are others until the group has its first entry."""
        kind = "empty_at_birth" if self.judge.committed_end == FIRST_INDEX else "empty"
        return bool(self.streams[kind].random() < getattr(self.weather, kind))

    def retire(self, node_id: str) -> None:
        """Stop a node for good, or until its disk is used again."""
        if node_id in self.repairing:
            self._stop_repairing(node_id)
        elif node_id in self.nodes:
            self.crash(node_id, power=False)
        self.down_until.pop(node_id, None)
        self.node_ids.remove(node_id)

    def _may_lose_disk(self, node_id: str) -> bool:
        """Whether what is committed survives it: a majority of the others must hold its own."""
        others = [other for other in self.node_ids if other not in (node_id, *self.damaged)]
        seated = [other for other in others if self._holds_its_own(other)]
        possible = self.judge.configurations.possible(self.judge.committed)
        return all(is_majority(seated, voters) for voters in possible)

    def _holds_its_own(self, node_id: str) -> bool:
        term = HardStateFile(FOLDER / "term", self.disks[node_id].copy())
        return term.state.seated

    def crash_somehow(self, node_id: str) -> None:
        """Kill the process or cut the power, as the weather has it."""
        self.crash(node_id, power=self.streams["power"].random() < self.weather.power)

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
        return node_id in self.repairing or (node is not None and not node.fenced)

    def _knows(self, node_id: str, other: str) -> bool:
        node = self.nodes.get(node_id)
        return node is None or other in node.engine.members.current.members

    # -- the client ------------------------------------------------------------------------

    def _append_some(self, node: SimulatedNode) -> None:
        if self._sent >= self.weather.appends_max:
            return
        rng = self.streams["append"]
        for _ in range(rng.randint(1, self.weather.burst_max)):
            self._sent += 1
            body = b"%d:" % self._sent + b"x" * rng.choice(self.weather.body_bytes)

            def on_done(outcome: Appended | AppendError, body: bytes = body) -> None:
                self.judge.client.answered(body, outcome, self.judge.committed_end)

            try:
                node.append(body, on_done)
            except AppendError as error:
                if error.definite:
                    self.judge.client.refused(body)
                return
            self.judge.client.offered(node.node_id, body)

    def _read(self, node: SimulatedNode) -> None:
        """A client asks for the log's end, as this node takes it to be."""
        client = self.judge.client
        number = client.read_asked(node.node_id)

        def on_read(outcome: int | NotLeader) -> None:
            client.read_answered(number, outcome, node.engine.machine.applied_index)

        try:
            node.engine.read(on_read)
        except AppendError as error:
            client.read_answered(number, error, 0)

    def _wish_for_another(self, node: SimulatedNode) -> None:
        """An operator hands leadership to a certain node, or to any."""
        rng = self.streams["transfer"]
        if rng.random() >= self.weather.transfer:
            return
        target = rng.choice((None, *node.peer_ids))

        def on_done(failed: str | None) -> None:
            self.note(f"{node.node_id} {'still leads: ' + failed if failed else 'leads no longer'}")
            self.transfers += failed is None

        with contextlib.suppress(TransferFailed):
            chosen = node.engine.transfer(target, on_done)
            self.note(f"{node.node_id} hands leadership to {chosen}")

    # -- time ------------------------------------------------------------------------------

    def run(self, duration_s: float, *, faults: bool) -> None:
        """Let the group run for some virtual time."""
        network, streams = self.network, self.streams
        end = network.now + duration_s
        while network.now < end:
            network.now += streams["time"].uniform(0.001, 0.01)
            if faults:
                self.faults.inject()
            for node_id, until in sorted(self.down_until.items()):
                if until < network.now or not faults:
                    self._restart(node_id)
            self._reconnect(self.weather.reconnect if faults else 1.0)
            self._stop_the_rotten()
            for node_id in sorted(self.repairing):
                self._go_on_repairing(node_id)
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
            self.disks[node_id].lose_power(self.streams["lose_power"])
            self.down_until[node_id] = self.network.now

    def _step(self, node_id: str, *, faults: bool) -> None:
        node = self.nodes.get(node_id)
        if node is None or node.fenced or (faults and node.paused_until > self.network.now):
            return
        weather, streams = self.weather, self.streams
        if faults and node.engine.standing.serving:
            self._wish_for_another(node)
        # Now and then a client asks a node that does not lead, and is refused.
        asked = node.engine.standing.serving or streams["ask"].random() < ASK_ANYBODY
        core = node.engine.core
        committed, standing = core.commit_index, (core.role, core.term)
        try:
            if core.role is Role.LEADER:
                self.regrouping.step(node, calm=not faults)
            if faults and asked and streams["append"].random() < weather.append:
                self._append_some(node)
            may_read = asked or core.role is Role.LEADER
            if faults and may_read and streams["read"].random() < weather.read:
                self._read(node)
            took_part = not node.fenced and node.step()
        except Crashed:
            self.judge.dying(node_id, node.engine)
            self.crash_somehow(node_id)
            return
        if not took_part:
            self.judge.dying(node_id, node.engine)
            return
        self._look(node)
        if not faults:
            return
        committing = core.role is Role.LEADER and core.commit_index > committed
        electing = standing != (core.role, core.term)
        if committing and streams["crash_after_commit"].random() < weather.crash_after_commit:
            self.crash_somehow(node_id)
        elif electing:
            self.faults.hit_while_electing(node_id)

    def _look(self, node: SimulatedNode) -> None:
        if self.judge.look(node.node_id, node.engine, node.clock(), node.heard_at):
            self.elections += 1
            self.note(f"{node.node_id} leads term {node.engine.core.term}")

    def finish(self) -> float:
        """Heal everything; all logs must become equal and hold what was acknowledged.

        Returns how long it took, in virtual seconds.
        """
        self.network.stalled_until.clear()
        self.network.slow.clear()
        for disk in self.disks.values():
            disk.crash_in, disk.fail_in, disk.full = None, None, False
        for node in [node for node in self.nodes.values() if node.fenced]:
            self.crash(node.node_id, power=True)
        healing_since, frames = self.network.now, self.network.frames
        while True:
            self.run(0.5, faults=False)
            ends = {node.log.last_index for node in self._members_up()}
            commits = {node.engine.core.commit_index for node in self._members_up()}
            healed_s = self.network.now - healing_since
            rotten = any(map(self._is_rotten, self.node_ids))
            waiting = self.judge.client.reads_waiting
            whole = len(self.nodes) == len(self.node_ids) and not rotten and not waiting
            if whole and ends == commits and len(ends) == 1 and self._led_as_preferred():
                break
            if self.network.frames - frames > HEAL_FRAMES_MAX:
                raise self.violation("the group does not come to rest: messages beget messages")
            if healed_s > HEAL_LIMIT_S:
                raise self.violation(
                    f"not healed after {healed_s:.0f} calm seconds: ends {ends}, commits "
                    f"{commits}, leaders {self._leaders()}, {waiting} reads without an answer"
                )
        self.judge.client.finish({node.node_id: node.log for node in self._members_up()})
        return healed_s

    def _members_up(self) -> list[SimulatedNode]:
        """The nodes that are up and are members to the leader, or all if nobody leads."""
        leaders = self._leaders()
        members = self.nodes[leaders[0]].engine.members.current.members if leaders else self.nodes
        return [node for node_id, node in self.nodes.items() if node_id in members]

    def _leaders(self) -> list[str]:
        return [n.node_id for n in self.nodes.values() if n.engine.standing.serving]

    def _led_as_preferred(self) -> bool:
        """One node leads, takes appends, and is the preferred one if there is one; all members are
        up, and vote."""
        leaders = self._leaders()
        if len(leaders) != 1 or self.nodes[leaders[0]].engine.handing_over_to:
            return False
        members = self.nodes[leaders[0]].engine.members.current
        if members.learners or len(self._members_up()) < len(members.members):
            return False
        preferred = self.weather.preferred and members.votes("n0")
        return not preferred or leaders == ["n0"]


def run_seed(
    seed: int, size: int = 3, duration_s: float = 8.0, without: Collection[str] = ()
) -> Simulation:
    """One run: faults for `duration_s` of virtual time, then healing and the final checks.

    Faults named in `without` don't come.

    Raises Violation, with the end of the transcript as a note; any other error of a node counts
    as one too.
    """
    simulation = Simulation(seed, size, without)
    try:
        with patch.object(transport, "BATCH_BYTES", simulation.weather.batch_bytes):
            simulation.run(duration_s, faults=True)
            simulation.healed_s = simulation.finish()
    except Violation as violation:
        violation.add_note("\n".join(simulation.transcript[-TRANSCRIPT_LINES:]))
        raise
    except (DledgerError, OSError, AssertionError, LookupError) as error:
        broken = simulation.violation(f"{type(error).__name__}: {error}")
        broken.add_note("\n".join(simulation.transcript[-TRANSCRIPT_LINES:]))
        raise broken from error
    finally:
        use_clock(monotonic)
    return simulation
