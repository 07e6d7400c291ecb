"""One run: a fresh cluster under load, a plan of faults, and a history of all of it.

The run is over when every message has an outcome, every node is back and level with its leader, and
the consumer group was given everything that was acknowledged. It judges nothing: what it leaves in
its directory (history, replicas) is what the audit reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import trio

from mqchaos.cluster import layout
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.probe import NodeState, Probe, leader_of
from mqchaos.cluster.processes import ClusterError, free_ports
from mqchaos.faults import fault as faults
from mqchaos.faults.generator import After, AtShare, Phase, Plan, Step
from mqchaos.faults.targets import NEED_LEADER, Target, Victims, victims
from mqchaos.limits import DRAIN_TIMEOUT_S, PROBE_INTERVAL_S, START_TIMEOUT_S, STOP_TIMEOUT_S
from mqchaos.run.history import End, Fault, HistoryWriter, Lead, Meta
from mqchaos.run.workers import Worker
from mqchaos.run.workload import Consume, Produce, Progress, caught_up, run_name, split
from mqclient import Admin
from mqclient.connection.peers import PeerPool

BROKER = "broker-a"
GROUP = "chaos-readers"


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients do. `messages` None: until the plan is through. The rate is of them all."""

    lines: Path
    messages: int | None
    rate_per_s: float
    producers: int = 2
    consumers: int = 2
    queues: int = 8


class Run:
    """One run in one directory. Its attributes may be looked at while it runs."""

    def __init__(
        self,
        directory: Path,
        scenario: str,
        seed: int,
        plan: Plan,
        load: Load,
        nodes: int = 3,
        namesrvs: int = 1,
        network: bool = False,
    ) -> None:
        self.directory = directory
        self.history = directory / "history"
        self.scenario = scenario
        self.seed = seed
        self.load = load
        self.topic = "Lines"
        self.phase = "starting"
        self.nodes: list[NodeState] = []
        self.done: list[str] = []
        self.findings: list[str] = []
        self._plan = plan
        self._hurt: list[tuple[Victims, faults.Fault]] = []
        self.producers: list[Worker] = []
        self.consumers: list[Worker] = []
        ports = free_ports(layout.ports_needed(nodes, groups=1, namesrvs=namesrvs))
        servers = layout.plan(ports, nodes, namesrvs=namesrvs, network=network)
        self.cluster = Cluster.create(directory / "cluster", servers)

    async def execute(self) -> None:
        """Run it all. Whatever happens, no process is left afterwards."""
        self.history.mkdir()
        try:
            self.phase = f"starting {len(self.cluster.names)} servers"
            self.cluster.start()
            with HistoryWriter(self.history / "harness.jsonl") as history:
                self._write_meta(history)
                async with AsyncExitStack() as stack:
                    probe = Probe(self.cluster, await stack.enter_async_context(PeerPool()))
                    await self._under_load(probe, history)
                history.write(End(time.monotonic_ns()))
            self.phase = "stopping the servers"
            await trio.to_thread.run_sync(self.cluster.stop)
        finally:
            self.cluster.kill_all()

    @property
    def produced(self) -> list[Progress]:
        """What the producers said last."""
        return [worker.progress for worker in self.producers]

    @property
    def consumed(self) -> list[Progress]:
        """What the consumers said last."""
        return [worker.progress for worker in self.consumers]

    async def _under_load(self, probe: Probe, history: HistoryWriter) -> None:
        await probe.wait_until_serving()
        async with Admin(self.cluster.layout.namesrv_addr) as admin:
            queues = self.load.queues
            await admin.topics.update(self.topic, read_queues=queues, write_queues=queues)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_leaders, probe, history)
            await self._start_workers(nursery)
            self.phase = "sending"
            await self._first_acknowledgements()
            for step in self._plan:
                await self._moment(step.when)
                await self._act(step, probe, history)
            await self._end_producers()
            self.phase = "waiting until all replicas are level"
            await probe.wait_until_level(BROKER)
            await self._end_consumers()
            nursery.cancel_scope.cancel()

    async def _start_workers(self, nursery: trio.Nursery) -> None:
        load, run = self.load, run_name(self.seed, self.scenario)
        address = self.cluster.layout.namesrv_addr_for(layout.CLIENTS)
        shares = (
            [None] * load.producers
            if load.messages is None
            else split(load.messages, load.producers)
        )
        for number in range(load.consumers):
            name = f"consumer-{number}"
            task = Consume(name, address, self.topic, self._file(name), GROUP)
            self.consumers.append(Worker(task, self.directory / f"{name}.log"))
        for number, share in enumerate(shares):
            name = f"producer-{number}"
            self.producers.append(
                Worker(
                    Produce(
                        client=name,
                        namesrv_addr=address,
                        topic=self.topic,
                        history=self._file(name),
                        lines=str(load.lines),
                        index=number,
                        producers=load.producers,
                        messages=share,
                        rate_per_s=load.rate_per_s / load.producers,
                        run=run,
                    ),
                    self.directory / f"{name}.log",
                )
            )
        for worker in [*self.consumers, *self.producers]:
            await nursery.start(worker.run)

    async def _first_acknowledgements(self) -> None:
        """A fault before them would find nobody who waits for one. Raises ClusterError."""
        with trio.move_on_after(START_TIMEOUT_S):
            await _until(lambda: all(progress.acked for progress in self.produced))
            return
        raise ClusterError(f"not every producer sent a message within {START_TIMEOUT_S:.0f} s")

    def _file(self, client: str) -> str:
        return str(self.history / f"{client}.jsonl")

    async def _moment(self, when: AtShare | After) -> None:
        """Wait until a step is due."""
        if isinstance(when, After):
            await trio.sleep(when.seconds)
            return
        wanted = when.share * (self.load.messages or 0)
        await _until(lambda: sum(progress.sent for progress in self.produced) >= wanted)

    async def _act(self, step: Step, probe: Probe, history: HistoryWriter) -> None:
        if step.phase is Phase.LEVEL:
            await probe.wait_until_level(BROKER)
        elif step.phase is Phase.HEAL:
            hurt, fault = self._hurt.pop(0)
            self._note(history, fault.kind.undone, hurt)
            await fault.heal(self.cluster, hurt)
            probe.away = self._away()
        else:
            await self._inject(step, probe, history)

    async def _inject(self, step: Step, probe: Probe, history: HistoryWriter) -> None:
        fault, hurt = faults.FAULTS[step.fault.name], await self._choose(step, probe)
        name, names = fault.kind.name, ", ".join(server.name for server in hurt)
        obstacle = fault.why_not(self.cluster, hurt)
        if obstacle is not None:
            raise ClusterError(f"no {name} of {names} now: {obstacle}")
        self._note(history, name, hurt, " (leader)" * (step.target is Target.LEADER))
        probe.away |= {server.name for server in hurt}
        await fault.inject(self.cluster, hurt)
        if not await fault.took_effect(self.cluster, hurt):
            raise ClusterError(f"{name} of {names} had no effect")
        if fault.kind.undone:
            self._hurt.append((hurt, fault))
        probe.away = self._away()

    def _away(self) -> set[str]:
        """The servers that have a fault."""
        return {server.name for hurt, _ in self._hurt for server in hurt}

    async def _choose(self, step: Step, probe: Probe) -> Victims:
        needs = step.target in NEED_LEADER
        leader = (await probe.wait_for_leader(BROKER)).node if needs else None
        return victims(step.target, step.pick, self.cluster.layout, BROKER, leader)

    def _note(self, history: HistoryWriter, fault: str, hurt: Victims, role: str = "") -> None:
        """One event for each server, all of one moment."""
        now = time.monotonic_ns()
        short = [server.node if isinstance(server, NodeLayout) else server.name for server in hurt]
        for server, node in zip(hurt, short, strict=True):
            broker = server.broker if isinstance(server, NodeLayout) else ""
            history.write(Fault(now, fault, broker, node))
        self.done.append(f"{fault} {', '.join(short)}{role}")

    async def _watch_leaders(self, probe: Probe, history: HistoryWriter) -> None:
        """Write down who leads, whenever that changes."""
        seen: tuple[str, int] | None = None
        while True:
            self.nodes = await probe.group(BROKER)
            leader = leader_of(self.nodes)
            if leader is not None and leader.info is not None:
                now = (leader.node.node, leader.info.term)
                if now != seen:
                    history.write(Lead(time.monotonic_ns(), BROKER, *now))
                seen = now
            await trio.sleep(PROBE_INTERVAL_S)

    async def _end_producers(self) -> None:
        self.phase = "waiting for the last sends' outcomes"
        for worker in self.producers:
            if self.load.messages is None:
                await worker.finish()
            await worker.finished.wait()

    async def _end_consumers(self) -> None:
        self.phase = "waiting for the consumers to catch up"
        with trio.move_on_after(DRAIN_TIMEOUT_S) as scope:
            await _until(lambda: caught_up(self.produced, self.consumed))
        if scope.cancelled_caught:
            self.findings.append(
                f"the consumers had not caught up {DRAIN_TIMEOUT_S:.0f} s after the last send"
            )
        self.phase = "letting the consumers leave"
        for worker in self.consumers:
            with trio.move_on_after(STOP_TIMEOUT_S):
                await worker.finish()
            if not worker.finished.is_set():
                self.findings.append(f"a consumer did not leave within {STOP_TIMEOUT_S:.0f} s")

    def _write_meta(self, history: HistoryWriter) -> None:
        stores = self.cluster.stores()
        now = time.monotonic_ns()
        history.write(Meta(now, self.seed, self.scenario, self.topic, True, stores))


async def _until(holds: Callable[[], bool]) -> None:
    """Wait until something that other processes report holds."""
    while not holds():  # noqa: ASYNC110 - their progress comes ten times a second, not as an event
        await trio.sleep(PROBE_INTERVAL_S)
