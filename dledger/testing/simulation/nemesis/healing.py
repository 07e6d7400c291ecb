"""The end of a simulated run: nothing goes wrong any more, and the group must become whole.

Whole is a group whose members are all up, undamaged, level, and at rest, under the leader that is
wished for. Then every log must hold what was acknowledged, and every question be answered.
"""

from __future__ import annotations

from typing import Protocol

from dledger.testing.disk import SimulatedDisk
from dledger.testing.simulation.judge.client_history import Violation
from dledger.testing.simulation.judge.invariants import Judge
from dledger.testing.simulation.nemesis.damage import Damages
from dledger.testing.simulation.network import Network
from dledger.testing.simulation.node import SimulatedNode
from dledger.testing.simulation.odds import Odds

HEAL_LIMIT_S = 15.0
LOOK_S = 0.5
"""Between two looks at a group that heals. While a repair has gone on since the last one, the limit
is not drawn on: where a message carries one entry only, it takes a round trip for each."""
HEAL_FRAMES_MAX = 50_000
"""Messages without any append after which they must be causing each other for ever."""


class UnderWay(Protocol):
    """The repairs that are under way."""

    @property
    def wanted(self) -> dict[str, int]:
        """The entry that each of the nodes wants next."""


class Healed(Protocol):
    """The parts of a simulated group that its healing touches."""

    odds: Odds
    network: Network
    judge: Judge
    node_ids: list[str]
    disks: dict[str, SimulatedDisk]
    nodes: dict[str, SimulatedNode]
    damages: Damages

    @property
    def repairs(self) -> UnderWay:
        """The repairs of damaged logs."""

    def violation(self, text: str) -> Violation:
        """The exception for a broken invariant."""

    def crash(self, node_id: str, *, power: bool) -> None:
        """Kill a node's process, or cut its machine's power."""

    def run(self, duration_s: float, *, faults: bool) -> None:
        """Run the group for some virtual time."""


def heal(group: Healed) -> float:
    """Heal everything; all logs must become equal and hold what was acknowledged.

    Returns how long it took, in virtual seconds. Raises Violation.
    """
    network = group.network
    network.stalled_until.clear()
    network.slow.clear()
    for disk in group.disks.values():
        disk.crash_in, disk.fail_in, disk.full = None, None, False
    for node in [node for node in group.nodes.values() if node.fenced]:
        group.crash(node.node_id, power=True)
    healing_since, frames = network.now, network.frames
    wanted, repaired_s = group.repairs.wanted, 0.0
    while True:
        group.run(LOOK_S, faults=False)
        before, wanted = wanted, group.repairs.wanted
        repaired_s += LOOK_S * (wanted != before)
        healed_s = network.now - healing_since - repaired_s
        if _is_whole(group):
            break
        if network.frames - frames > HEAL_FRAMES_MAX:
            raise group.violation("the group does not come to rest: messages beget messages")
        if healed_s > HEAL_LIMIT_S:
            members = _members_up(group)
            raise group.violation(
                f"not healed after {healed_s:.0f} calm seconds: "
                f"ends { {node.log.last_index for node in members} }, "
                f"commits { {node.engine.core.commit_index for node in members} }, "
                f"leaders {_leaders(group)}, "
                f"{group.judge.client.reads_waiting} reads without an answer"
            )
    group.judge.client.finish({node.node_id: node.log for node in _members_up(group)})
    return healed_s


def _is_whole(group: Healed) -> bool:
    ends = {node.log.last_index for node in _members_up(group)}
    commits = {node.engine.core.commit_index for node in _members_up(group)}
    rotten = any(map(group.damages.is_rotten, group.node_ids))
    up = len(group.nodes) == len(group.node_ids)
    answered = not group.judge.client.reads_waiting
    level = ends == commits and len(ends) == 1
    return up and not rotten and answered and level and _led_as_preferred(group)


def _members_up(group: Healed) -> list[SimulatedNode]:
    """The nodes that are up and are members to the leader, or all if nobody leads."""
    leaders, nodes = _leaders(group), group.nodes
    members = nodes[leaders[0]].engine.members.current.members if leaders else nodes
    return [node for node_id, node in nodes.items() if node_id in members]


def _leaders(group: Healed) -> list[str]:
    return [node.node_id for node in group.nodes.values() if node.engine.standing.serving]


def _led_as_preferred(group: Healed) -> bool:
    """Whether a node leads, takes appends, and is the preferred one if there is one; all members
    are up, and vote."""
    leaders = _leaders(group)
    if len(leaders) != 1 or group.nodes[leaders[0]].engine.handing_over_to:
        return False
    members = group.nodes[leaders[0]].engine.members.current
    if members.learners or len(_members_up(group)) < len(members.members):
        return False
    preferred = group.odds.preferred and members.votes("n0")
    return not preferred or leaders == ["n0"]
