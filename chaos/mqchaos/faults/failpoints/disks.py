"""A disk that is slow, full, failing, or read-only: injected into our process, where it asks.

The log asks the kernel through one small class (`dledger.log.disk.Disk`), and an order lets its
operations wait or fail there, as those of a real disk would. What lies beside the log and goes past
that class (files of queues and of the key index) sees none of it. A power loss, a wiped disk and a
bit that turns are done to the files themselves (`mqchaos.faults.disk`, `power_loss`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import trio

from dledger.failpoints import FAILING, TORN_WRITE
from dledger.program.arming import Order
from mqchaos.cluster.cluster import Cluster
from mqchaos.faults.failpoints.orders import give, has_done, next_number, not_ordered, withdraw
from mqchaos.faults.failpoints.provoking import filling
from mqchaos.faults.kinds import BAD_SYNC, FULL_DISK, READ_ONLY, SLOW_DISK, TORN, Kind
from mqchaos.faults.obstacles import OfFew
from mqchaos.faults.targets import Victims
from mqchaos.limits import POLL_S, SLOW_SYNC_S


@dataclass(frozen=True, slots=True)
class OrderedDisk(OfFew):
    """A disk that fails as the process is ordered. `orders` are given as they stand here, but for
    their numbers."""

    kind: Kind
    orders: tuple[Order, ...]

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """The obstacle: a victim takes no orders or does not serve, or its group has no majority
        without the victims."""
        return not_ordered(cluster) or OfFew.why_not(self, cluster, victims)

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Give the orders, and send messages until the disk was asked."""
        for victim in victims:
            orders = [
                Order(next_number(), each.place, each.action, each.nth, each.seconds, each.error)
                for each in self.orders
            ]
            await give(cluster, victim.name, orders)
        with trio.move_on_after(cluster.provoked_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(filling, cluster)
                while not await self.took_effect(cluster, victims):  # noqa: ASYNC110 - a process's
                    await trio.sleep(POLL_S)
                nursery.cancel_scope.cancel()

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """The disk was asked for the first of these; or for any, and who asked has ended."""
        ends = self.kind.state == "down"
        places = self._places if ends else self._places[:1]
        return all(
            has_done(cluster, victim.name, places)
            and (not ends or cluster.pid(victim.name) is None)
            for victim in victims
        )

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Take the orders back; start those that ended."""
        for victim in victims:
            await withdraw(cluster, victim.name, self._places)
        cluster.start([victim.name for victim in victims])

    @property
    def _places(self) -> list[str]:
        return [order.place for order in self.orders]


def _fail(place: str, error: str) -> Order:
    return Order(0, place, "fail", error=error)


ORDERED_DISKS: Final = (
    OrderedDisk(SLOW_DISK, (Order(0, "disk.sync", "slow", seconds=SLOW_SYNC_S),)),
    OrderedDisk(BAD_SYNC, (_fail("disk.sync", "EIO"),)),
    OrderedDisk(FULL_DISK, (_fail("disk.create", "ENOSPC"), _fail("disk.replace", "ENOSPC"))),
    OrderedDisk(READ_ONLY, tuple(_fail(place, "EROFS") for place in sorted(FAILING, reverse=True))),
    OrderedDisk(TORN, (Order(0, TORN_WRITE, "stop"),)),
)
