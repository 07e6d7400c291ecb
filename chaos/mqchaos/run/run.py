"""A run: a fresh cluster under load, a plan of faults, and a history of all of it.

The run is over when every message has an outcome, every node is back and level with its leader, and
the consumer group was given everything that was acknowledged. It judges nothing: what it leaves in
its directory (history, replicas) is what the audit reads.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from msgspec.structs import replace

from mqchaos import limits
from mqchaos.cluster import layout
from mqchaos.cluster.access import enforce
from mqchaos.cluster.busy import busy_machine, slowdown
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.own_disk import own_disks
from mqchaos.cluster.probe import NodeState, Probe
from mqchaos.cluster.processes import ClusterError, free_ports
from mqchaos.faults.generator import After, AtShare, Phase, Step
from mqchaos.faults.injected import Injected
from mqchaos.faults.kinds import ORDERED
from mqchaos.history.events import (
    TELLS,
    TELLS_ACTS,
    End,
    HistoryWriter,
    Meta,
    Started,
)
from mqchaos.history.reading import read_history
from mqchaos.network.switch import Switch
from mqchaos.run.assigning import CONSUMERS, PRODUCERS, Assigning
from mqchaos.run.load.tools import GIVE_BACK, MEDDLING, Tools
from mqchaos.run.load.workers import Deployed, Worker
from mqchaos.run.load.workload import (
    WORKLOADS,
    Progress,
    Workload,
    acknowledged_since,
    caught_up,
    outputs_of,
)
from mqchaos.run.machine_speed import MachineSpeed
from mqchaos.run.observer import Observer, nothing_left, without_their_output
from mqchaos.run.ordinary.look import Lived, look
from mqchaos.run.others.programs import Client, Program
from mqchaos.run.others.stock import argv_of, client_of, group_of
from mqchaos.run.planned import Planned

if TYPE_CHECKING:
    from mqchaos.history.packed import Packer

BROKER: Final = "broker-a"
GROUP: Final = "chaos-readers"
QUEUES: Final = 8


class Run:
    """A run in one directory. Its attributes may be looked at while it runs.

    `lines` is the file whose lines are sent.
    """

    def __init__(self, directory: Path, planned: Planned, lines: Path) -> None:
        self.directory = directory
        self.history = directory / "history"
        self.planned = planned
        self.topic = "Lines"
        self.phase = "starting"
        self.nodes: list[NodeState] = []
        self.done: list[str] = []
        self.findings: list[str] = []
        self.notes: list[str] = []
        self.machine_speed = MachineSpeed()
        self._lines = lines
        self._part_bytes = limits.HISTORY_PART_BYTES if planned.parquet else 0
        self._packer = _packer(self.history, directory) if planned.parquet else None
        stock = WORKLOADS[planned.workload].stock
        self.group = group_of(stock, self.topic) if stock else GROUP
        self.producers: list[Client] = []
        self.consumers: list[Client] = []
        nodes, namesrvs = planned.nodes, planned.namesrvs
        groups = WORKLOADS[planned.workload].groups
        ports = free_ports(layout.ports_needed(nodes, groups, namesrvs))
        servers = replace(
            layout.plan(
                ports,
                nodes,
                groups,
                namesrvs,
                network=planned.network and not planned.namespaces,
                namespaces=planned.namespaces,
                tls=planned.tls,
            ),
            users=planned.users,
            segment_bytes=planned.segment_bytes,
            clocks=planned.clocks,
            failpoints=any(step.fault in ORDERED for step in planned.steps),
        )
        self.cluster = Cluster.create(directory / "cluster", servers)

    async def execute(self) -> None:
        """Perform the run from start to end. Whatever happens, no process is left afterwards."""
        self.history.mkdir()
        with self._plugged_in(), self._on_disks(), busy_machine(self.planned.busy):
            await self._execute()
        if self._packer is not None:
            self.phase = "packing the rest of the history"
            await self._packer.pack_rest()

    def _plugged_in(self) -> AbstractContextManager[object]:
        """The network in which all of it happens, where it is one of the harness's own."""
        if not self.planned.namespaces:
            return nullcontext()
        self.cluster.switch = Switch(self.cluster.layout)
        return self.cluster.switch.plugged_in()

    def _on_disks(self) -> AbstractContextManager[object]:
        """The nodes' own file systems, where they have some."""
        if not self.planned.disks:
            return nullcontext()
        stores = {node.name: self.cluster.store(node) for node in self.cluster.layout.nodes}
        return own_disks(self.directory, stores, self.cluster.disks)

    async def _execute(self) -> None:
        try:
            self.phase = f"starting {len(self.cluster.names)} servers"
            self.cluster.start()
            with HistoryWriter(
                self.history / "harness.jsonl", part_bytes=self._part_bytes
            ) as history:
                self._write_meta(history)
                async with AsyncExitStack() as stack:
                    pool = await stack.enter_async_context(self.cluster.pool())
                    observer = Observer(self.cluster, pool, history)
                    await self._under_load(Probe(self.cluster, pool), history, observer)
                history.write(End(time.monotonic_ns()))
            self.phase = "stopping the servers"
            await trio.to_thread.run_sync(self.cluster.stop)
            await trio.to_thread.run_sync(self._look_at_what_was_given)
            if self.planned.users:
                self.findings += self.cluster.refusals()
        finally:
            self.cluster.kill_all()

    def _look_at_what_was_given(self) -> None:
        """To a group in its ordinary life, which the audit knows nothing of."""
        workers = [each for each in self.consumers if isinstance(each, Worker)]
        deployed = sum(each.deployed for each in workers if isinstance(each, Deployed))
        readers = sorted({each.reader for each in workers if each.reader is not None})
        slowness = self.machine_speed.slowness * slowdown(self.planned.busy)
        wrong, counted = look(
            WORKLOADS[self.planned.workload],
            partial(read_history, self.history),
            Lived(GROUP, deployed, QUEUES, slowness, readers),
        )
        self.findings += wrong
        self.notes += counted

    @property
    def produced(self) -> list[Progress]:
        """The progress that each producer reported last."""
        return [worker.progress for worker in self.producers]

    @property
    def consumed(self) -> list[Progress]:
        """The progress that each consumer reported last."""
        return [worker.progress for worker in self.consumers]

    async def _under_load(self, probe: Probe, history: HistoryWriter, observer: Observer) -> None:
        await probe.wait_until_serving()
        workload = WORKLOADS[self.planned.workload]
        async with self.cluster.admin() as admin:
            if self.planned.users:
                await enforce(self.cluster.directory, admin)
            for topic in (self.topic, outputs_of(self.topic)) if workload.once else (self.topic,):
                await admin.topics.update(
                    topic,
                    read_queues=QUEUES,
                    write_queues=QUEUES,
                    attributes="+message.type=PRIORITY" if workload.by_priority else None,
                )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, probe, observer)
            nursery.start_soon(self.machine_speed.keep_looking)
            if self._packer is not None:
                nursery.start_soon(self._packer.keep_packing)
            nursery.start_soon(observer.keep_asking, self.topic, QUEUES, self.group)
            if workload.stock:
                self._plan_stock(workload)
            else:
                self._plan_workers(workload, _noting_starts(history))
            for client in [*self.consumers, *self.producers]:
                await nursery.start(client.run)
            uniform = random.Random(self.planned.seed).uniform
            stop = trio.Event()
            what = (self.topic, GROUP, QUEUES)
            tools = Tools(self.cluster, probe, *what, history.write, uniform, stop)
            meddled = trio.Event()
            nursery.start_soon(_meddle, workload, tools, meddled)
            self.phase = "sending"
            await self._first_acknowledgements()
            noted = (BROKER, history.write, self.done)
            injected = Injected(self.cluster, probe, *noted, strict=self.planned.strict)
            for step in self.planned.steps:
                await self._moment(step.when)
                await self._act(step, probe, injected)
            self.phase = "waiting until tools have given back what they took"
            tools.stop.set()
            await meddled.wait()
            await self._end_producers()
            self.phase = "waiting until all replicas are level"
            for broker in self.cluster.layout.brokers:
                await probe.wait_until_level(broker)
            await self._end_consumers(observer)
            if workload.once:
                self.phase = "comparing inputs and outputs"
                self.findings += await self._without_their_output()
            nursery.cancel_scope.cancel()

    async def _without_their_output(self) -> list[str]:
        what = (self.cluster.layout.namesrv_addr, self.cluster.access, self.topic, GROUP)
        async with self.cluster.admin() as admin:
            return await without_their_output(admin, *what)

    def _plan_stock(self, workload: Workload) -> None:
        """Plan a process of RocketMQ's own client, which sends and reads."""
        address = self.cluster.layout.namesrv_addr_for(layout.CLIENTS)
        argv = argv_of(
            workload.stock, address, self.topic, self.planned.rate_per_s, tls=self.planned.tls
        )
        history = Path(self._file(client_of(workload.stock)))
        program = Program([*self._through(), *argv], history, self.directory / "stock.log")
        self.producers.append(program.sending)
        self.consumers.append(program.reading)

    def _plan_workers(self, workload: Workload, started: Callable[[str], None]) -> None:
        """Plan the processes of our client. `started` gets the name of each that has begun its
        history."""
        address = self.cluster.layout.namesrv_addr_for(layout.CLIENTS)
        where = (address, self.topic, GROUP, self.directory, self._lines, self._part_bytes)
        assigning = Assigning(self.planned, *where, self.cluster.identity)
        through = self._through()
        turns = trio.Semaphore(1)
        for reads in map(assigning.consume, range(CONSUMERS)):
            log = self.directory / f"{reads.client}.log"
            if workload.deployed:
                self.consumers.append(Deployed(reads, log, turns, through, started))
            else:
                self.consumers.append(Worker(reads, log, workload.dies_s, through, started))
        for sends in map(assigning.produce, range(PRODUCERS)):
            log = self.directory / f"{sends.client}.log"
            dies_s = workload.producers_die_s
            self.producers.append(Worker(sends, log, dies_s, through, started))

    def _through(self) -> list[str]:
        """The command by which a client gets to where it can reach the servers."""
        switch = self.cluster.switch
        return [] if switch is None else switch.inside(layout.CLIENTS)

    async def _first_acknowledgements(self) -> None:
        """A fault before them would find nobody who waits for one. Raises ClusterError."""
        with trio.move_on_after(limits.START_TIMEOUT_S):
            await _until(lambda: all(progress.acked for progress in self.produced))
            return
        raise ClusterError(
            f"not every producer sent a message within {limits.START_TIMEOUT_S:.0f} s"
        )

    async def _acknowledged_again(self) -> None:
        """Wait until each producer that waits for an outcome is given one, but not for ever.

        Replicas may be level long before clients are back: what a cut lost TCP sends again, each
        time later. A next fault of links would meet no traffic. How long it took, the judge sees.
        """
        before = [progress.acked for progress in self.produced]
        with trio.move_on_after(limits.BACK_TIMEOUT_S):
            await _until(lambda: all(map(acknowledged_since, before, self.produced)))

    def _file(self, client: str) -> str:
        return str(self.history / f"{client}.jsonl")

    async def _moment(self, when: AtShare | After) -> None:
        """Wait until a step is due."""
        if isinstance(when, After):
            await trio.sleep(when.seconds)
            return
        wanted = when.share * (self.planned.messages or 0)
        await _until(lambda: sum(progress.sent for progress in self.produced) >= wanted)

    async def _act(self, step: Step, probe: Probe, injected: Injected) -> None:
        if step.phase is Phase.LEVEL:
            await probe.wait_until_level(BROKER)
            await self._acknowledged_again()
        elif step.phase is Phase.HEAL:
            await injected.heal(step)
        else:
            await injected.inject(step)

    async def _watch(self, probe: Probe, observer: Observer) -> None:
        """Write down who leads and who voted for whom, whenever that changes."""
        while True:
            began = time.monotonic_ns()
            self.nodes = await probe.group(BROKER)
            observer.note_leaders(self.nodes, began)
            observer.note_votes()
            await trio.sleep(limits.PROBE_INTERVAL_S)

    async def _end_producers(self) -> None:
        """Each ends by itself, or is told to. Raises ClusterError for one that never does."""
        self.phase = "waiting for the last sends' outcomes"
        for worker in self.producers:
            if self.planned.messages is not None:
                await worker.finished.wait()
                continue
            patience_s = self.planned.send_timeout_s + limits.DRAIN_TIMEOUT_S
            with trio.move_on_after(patience_s):
                await worker.finish()
            if not worker.finished.is_set():
                raise ClusterError(f"a producer awaits outcomes {patience_s:.0f} s after its end")

    async def _end_consumers(self, observer: Observer) -> None:
        self.phase = "waiting for the consumers to catch up"
        # The queues' ends alone say where delayed messages are.
        seen = Progress(ends=observer.ends)
        workload = WORKLOADS[self.planned.workload]
        each = workload.broadcast

        # A member that dies between its commit and its word of it has the brokers to speak for it.
        passed = Progress(ends=observer.passed)

        def readers() -> list[list[Progress]]:
            if workload.members:  # what is done of what was popped, only they say
                return [[passed]]
            if each:
                return [[progress] for progress in self.consumed]
            return [[*self.consumed, passed]]

        with trio.move_on_after(limits.DRAIN_TIMEOUT_S) as scope:
            if workload.lives:  # what was seen of ends may be of earlier lives
                async with self.cluster.admin() as admin:
                    await nothing_left(admin, self.topic, GROUP)
            else:
                await _until(
                    lambda: all(caught_up([*self.produced, seen], some) for some in readers())
                )
        if scope.cancelled_caught:
            self.findings.append(
                f"the consumers had not caught up {limits.DRAIN_TIMEOUT_S:.0f} s after the last "
                "send"
            )
        self.phase = "letting the consumers leave"
        for worker in self.consumers:
            await worker.begun()
            within_s = limits.STOP_TIMEOUT_S * self.machine_speed.slowness
            with trio.move_on_after(within_s):
                await worker.finish()
            if not worker.finished.is_set():
                self.findings.append(f"a consumer did not leave within {within_s:.0f} s")

    def _told(self) -> list[str]:
        """Kinds of events that the clients' history tells: offsets that are kept in files are in no
        log."""
        workload = WORKLOADS[self.planned.workload]
        if workload.stock:
            return []
        kinds = [tells for tells in TELLS if not (tells == "commit" and workload.broadcast)]
        return [*kinds, TELLS_ACTS] if workload.lives else kinds

    def _write_meta(self, history: HistoryWriter) -> None:
        stores = self.cluster.stores()
        now = time.monotonic_ns()
        planned = self.planned
        by_priority = WORKLOADS[planned.workload].by_priority
        levels = {self.topic: QUEUES} if by_priority else None
        about = (planned.seed, planned.scenario, self.topic, True, stores)
        history.write(Meta(now, *about, levels=levels, tells=self._told()))


def _packer(history: Path, directory: Path) -> Packer:
    # Much to import, and an extra: for histories that are packed alone.
    from mqchaos.history.packed import Packer  # noqa: PLC0415

    return Packer(history, directory / "packing")


def _noting_starts(history: HistoryWriter) -> Callable[[str], None]:
    """Writes down that a client has begun its history."""
    return lambda client: history.write(Started(time.monotonic_ns(), client))


async def _meddle(workload: Workload, tools: Tools, through: trio.Event) -> None:
    """Do what the workload's tools do; they are `through` when they have given back all of it."""
    if workload.tools not in GIVE_BACK:
        through.set()
    if workload.tools is not None:
        await MEDDLING[workload.tools](tools)
    through.set()


async def _until(holds: Callable[[], bool]) -> None:
    """Wait until something that other processes report holds."""
    while not holds():  # noqa: ASYNC110 - their progress comes ten times a second, not as an event
        await trio.sleep(limits.PROBE_INTERVAL_S)
