"""A node that gets too little from the kernel: descriptors, room in files, memory, a processor.

Limits of descriptors, of files and of the address space are those of a running process
(`prlimit`), which needs no root for processes of one's own. For time on a processor the process is
stopped and let go on many times a second, as a scheduler with a small quota does. A node may end
for want of what it needs, and at the very moment when it gets it: it is started again then.
"""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.probe import NodeState, Probe
from mqchaos.cluster.processes import ClusterError
from mqchaos.faults.kinds import FEW_FILES, LOW_MEMORY, SLOW_CPU, SMALL_FILES, Kind
from mqchaos.faults.obstacles import OfFew, effect_of
from mqchaos.faults.targets import Victims
from mqchaos.limits import (
    CYCLE_GOES_S,
    CYCLE_STANDS_S,
    FILE_BYTES_MAX,
    SPARE_DESCRIPTORS,
    SPARE_MEMORY_BYTES,
)


@dataclass(frozen=True, slots=True)
class Limit(OfFew):
    """A limit of the kernel that is lowered for a process. `limit` is lowered to what `used` says
    of a process, and `spare` more.

    `fatal`: no process bears it. One that has not ended when it is healed is about to.
    """

    kind: Kind
    limit: int
    used: Callable[[int], int]
    spare: int
    fatal: bool = False

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Lower the limits of processes that run. ClusterError if one can't be lowered."""
        for pid in self._pids(cluster, victims):
            try:
                _, most = resource.prlimit(pid, self.limit)
                resource.prlimit(pid, self.limit, (self.used(pid) + self.spare, most))
            except (OSError, ValueError) as error:
                raise ClusterError(f"the limits of process {pid} stay: {error}") from error

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """The kernel says that they have less than they might; or they have ended by it."""
        pids = self._pids(cluster, victims)
        return all(_is_lowered(pid, self.limit) for pid in pids) and bool(victims)

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Lift the limits, and start those that have ended."""
        names = [victim.name for victim in victims]
        if self.fatal:
            await trio.to_thread.run_sync(cluster.kill_together, names)
        for pid in self._pids(cluster, victims):
            _, most = resource.prlimit(pid, self.limit)
            resource.prlimit(pid, self.limit, (most, most))
        await _until_decided(cluster, victims)
        cluster.start(names)

    def _pids(self, cluster: Cluster, victims: Victims) -> list[int]:
        pids = [cluster.pid(victim.name) for victim in victims]
        return [pid for pid in pids if pid is not None]


async def _until_decided(cluster: Cluster, victims: Victims) -> None:
    """Wait until each node has ended or goes on, for as long as that may take to show."""
    async with cluster.pool() as pool:
        probe = Probe(cluster, pool)

        async def shows() -> bool:
            nodes = [victim for victim in victims if isinstance(victim, NodeLayout)]
            return all([is_decided(await probe.node(node)) for node in nodes])

        await effect_of(shows)


def is_decided(state: NodeState) -> bool:
    """Whether a node has ended, or takes part: one that is fenced, or silent, is about to end."""
    if state.pid is None:
        return True
    return state.info is not None and state.info.fenced is None


def _is_lowered(pid: int, limit: int) -> bool:
    try:
        least, most = resource.prlimit(pid, limit)
    except ProcessLookupError:
        return True
    return least != most and least < (1 << 40)


def _descriptors(pid: int) -> int:
    return max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()) + 1


def _address_space(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize()


class _Cycle:
    """Stops one node and lets it go on, until it is ended."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.turns = 0
        self._cluster, self._name = cluster, name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self._cluster.signal(self._name, signal.SIGSTOP)
            self._over.wait(CYCLE_STANDS_S)
            self._cluster.signal(self._name, signal.SIGCONT)
            self._over.wait(CYCLE_GOES_S)
            self.turns += 1

    def end(self) -> None:
        """Continue the process for good."""
        self._over.set()
        self._thread.join()


class SlowProcessor(OfFew):
    """The processes get a small share of a processor."""

    kind = SLOW_CPU

    def __init__(self) -> None:
        self._cycles: dict[tuple[Path, str], _Cycle] = {}

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Begin to stop them, again and again."""
        for victim in victims:
            self._cycles[cluster.directory, victim.name] = _Cycle(cluster, victim.name)

        async def shows() -> bool:
            return await self.took_effect(cluster, victims)

        await effect_of(shows)

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Check that the nodes were stopped some times, and still are."""
        cycles = [self._cycles.get((cluster.directory, victim.name)) for victim in victims]
        return all(cycle is not None and cycle.turns > 2 for cycle in cycles)

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Continue the nodes for good."""
        for victim in victims:
            self._cycles.pop((cluster.directory, victim.name)).end()


RESOURCE_FAULTS: Final = (
    Limit(FEW_FILES, resource.RLIMIT_NOFILE, _descriptors, SPARE_DESCRIPTORS),
    Limit(SMALL_FILES, resource.RLIMIT_FSIZE, lambda pid: FILE_BYTES_MAX, 0, fatal=True),
    Limit(LOW_MEMORY, resource.RLIMIT_AS, _address_space, SPARE_MEMORY_BYTES),
    SlowProcessor(),
)
