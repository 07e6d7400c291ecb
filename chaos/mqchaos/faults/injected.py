"""The faults of a run: injected one after the other, noted in its history, and healed.

A fault that is not healed yet is under way. Its servers count as away, so that nobody waits for
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.probe import Probe
from mqchaos.cluster.processes import ClusterError
from mqchaos.faults import fault as faults
from mqchaos.faults.generator import Step
from mqchaos.faults.targets import (
    NEED_LEADER,
    Target,
    Victims,
    names_of,
    short_name,
    victims,
)
from mqchaos.history.events import Fault
from mqchaos.limits import LEADER_TIMEOUT_S, PROVOKED_AMID_S, PROVOKED_S, RANDOM_LEADER_S


class _UnderWay(NamedTuple):
    """A fault that was injected and is not healed; `name` is its step's."""

    name: str
    servers: Victims
    fault: faults.Fault


class Injected:
    """The faults of a run. `done` gets a line for each that was injected, healed or left out.

    In a strict run, a fault that can't be injected ends it.
    """

    def __init__(
        self,
        cluster: Cluster,
        probe: Probe,
        broker: str,
        write: Callable[[Fault], None],
        done: list[str],
        *,
        strict: bool,
    ) -> None:
        self._cluster = cluster
        self._probe = probe
        self._broker = broker
        self._write = write
        self._done = done
        self._strict = strict
        self._under_way: list[_UnderWay] = []

    async def heal(self, step: Step) -> None:
        """Undo the fault of the step's name, or the oldest; none, if it was left out."""
        healed = next((each for each in self._under_way if step.name in (each.name, "")), None)
        if healed is not None:
            self._under_way.remove(healed)
            self._note(healed.fault.kind.undone, healed.servers)
            await healed.fault.heal(self._cluster, healed.servers)
            self._tell_away()

    async def inject(self, step: Step) -> None:
        """Inject a fault, or say why not. Raises ClusterError in a strict run."""
        fault = faults.fault_of(step.fault, step.place)
        try:
            servers = await self._choose(step)
            obstacle = fault.why_not(self._cluster, servers)
            if obstacle is not None:
                raise ClusterError(f"no {step.fault} of {names_of(servers)} now: {obstacle}")
        except ClusterError as error:
            if self._strict:
                raise
            self._done.append(f"left out: {step.fault} ({str(error).splitlines()[0]})")
            return
        role = " (leader)" * (step.target is Target.LEADER)
        self._note(step.fault, servers, role, step.place)
        begun = _UnderWay(step.name, servers, fault)
        self._under_way.append(begun)
        self._tell_away()
        alone = self._under_way == [begun]
        self._cluster.provoked_s = PROVOKED_S if alone else PROVOKED_AMID_S
        try:
            await fault.inject(self._cluster, servers)
            if not await fault.took_effect(self._cluster, servers):
                raise ClusterError(f"{step.fault} of {names_of(servers)} had no effect")
        except ClusterError as error:
            if self._strict:
                raise
            self._done.append(f"in vain: {step.fault} ({str(error).splitlines()[0]})")
        if not fault.kind.undone:
            self._under_way.remove(begun)
        self._tell_away()

    def _tell_away(self) -> None:
        self._probe.away = {server.name for each in self._under_way for server in each.servers}

    async def _choose(self, step: Step) -> Victims:
        leader = None
        if step.target in NEED_LEADER:
            timeout_s = LEADER_TIMEOUT_S if self._strict else RANDOM_LEADER_S
            leader = (await self._probe.wait_for_leader(self._broker, timeout_s)).node
        return victims(step.target, step.pick, self._cluster.layout, self._broker, leader)

    def _note(self, fault: str, servers: Victims, role: str = "", place: str = "") -> None:
        """Write an event for each server, all with one time."""
        now = time.monotonic_ns()
        for server in servers:
            broker = server.broker if isinstance(server, NodeLayout) else ""
            self._write(Fault(now, fault, broker, short_name(server), place))
        at = f" at {place}" * bool(place)
        self._done.append(f"{fault} {names_of(servers)}{role}{at}")
