"""A wall clock that jumps: where the broker asks what time it is, or for its whole process.

The broker's store times, delays and locks go by that clock. Elections and timeouts go by a clock
that never jumps, and are not touched. By an order only the broker's own question is answered so; in
a cluster with faked clocks (`mqchaos.cluster.faked_clock`) every look of the process is.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from mqchaos import limits
from mqchaos.cluster import faked_clock
from mqchaos.cluster.cluster import Cluster
from mqchaos.faults.failpoints.orders import give, not_ordered, ordered, taken
from mqchaos.faults.kinds import CLOCK_AHEAD, CLOCK_BEHIND, CLOCK_STROBE, Kind
from mqchaos.faults.obstacles import OfMany
from mqchaos.faults.targets import Victims


class _Strobe:
    """Moves a process's clock to and fro, until it is ended."""

    def __init__(self, folder: Path, ahead_s: float, every_s: float) -> None:
        self._folder, self._ahead_s, self._every_s = folder, ahead_s, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        ahead_s = self._ahead_s
        while not self._over.wait(self._every_s):
            ahead_s = -ahead_s
            faked_clock.put_ahead(self._folder, ahead_s)

    def end(self) -> None:
        """Leave it where it is."""
        self._over.set()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class Clock(OfMany):
    """A wall clock that is wrong. `ahead_s`: of the machine's clock; with `every_s` it is ahead and
    behind in turn. Where requests are signed, less: as far as their signatures are still good."""

    kind: Kind
    ahead_s: float
    every_s: float = 0.0
    _strobes: dict[Path, _Strobe] = field(default_factory=dict)

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """The obstacle: a clock that can't be moved, or a victim that does not serve."""
        unmoved = None if cluster.layout.clocks else not_ordered(cluster)
        return unmoved or OfMany.why_not(self, cluster, victims)

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Set the nodes' clocks forward or back; returns when it has happened."""
        ahead_s = self._ahead_s(cluster)
        for victim in victims:
            if cluster.layout.clocks:
                self._move(cluster.folder(victim.name), ahead_s)
            else:
                ahead_ms = round(ahead_s * 1000)
                await give(cluster, victim.name, ahead_ms=ahead_ms, strobe_s=self.every_s)
        if cluster.layout.clocks:
            await trio.sleep(limits.FAKED_SEEN_S)

    def _ahead_s(self, cluster: Cluster) -> float:
        most_s = limits.SIGNED_CLOCK_JUMP_S if cluster.layout.users else limits.CLOCK_JUMP_S
        return max(-most_s, min(self.ahead_s, most_s))

    def _move(self, folder: Path, ahead_s: float) -> None:
        faked_clock.put_ahead(folder, ahead_s)
        if self.every_s:
            self._strobes[folder] = _Strobe(folder, ahead_s, self.every_s)

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Check that the nodes say so, or that their processes look where the clock is moved."""
        return all([await self._took(cluster, victim.name) for victim in victims])

    async def _took(self, cluster: Cluster, name: str) -> bool:
        ahead_s = self._ahead_s(cluster)
        if not cluster.layout.clocks:
            ahead_ms = round(ahead_s * 1000)
            return taken(cluster, name) and ordered(cluster, name).ahead_ms == ahead_ms
        pid = cluster.pid(name)
        found = None if pid is None else faked_clock.ahead_s(cluster.folder(name), pid)
        return found is not None and abs(found) == abs(ahead_s)

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Set the nodes' clocks right again."""
        for victim in victims:
            if cluster.layout.clocks:
                folder = cluster.folder(victim.name)
                if folder in self._strobes:
                    self._strobes.pop(folder).end()
                faked_clock.put_ahead(folder, 0.0)
            else:
                await give(cluster, victim.name, ahead_ms=0, strobe_s=0.0)


CLOCK_FAULTS: Final = (
    Clock(CLOCK_AHEAD, limits.CLOCK_JUMP_S),
    Clock(CLOCK_BEHIND, -limits.CLOCK_JUMP_S),
    Clock(CLOCK_STROBE, limits.STROBE_JUMP_S, limits.STROBE_EVERY_S),
)
