"""A wall clock that jumps: injected into our process, where the broker asks what time it is.

The broker's store times, delays and locks go by that clock. Elections and timeouts go by a clock
that never jumps, and are not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqchaos.cluster.cluster import Cluster
from mqchaos.faults.failpoints.orders import give, not_ordered, ordered, taken
from mqchaos.faults.kinds import CLOCK_AHEAD, CLOCK_BEHIND, CLOCK_STROBE, Kind
from mqchaos.faults.obstacles import OfMany
from mqchaos.faults.targets import Victims
from mqchaos.limits import CLOCK_JUMP_S, STROBE_EVERY_S, STROBE_JUMP_S


@dataclass(frozen=True, slots=True)
class Clock(OfMany):
    """`ahead_s`: of the machine's clock; with `every_s` it is ahead and behind in turn."""

    kind: Kind
    ahead_s: float
    every_s: float = 0.0

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """While they take orders and serve."""
        return not_ordered(cluster) or OfMany.why_not(self, cluster, victims)

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Have their clocks jump."""
        for victim in victims:
            ahead_ms = round(self.ahead_s * 1000)
            await give(cluster, victim.name, ahead_ms=ahead_ms, strobe_s=self.every_s)

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """They say that they took it."""
        return all(
            taken(cluster, victim.name)
            and ordered(cluster, victim.name).ahead_ms == round(self.ahead_s * 1000)
            for victim in victims
        )

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Have them jump back."""
        for victim in victims:
            await give(cluster, victim.name, ahead_ms=0, strobe_s=0.0)


CLOCK_FAULTS: Final = (
    Clock(CLOCK_AHEAD, CLOCK_JUMP_S),
    Clock(CLOCK_BEHIND, -CLOCK_JUMP_S),
    Clock(CLOCK_STROBE, STROBE_JUMP_S, STROBE_EVERY_S),
)
