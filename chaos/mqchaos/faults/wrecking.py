"""Damage to a file system of a node's own, as root: the kernel says no, not our code.

All that the node writes meets it: its log, its queues, its index, its own log of events. It needs a
run with `--disks own`, which gives each node an ext4 in an image (`mqchaos.cluster.own_disk`). A
node that ended by it is started again on what a mount finds: what never reached the disk is gone,
and after errors what a check of the file system clears as well.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.own_disk import OwnDisk
from mqchaos.faults.failpoints.provoking import filling
from mqchaos.faults.kinds import ABORTED, LAST_WRITES, NO_SPACE, POWER_LOSS, WRITE_ERRORS, Kind
from mqchaos.faults.obstacles import OfFew
from mqchaos.faults.targets import Victims
from mqchaos.limits import POLL_S, UNROOMED_S


@dataclass(frozen=True, slots=True)
class Wreck(OfFew):
    """Damage to the file system of a node's own disk. `wreck` is done to a disk; `shows` looks at
    it. `killed`: as a machine that loses power is. `terminated`: the node is told to stop, so that
    the sync with which it closes its log fails.

    A node that is neither has to end by itself where its kind says that it is down.
    """

    kind: Kind
    wreck: Callable[[OwnDisk], None]
    shows: Callable[[OwnDisk], bool]
    killed: bool = False
    terminated: bool = False

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """The obstacle: a victim without a disk of its own, one that does not serve, or no majority
        without the victims."""
        if any(victim.name not in cluster.disks for victim in victims):
            return "the nodes of this cluster have no file systems of their own"
        return OfFew.why_not(self, cluster, victims)

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Wreck the disks, and send messages until the nodes have met it."""
        names = [victim.name for victim in victims]
        for name in names:
            await trio.to_thread.run_sync(self.wreck, cluster.disks[name])
        if self.killed:
            await trio.to_thread.run_sync(cluster.kill_together, names)
            return
        if self.terminated:
            for name in names:
                cluster.signal(name, signal.SIGTERM)
        with trio.move_on_after(cluster.provoked_s if self._ends else UNROOMED_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(filling, cluster)
                while any(cluster.pid(name) is not None for name in names):  # noqa: ASYNC110
                    await trio.sleep(POLL_S)
                nursery.cancel_scope.cancel()

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Check the disks, or that the nodes have ended where they must. Who is told to stop ends
        anyway, so both must be seen."""
        names = [victim.name for victim in victims]
        ended = all(cluster.pid(name) is None for name in names)
        if self._ends and not (ended and self.terminated):
            return ended
        disks = [cluster.disks[name] for name in names]
        return await trio.to_thread.run_sync(lambda: all(map(self.shows, disks)))

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Give room back; mount again what nobody uses any more, and start them."""
        names = [victim.name for victim in victims]
        if self._ends:
            # The end of another fault may have started it meanwhile, on what is wrecked.
            await trio.to_thread.run_sync(cluster.kill_together, names)
        for name in names:
            disk = cluster.disks[name]
            mount = partial(disk.mount_again, checked=not self.killed)
            ended = cluster.pid(name) is None
            await trio.to_thread.run_sync(mount if ended else disk.relieve)
        cluster.start(names)

    @property
    def _ends(self) -> bool:
        return self.kind.state == "down"


WRECKED_DISKS: Final = (
    Wreck(POWER_LOSS, lambda disk: disk.inner.cut_power(), OwnDisk.full, killed=True),
    Wreck(NO_SPACE, OwnDisk.fill, OwnDisk.full),
    Wreck(ABORTED, lambda disk: disk.inner.abort(), OwnDisk.full),
    Wreck(WRITE_ERRORS, OwnDisk.starve, OwnDisk.starved),
    Wreck(LAST_WRITES, OwnDisk.starve, OwnDisk.starved, terminated=True),
)
