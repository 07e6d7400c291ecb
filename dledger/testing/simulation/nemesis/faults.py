"""Faults of a simulated group: a run's odds, turned into events.

Each kind has its own odds, its method here and its own stream of chance, all of one
name. Events that need others before them are put off: a connection that breaks when a partition
ends, a node that dies in one of its next file operations, a disk that is stuck for a while.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

from dledger.testing.disk import SimulatedDisk
from dledger.testing.simulation.judge.invariants import FIRST_INDEX, Judge
from dledger.testing.simulation.network import Network
from dledger.testing.simulation.node import SimulatedNode
from dledger.testing.simulation.odds import Odds
from dledger.testing.simulation.streams import Streams

CRASH_FENCED = 0.01
"""The odds, in one step, that a fenced node is killed."""


class Victims(Protocol):
    """The group that things happen to."""

    streams: Streams
    odds: Odds
    network: Network
    judge: Judge
    node_ids: list[str]
    disks: dict[str, SimulatedDisk]
    nodes: dict[str, SimulatedNode]

    def note(self, text: str) -> None:
        """Write a line of the transcript."""

    def crash(self, node_id: str, *, power: bool) -> None:
        """Kill a node's process, or cut its machine's power."""

    def crash_somehow(self, node_id: str) -> None:
        """Kill a node's process, or cut its machine's power, by chance."""

    def let_rot(self, node_id: str, rng: random.Random) -> None:
        """Damage an entry of a sealed segment, if the group can bear it."""


class Faults:
    """The faults of a run: draws them, and makes them happen."""

    def __init__(self, group: Victims) -> None:
        self.stuck_until: dict[str, float] = {}
        self._group = group
        self._streams, self._network = group.streams, group.network
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._kinds: dict[str, Callable[[random.Random], None]] = {
            "cut": self._cut,
            "stall": self._stall,
            "rift": self._rift,
            "partition": self._partition,
            "isolate_leader": self._isolate_leader,
            "slow": self._slow,
            "garble": self._garble,
            "blackout": self._blackout,
            "pause": self._pause,
            "long_pause": self._long_pause,
            "clock_jump": self._clock_jump,
            "crash_in_an_operation": self._crash_in_an_operation,
            "sync_error": self._sync_error,
            "rot": self._rot,
            "full": self._full,
            "crash": self._crash,
            "crash_at_birth": self._crash_at_birth,
        }

    def inject(self) -> None:
        """Draw what goes wrong in this step, and do what was put off until now."""
        for name, do in self._kinds.items():
            rng = self._streams[name]
            if rng.random() < getattr(self._group.odds, name):
                do(rng)
        self._crash_fenced()
        self._do_later()

    # -- the network -----------------------------------------------------------------------

    def _pair(self, rng: random.Random) -> list[str]:
        return rng.sample(self._group.node_ids, 2)

    def _until(self, seconds: float) -> tuple[float, str]:
        """A moment from now, and how the transcript names it."""
        until = self._network.now + seconds
        return until, f"until {until - 1000:.3f}"

    def _cut(self, rng: random.Random) -> None:
        first, second = self._pair(rng)
        if (first, second) in self._network.links:
            self._group.note(f"the link {first}-{second} is cut")
            self._network.cut(first, second)

    def _stall(self, rng: random.Random) -> None:
        first, second = self._pair(rng)
        until, then = self._until(rng.uniform(0.1, 1.0) * self._group.odds.stall_s)
        self._network.stalled_until[first, second] = until
        self._group.note(f"{second} hears nothing from {first} {then}")

    def _rift(self, rng: random.Random) -> None:
        first, second = self._pair(rng)
        until, then = self._until(rng.uniform(0.5, 4.0))
        stalled_until = self._network.stalled_until
        stalled_until[first, second] = stalled_until[second, first] = until
        self._group.note(f"{first} and {second} don't reach each other {then}")

    def _partition(self, rng: random.Random) -> None:
        self._cut_off(rng.choice(self._group.node_ids), rng)

    def _isolate_leader(self, rng: random.Random) -> None:
        for node_id, node in self._group.nodes.items():
            if node.engine.standing.serving:
                self._cut_off(node_id, rng)
                return

    def _cut_off(self, node_id: str, rng: random.Random) -> None:
        """Cut a node and some others, fewer than half, off from the rest for a while."""
        others = [other for other in self._group.node_ids if other != node_id]
        side = {node_id, *rng.sample(others, rng.randint(0, max(0, len(others) // 2 - 1)))}
        until, then = self._until(rng.uniform(0.3, 3.0))
        self._group.note(f"{', '.join(sorted(side))} cut off {then}")
        if rng.random() < 0.5 and self._group.odds.slow_sync:
            self.stuck_until[node_id] = until + rng.uniform(-0.2, 0.5)
        breaks = rng.random() < 0.5
        dies = rng.random() < self._group.odds.crash_while_electing
        for near in sorted(side):
            for far in self._group.node_ids:
                if far not in side:
                    self._network.stalled_until[near, far] = until
                    self._network.stalled_until[far, near] = until
                    if breaks:
                        self._later.append((until, partial(self._network.cut, near, far)))
        if dies:
            self._later.append((until, partial(self._arm, node_id, rng)))

    def _slow(self, rng: random.Random) -> None:
        first, second = self._pair(rng)
        slow = self._network.slow
        slow[first, second] = rng.choice(self._group.odds.latencies_s)
        if rng.random() < 0.5:
            slow[second, first] = slow[first, second]

    def _garble(self, rng: random.Random) -> None:
        pair = self._network.garble(rng)
        if pair is not None:
            self._group.note(f"a bit flips in what {pair[0]} sent to {pair[1]}")

    # -- nodes and disks -------------------------------------------------------------------

    def _victims(self, rng: random.Random) -> list[SimulatedNode]:
        """A node that is up, in a list; empty if none is."""
        nodes = self._group.nodes
        return [nodes[rng.choice(sorted(nodes))]] if nodes else []

    def _blackout(self, _: random.Random) -> None:
        for node_id in sorted(self._group.nodes):
            self._group.crash(node_id, power=True)

    def _pause(self, rng: random.Random) -> None:
        for victim in self._victims(rng):
            victim.paused_until, then = self._until(rng.uniform(0.1, 2.0))
            self._group.note(f"{victim.node_id} pauses {then}")

    def _long_pause(self, rng: random.Random) -> None:
        for victim in self._victims(rng):
            victim.paused_until, then = self._until(rng.uniform(2.0, 6.0))
            self._group.note(f"{victim.node_id} stands still {then}")

    def _clock_jump(self, rng: random.Random) -> None:
        for victim in self._victims(rng):
            jump_s = rng.choice((0.3, 1.0, 5.0, 3600.0))
            victim.clock_ahead_s += jump_s
            self._group.note(f"the clock of {victim.node_id} jumps {jump_s} s ahead")

    def _rot(self, rng: random.Random) -> None:
        if self._group.nodes:
            self._group.let_rot(rng.choice(sorted(self._group.nodes)), rng)

    def _sync_error(self, rng: random.Random) -> None:
        for victim in self._victims(rng):
            victim.disk.fail_in = rng.randrange(5)

    def _full(self, rng: random.Random) -> None:
        for victim in self._victims(rng):
            victim.disk.full = True

    def _crash(self, rng: random.Random) -> None:
        for victim in self._victims(rng):
            self._group.crash_somehow(victim.node_id)

    def _crash_at_birth(self, rng: random.Random) -> None:
        if self._group.judge.committed_end == FIRST_INDEX:
            self._crash(rng)

    def _crash_fenced(self) -> None:
        """A node that takes no further part is restarted by somebody, sooner or later."""
        for node_id in [node.node_id for node in self._group.nodes.values() if node.fenced]:
            if self._streams["crash_fenced"].random() < CRASH_FENCED:
                self._group.crash_somehow(node_id)

    def _crash_in_an_operation(self, rng: random.Random) -> None:
        for victim in self._victims(rng):
            self._arm(victim.node_id, rng)

    def hit_while_electing(self, node_id: str) -> None:
        """A node has just changed its role or term: let it die now or soon, as the odds have it."""
        rng = self._streams["crash_while_electing"]
        if rng.random() >= self._group.odds.crash_while_electing:
            return
        if rng.random() < 0.5:
            self._group.crash_somehow(node_id)
        else:
            self._arm(node_id, rng)

    def _arm(self, node_id: str, rng: random.Random) -> None:
        """Make a node die in one of its next file operations."""
        self._group.disks[node_id].crash_in = rng.randrange(15)

    def _do_later(self) -> None:
        due = [action for when, action in self._later if when <= self._network.now]
        self._later = [held for held in self._later if held[0] > self._network.now]
        for action in due:
            action()
