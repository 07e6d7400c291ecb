"""What goes wrong in a simulated group: the weather's odds, turned into events.

Events that need others before them are put off: a connection that breaks when a partition ends,
a node that dies in one of its next file operations, a disk that is stuck for a while.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

from dledger.testing.disk import SimulatedDisk
from dledger.testing.network import Network
from dledger.testing.node import SimulatedNode
from dledger.testing.weather import Extras, Weather


class Victims(Protocol):
    """The group that things happen to."""

    rng: random.Random
    extra_rng: random.Random
    weather: Weather
    extras: Extras
    network: Network
    node_ids: list[str]
    disks: dict[str, SimulatedDisk]
    nodes: dict[str, SimulatedNode]

    def note(self, text: str) -> None:
        """Write a line of the transcript."""

    def crash(self, node_id: str, *, power: bool) -> None:
        """Kill a node's process, or cut its machine's power."""

    def crash_somehow(self, node_id: str) -> None:
        """One or the other."""


class Faults:
    """Draws and does them."""

    def __init__(self, group: Victims) -> None:
        self.stuck_until: dict[str, float] = {}
        self._group = group
        self._rng, self._weather, self._network = group.rng, group.weather, group.network
        self._later: list[tuple[float, Callable[[], None]]] = []

    def inject(self) -> None:
        """Draw what goes wrong in this step, and do what was put off until now."""
        weather, rng, network = self._weather, self._rng, self._network
        first, second = rng.sample(self._group.node_ids, 2)
        if rng.random() < weather.cut and (first, second) in network.links:
            self._group.note(f"the link {first}-{second} is cut")
            network.cut(first, second)
        if rng.random() < weather.stall:
            until = network.now + rng.uniform(0.1, 1.0) * weather.stall_s
            network.stalled_until[first, second] = until
            self._group.note(f"{second} hears nothing from {first} until {until - 1000:.3f}")
        if rng.random() < weather.partition:
            self._partition(first)
        if rng.random() < weather.isolate_leader:
            leaders = [
                node_id
                for node_id, node in self._group.nodes.items()
                if node.engine.standing.serving
            ]
            if leaders:
                self._partition(leaders[0])
        if rng.random() < weather.slow:
            network.slow[first, second] = rng.choice(weather.latencies_s)
            if rng.random() < 0.5:
                network.slow[second, first] = network.slow[first, second]
        if rng.random() < weather.blackout:
            for node_id in sorted(self._group.nodes):
                self._group.crash(node_id, power=True)
        self._do_later()
        if self._group.nodes:
            self._inject_in(self._group.nodes[rng.choice(sorted(self._group.nodes))])

    def inject_extras(self) -> None:
        """Draw what has odds of its own: rifts, clocks that jump, nodes that stand still."""
        extras, rng, network = self._group.extras, self._group.extra_rng, self._network
        if rng.random() < extras.rift:
            first, second = rng.sample(self._group.node_ids, 2)
            until = network.now + rng.uniform(0.5, 4.0)
            network.stalled_until[first, second] = network.stalled_until[second, first] = until
            self._group.note(
                f"{first} and {second} don't reach each other until {until - 1000:.3f}"
            )
        if not self._group.nodes:
            return
        victim = self._group.nodes[rng.choice(sorted(self._group.nodes))]
        if rng.random() < extras.clock_jump:
            jump_s = rng.choice((0.3, 1.0, 5.0, 3600.0))
            victim.clock_ahead_s += jump_s
            self._group.note(f"the clock of {victim.node_id} jumps {jump_s} s ahead")
        if rng.random() < extras.long_pause:
            victim.paused_until = network.now + rng.uniform(2.0, 6.0)
            self._group.note(
                f"{victim.node_id} stands still until {victim.paused_until - 1000:.3f}"
            )

    def _inject_in(self, victim: SimulatedNode) -> None:
        weather, rng = self._weather, self._rng
        if rng.random() < weather.pause:
            victim.paused_until = self._network.now + rng.uniform(0.1, 2.0)
            self._group.note(f"{victim.node_id} pauses until {victim.paused_until - 1000:.3f}")
        if rng.random() < weather.crash_in_an_operation:
            self.arm(victim.node_id)
        if rng.random() < weather.sync_error:
            victim.disk.fail_in = rng.randrange(5)
        if rng.random() < weather.full:
            victim.disk.full = True
        if rng.random() < weather.crash or (victim.fenced and rng.random() < 0.02):
            self._group.crash_somehow(victim.node_id)

    def _partition(self, node_id: str) -> None:
        """Cut a node and some others, fewer than half, off from the rest for a while."""
        rng, network = self._rng, self._network
        others = [other for other in self._group.node_ids if other != node_id]
        side = {node_id, *rng.sample(others, rng.randint(0, len(others) // 2 - 1))}
        until = network.now + rng.uniform(0.3, 3.0)
        self._group.note(f"{', '.join(sorted(side))} cut off until {until - 1000:.3f}")
        if rng.random() < 0.3 and self._weather.slow_sync:
            self.stuck_until[node_id] = until + rng.uniform(-0.2, 0.5)
        breaks, dies = rng.random() < 0.5, rng.random() < self._weather.crash_while_electing
        for near in sorted(side):
            for far in self._group.node_ids:
                if far not in side:
                    network.stalled_until[near, far] = until
                    network.stalled_until[far, near] = until
                    if breaks:
                        self._later.append((until, partial(network.cut, near, far)))
        if dies:
            self._later.append((until, partial(self.arm, node_id)))

    def arm(self, node_id: str) -> None:
        """Let a node die in one of its next file operations."""
        self._group.disks[node_id].crash_in = self._rng.randrange(15)

    def _do_later(self) -> None:
        due = [action for when, action in self._later if when <= self._network.now]
        self._later = [held for held in self._later if held[0] > self._network.now]
        for action in due:
            action()
