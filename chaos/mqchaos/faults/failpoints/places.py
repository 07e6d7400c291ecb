"""A node ends, or is held, at a named place of our code.

The order is given first, and then whatever makes a node come by that place is done
(`mqchaos.faults.failpoints.provoking`). What took effect says the node itself: it writes down that
it is there before it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from dledger.errors import DledgerError, leaves
from dledger.failpoints import PLACES, Place, When
from dledger.program.arming import Order
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.processes import ClusterError
from mqchaos.faults.failpoints.orders import give, has_done, next_number, not_ordered, withdraw
from mqchaos.faults.failpoints.provoking import PROVOCATIONS, clean_up, lacking
from mqchaos.faults.kinds import FAILPOINT_HOLD, FAILPOINT_KILL, Kind
from mqchaos.faults.obstacles import OfFew
from mqchaos.faults.targets import Victims
from mqchaos.limits import HELD_S_MAX, POLL_S


@dataclass(frozen=True, slots=True)
class AtPlace(OfFew):
    """A fault at a named place of the code. `place` is a step's: `at` gives the fault there."""

    kind: Kind
    place: str = ""

    def at(self, place: str) -> AtPlace:
        """A fault of this kind, at a place."""
        return type(self)(self.kind, place)

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """The obstacle: a victim does not serve, no majority is left without it, or nodes here
        can't come by the place."""
        if self.place not in PLACES:
            return f"there is no place {self.place!r}"
        obstacle = not_ordered(cluster) or lacking(cluster, PLACES[self.place])
        return obstacle or OfFew.why_not(self, cluster, victims)

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Order it, and do what makes the nodes come by; return when they have."""
        place = PLACES[self.place]
        if self.kind is FAILPOINT_HOLD:
            cluster.cut_off |= {victim.name for victim in victims}
        nodes = [victim for victim in victims if isinstance(victim, NodeLayout)]
        for node in nodes:
            try:
                with trio.move_on_after(cluster.provoked_s):
                    await self._provoke(cluster, node, place)
            except* DledgerError as group:
                first = next(leaves(group))
                raise ClusterError(
                    f"{node.name} was not made to pass {place.name}: {first}"
                ) from first
            finally:
                await clean_up(cluster, node, place)

    async def _provoke(self, cluster: Cluster, node: NodeLayout, place: Place) -> None:
        async with trio.open_nursery() as nursery:
            order = partial(give, cluster, node.name, [self._order()])
            nursery.start_soon(PROVOCATIONS[place.when], cluster, node, place, order)
            while not await self.took_effect(cluster, (node,)):  # noqa: ASYNC110 - a process's
                await trio.sleep(POLL_S)
            nursery.cancel_scope.cancel()

    def _order(self) -> Order:
        if self.kind is FAILPOINT_KILL:
            return Order(next_number(), self.place, "stop")
        return Order(next_number(), self.place, "hold", seconds=HELD_S_MAX)

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Check that the nodes have said so, and are gone or still there."""
        ends = self.kind is FAILPOINT_KILL
        return all(
            has_done(cluster, victim.name, [self.place])
            and (cluster.pid(victim.name) is None) == ends
            for victim in victims
        )

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Take the order back; start those that ended."""
        names = [victim.name for victim in victims]
        cluster.cut_off -= {*names}
        for name in names:
            await withdraw(cluster, name, [self.place])
            if PLACES[self.place].when is When.SAVE:  # held on its way to its end
                await trio.to_thread.run_sync(cluster.stop, [name])
        cluster.start(names)


PLACE_FAULTS: Final = (AtPlace(FAILPOINT_KILL), AtPlace(FAILPOINT_HOLD))
