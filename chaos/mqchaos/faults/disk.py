"""Faults of one replica's disk: a disk that is new and empty, a bit that has turned, a file gone.

The node is killed first: what a running process has mapped can't be taken from it in an honest way.
While it is down its files are damaged, and it is started again on what is left. A group that has
all its other disks mends it by itself: the log from its leader, an empty node as a learner.
Only one disk at a time: what lay on two of three may have been acknowledged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.processes import ClusterError
from mqchaos.faults.killing import Killing
from mqchaos.faults.kinds import LOST_FILE, ROT, WIPE, Kind
from mqchaos.faults.obstacles import OfFew
from mqchaos.faults.targets import Victims


@dataclass(frozen=True, slots=True)
class DiskFault(OfFew, Killing):
    """`damage` is done to the store of a node that is down; `damaged` looks whether it was."""

    kind: Kind
    damage: Callable[[Path], None]
    damaged: Callable[[Path], bool]

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Kill the nodes, and damage what they leave. ClusterError if there is nothing to damage.

        Then the nodes are down all the same.
        """
        await Killing.inject(self, cluster, victims)
        for store in _stores(cluster, victims):
            await trio.to_thread.run_sync(self.damage, store)

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """They are down, and their files are damaged."""
        down = await Killing.took_effect(self, cluster, victims)
        stores = _stores(cluster, victims)
        return down and await trio.to_thread.run_sync(lambda: all(map(self.damaged, stores)))


def _stores(cluster: Cluster, victims: Victims) -> list[Path]:
    return [cluster.store(node) for node in victims if isinstance(node, NodeLayout)]


def wipe(store: Path) -> None:
    """The disk was replaced: nothing is left."""
    shutil.rmtree(store)


def is_gone(store: Path) -> bool:
    """Whether nothing is left."""
    return not store.exists()


def lose_file(store: Path) -> None:
    """The first segment is gone. Raises ClusterError, and takes nothing, if nobody would miss it.

    A log without a commit and a checkpoint looks like one that is new.
    """
    for segment in sorted((store / "log").glob("*.seg"))[:1]:
        aside = segment.rename(store.with_name(segment.name))
        if is_damaged(store):
            aside.unlink()
            return
        aside.rename(segment)
    raise ClusterError(f"{store} has nothing yet that would miss its first segment")


def rot(store: Path) -> None:
    """One bit of a durable entry has turned. Raises ClusterError if there is none."""
    # Much to import, for commands that only name this fault.
    from mqchaos.faults.rotting import turn_a_bit  # noqa: PLC0415

    turn_a_bit(store)


def is_damaged(store: Path) -> bool:
    """Whether something is missing or false that was durable once."""
    from dledger.log.recovery.verify import verify_replica  # noqa: PLC0415 - the same

    return verify_replica(store).damaged > 0


DISK_FAULTS: Final = (
    DiskFault(WIPE, wipe, is_gone),
    DiskFault(ROT, rot, is_damaged),
    DiskFault(LOST_FILE, lose_file, is_damaged),
)
