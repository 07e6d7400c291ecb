"""Whole groups on virtual time, which a test disturbs.

The groups are those of the simulation, real engines over real logs, without random faults: the test
breaks what is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from dledger.errors import AppendError
from dledger.log.entry import Kind
from dledger.raft.appends import Appended
from dledger.raft.library.adapter import use_clock
from dledger.testing.simulation.group import Simulation
from dledger.testing.simulation.node import SimulatedNode

Pair = tuple[str, str]


class Group:
    """A simulated group without faults, and what a test does to it."""

    def __init__(self, size: int = 3, seed: int = 1, *, preferred: bool = False) -> None:
        print(f"seed {seed}, {size} nodes")
        self.sim = Simulation(seed, size)
        self.sim.odds = replace(self.sim.odds, slow_sync=0.0, clock_drift=0.0, preferred=preferred)
        for node_id in self.sim.node_ids:  # again, since the preference is the node's own
            self.sim.crash(node_id, power=False)
            self.sim.down_until[node_id] = 0.0
        self.run(2.0)

    @property
    def ids(self) -> list[str]:
        return self.sim.node_ids

    @property
    def now(self) -> float:
        return self.sim.network.now

    def run(self, seconds: float) -> None:
        self.sim.run(seconds, faults=False)

    def run_until(self, holds: Callable[[], bool], limit_s: float) -> float:
        """Pass time until a condition holds; the seconds that it took."""
        since = self.now
        while not holds():
            assert self.now - since < limit_s, "\n".join(self.sim.transcript[-30:])
            self.run(0.01)
        return self.now - since

    def node(self, node_id: str) -> SimulatedNode:
        return self.sim.nodes[node_id]

    @property
    def leaders(self) -> list[str]:
        return [i for i in self.ids if i in self.sim.nodes and self.serves(i)]

    def serves(self, node_id: str) -> bool:
        return self.node(node_id).engine.standing.serving

    @property
    def leader(self) -> str:
        (leader,) = self.leaders
        return leader

    @property
    def followers(self) -> list[str]:
        return [node_id for node_id in self.ids if node_id != self.leader]

    @property
    def terms(self) -> set[int]:
        return {node.engine.core.term for node in self.sim.nodes.values()}

    def silence(self, pairs: Iterable[Pair], seconds: float) -> None:
        """Stop all traffic from the first to the second of each pair, for some seconds."""
        for pair in pairs:
            self.sim.network.stalled_until[pair] = self.now + seconds

    def append(
        self, node_id: str, kind: int = Kind.MESSAGES, *, urgent: bool = False
    ) -> list[Appended | AppendError]:
        outcome: list[Appended | AppendError] = []
        use_clock(self.node(node_id).clock)
        self.node(node_id).engine.append(b"body", kind, outcome.append, urgent=urgent)
        return outcome

    def longest_gap(self, seconds: float) -> float:
        """The longest time without an acknowledged append, with one tried every 20 ms."""
        last, gap, end = self.now, 0.0, self.now + seconds
        waiting: list[list[Appended | AppendError]] = []
        while self.now < end:
            for node_id in self.leaders:
                try:
                    waiting.append(self.append(node_id))
                except AppendError:
                    continue
            self.run(0.02)
            if any(outcome and isinstance(outcome[0], Appended) for outcome in waiting):
                gap, last = max(gap, self.now - last), self.now
            waiting = [outcome for outcome in waiting if not outcome]
        return max(gap, self.now - last)


def both_ways(first: str, others: Iterable[str]) -> list[Pair]:
    return [pair for other in others for pair in ((first, other), (other, first))]
