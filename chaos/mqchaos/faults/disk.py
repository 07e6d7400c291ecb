"""Faults of one replica's disk: it is new and empty, a bit has turned, a file is gone or cut short.

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
from mqchaos.faults.kinds import LOST_FILE, ROT, SHORT_FILE, STALE, WIPE, Kind
from mqchaos.faults.obstacles import OfFew
from mqchaos.faults.targets import Victims
from mqchaos.limits import STALE_S


@dataclass(frozen=True, slots=True)
class DiskFault(OfFew, Killing):
    """A kill of nodes, with damage to their stores. `damage` is done to the store of a node that is
    down; `damaged` looks whether it was."""

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
        """Check that the nodes are down, and their files damaged."""
        down = await Killing.took_effect(self, cluster, victims)
        stores = _stores(cluster, victims)
        return down and await trio.to_thread.run_sync(lambda: all(map(self.damaged, stores)))


class StaleFile(OfFew, Killing):
    """A file of the log comes back as it was some seconds before, as from a backup, or a snapshot.

    Only where a start can miss what was in it: a log that was never longer, as far as its own files
    say, is no damaged log.
    """

    kind = STALE

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Keep the last segments, wait, kill the nodes, and put those back. ClusterError if nobody
        would miss what is gone then."""
        kept = {}
        for store in _stores(cluster, victims):
            segment = max((store / "log").glob("*.seg"))
            kept[store] = segment, await trio.to_thread.run_sync(segment.read_bytes)
        await trio.sleep(STALE_S)
        await Killing.inject(self, cluster, victims)
        for store, (segment, content) in kept.items():
            await trio.to_thread.run_sync(put_back, store, segment, content)

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Check that the nodes are down, and something is missing."""
        down = await Killing.took_effect(self, cluster, victims)
        stores = _stores(cluster, victims)
        return down and await trio.to_thread.run_sync(lambda: all(map(is_damaged, stores)))


def put_back(store: Path, segment: Path, content: bytes) -> None:
    """Give a segment its old content. Raises ClusterError, and changes nothing, if nobody would
    miss the new one."""
    new = segment.read_bytes()
    segment.write_bytes(content)
    if not is_damaged(store):
        segment.write_bytes(new)
        raise ClusterError(f"{store} has nothing yet that would miss the end of {segment.name}")


def _stores(cluster: Cluster, victims: Victims) -> list[Path]:
    return [cluster.store(node) for node in victims if isinstance(node, NodeLayout)]


def wipe(store: Path) -> None:
    """The disk was replaced: nothing is left."""
    if not store.is_mount():
        shutil.rmtree(store)
        return
    for entry in store.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def is_gone(store: Path) -> bool:
    """Whether a store is missing or empty."""
    return not store.exists() or not any(store.iterdir())


def lose_file(store: Path) -> None:
    """The first segment is gone. Raises ClusterError, and takes nothing, if nobody would miss it.

    A log without a commit and a checkpoint looks like one that is new.
    """
    for segment in sorted((store / "log").glob("*.seg"))[:1]:
        moved = segment.rename(store / segment.name)  # on the same disk, which may be its own
        if is_damaged(store):
            moved.unlink()
            return
        moved.rename(segment)
    raise ClusterError(f"{store} has nothing yet that would miss its first segment")


def rot(store: Path) -> None:
    """Turn one bit of a durable entry. Raises ClusterError if there is none."""
    # Much to import, for commands that only name this fault.
    from mqchaos.faults.rotting import turn_a_bit  # noqa: PLC0415

    turn_a_bit(store)


def cut_short(store: Path) -> None:
    """The last segment ends within a durable entry. Raises ClusterError if there is none."""
    from mqchaos.faults.rotting import cut_an_entry  # noqa: PLC0415 - the same

    cut_an_entry(store)


def is_damaged(store: Path) -> bool:
    """Whether something is missing or false that was durable once."""
    from dledger.log.recovery.verify import verify_replica  # noqa: PLC0415 - the same

    return verify_replica(store).damaged > 0


DISK_FAULTS: Final = (
    DiskFault(WIPE, wipe, is_gone),
    DiskFault(ROT, rot, is_damaged),
    DiskFault(LOST_FILE, lose_file, is_damaged),
    DiskFault(SHORT_FILE, cut_short, is_damaged),
    StaleFile(),
)
