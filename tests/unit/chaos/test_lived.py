"""Administration of a topic and a group while clients send and read, on virtual time, judged.

The short form of runs with real processes. Harness and audit judge the whole run: its history, and
the log that the broker has left. Each rule has a fault of a broker that it must find.
"""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from dledger.errors import DledgerError
from dledger.world import unix_ms
from mqbroker.requests import core
from mqbroker.requests.popping import asking
from mqbroker.requests.reading import pull
from mqchaos.history.events import TELLS, TELLS_ACTS, End, GroupOffset, HistoryWriter, Meta
from mqchaos.history.reading import read_history
from mqchaos.limits import NS_PER_S
from mqchaos.run.load import noting, popping, producing, tools, work
from mqchaos.run.load.popping import PopWork
from mqchaos.run.load.producing import PRODUCERS
from mqchaos.run.load.tools import GIVE_BACK, MEDDLING, Tools
from mqchaos.run.load.work import ConsumerWork
from mqchaos.run.load.workload import WORKLOADS, Consume, Produce
from mqchaos.run.ordinary.look import Lived, look
from mqlocal import LocalCluster, local_cluster
from mqspark.testing import planting, reference
from mqspark.testing.rewriting import read_log

TOPIC, GROUP, QUEUES = "T", "G", 2
RATE_PER_S = 10.0
LIVED_S = 18.0
ENDS_S = 6.0
"""Time after the last change, until all was given."""


class Clock:
    """The test's own time, in ns that grow with each look: who is first is first."""

    def __init__(self) -> None:
        self._last = 0

    def monotonic_ns(self) -> int:
        """The virtual time in nanoseconds, different at each look."""
        self._last = max(self._last + 1, int(trio.current_time() * NS_PER_S))
        return self._last

    def monotonic(self) -> float:
        """The virtual time in seconds."""
        return trio.current_time()

    def time(self) -> float:
        """The servers' clock in seconds."""
        return unix_ms() / 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Virtual time for the notes of a run's clients and tools."""
    clock = Clock()
    for module in (noting, popping, producing, tools, work):
        monkeypatch.setattr(module, "time", clock)
    return clock


class Life:
    """A cluster whose clients work as in a run with this workload."""

    def __init__(self, name: str, cluster: LocalCluster, folder: Path, clock: Clock) -> None:
        self.workload = WORKLOADS[name]
        self._cluster, self._folder, self._clock = cluster, folder, clock
        self._stop = trio.Event()

    def _file(self, client: str) -> Path:
        return self._folder / f"{client}.jsonl"

    async def live(self, seed: int) -> None:
        """Work, until everything is given back and was given."""
        with HistoryWriter(self._file("harness")) as self._tool:
            await self._live(seed)

    async def _live(self, seed: int) -> None:
        tells = [*TELLS, TELLS_ACTS]
        now = self._clock.monotonic_ns()
        self._tool.write(Meta(now, seed, "", TOPIC, True, {}, tells=tells))
        async with self._cluster.admin() as admin, trio.open_nursery() as nursery:
            await admin.topics.update(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
            for number in range(2):
                nursery.start_soon(self._read, f"c{number}")
            nursery.start_soon(self._observe)
            async with trio.open_nursery() as working:
                stop = trio.Event()
                working.start_soon(self._send, stop)
                working.start_soon(self._administer, seed, stop)
                await trio.sleep(LIVED_S)
                stop.set()
            await trio.sleep(ENDS_S)
            self._stop.set()
        self._tool.write(End(self._clock.monotonic_ns()))

    async def _send(self, stop: trio.Event) -> None:
        lines = self._folder / "lines"
        lines.write_text("\n".join(f"line {number}" for number in range(100)))
        where = ("p0", self._cluster.namesrv_addr, TOPIC, str(self._file("p0")))
        task = Produce(
            *(*where, str(lines), 0, 1, None, RATE_PER_S, "run"), sends=self.workload.sends
        )
        with HistoryWriter(self._file("p0")) as history:
            await PRODUCERS[task.sends](task, history).run(stop)

    async def _read(self, client: str) -> None:
        where = (client, self._cluster.namesrv_addr, TOPIC, str(self._file(client)), GROUP)
        task = Consume(*where, members=self.workload.members)
        with HistoryWriter(self._file(client)) as history:
            await (PopWork if task.members else ConsumerWork)(task, history).run(self._stop)

    async def _administer(self, seed: int, stop: trio.Event) -> None:
        """Administer as an operator's tools do, some of which the run must end."""
        layout = SimpleNamespace(
            brokers=self._cluster.groups, namesrv_addr_for=lambda _: self._cluster.namesrv_addr
        )
        cluster = SimpleNamespace(layout=layout, admin=lambda _: self._cluster.admin())
        nobody = cast(Any, None)
        uniform = random.Random(seed).uniform
        given = Tools(
            cast(Any, cluster), nobody, TOPIC, GROUP, QUEUES, self._tool.write, uniform, stop
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(MEDDLING[self.workload.tools], given)
            await stop.wait()
            if self.workload.tools not in GIVE_BACK:
                nursery.cancel_scope.cancel()

    async def _observe(self) -> None:
        """Ask where the group is."""
        async with self._cluster.admin() as admin:
            while not self._stop.is_set():
                began = self._clock.monotonic_ns()
                with suppress(DledgerError):
                    for row in (await admin.groups.progress(GROUP, TOPIC)).queues:
                        place = (row.broker_name, "n0", GROUP, TOPIC, row.queue_id)
                        now = self._clock.monotonic_ns()
                        self._tool.write(GroupOffset(now, began, *place, row.consumer_offset))
                await trio.sleep(0.5)


async def lived(name: str, seed: int, folder: Path, clock: Clock) -> tuple[list[str], set[Any]]:
    """Findings of the harness and of the audit about a run."""
    history = folder / "history"
    history.mkdir()
    async with local_cluster(replicas=1) as cluster:
        life = Life(name, cluster, history, clock)
        await life.live(seed)
        for server in cluster.servers:
            await cluster.stop(server)
        store = shutil.copytree(
            cluster._layout.brokers["broker-a-n0"].store_path_root_dir, folder / "store"
        )
    (replica,) = planting.replicas_of([store])
    events = [
        json.loads(line)
        for file in sorted(history.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    events.sort(key=lambda event: int(event["t"]))
    logs = {replica.node: read_log(replica)}
    inputs = reference.Inputs(
        (TOPIC,), "", GROUP, 1, events, logs, {}, {replica.node: replica.begin}, replica.broker
    )
    wrong, (counted,) = look(
        life.workload, lambda: read_history(history), Lived(GROUP, 0, QUEUES, 1.0, [])
    )
    assert not counted.startswith("0 ")
    # Nothing is written for what the group has read, which 14 is about.
    return wrong, {finding for finding in reference.findings(inputs) if finding[0] != 14}


@pytest.mark.parametrize("name", ["administered", "administered-pop", "resets"])
async def test_what_is_administered_is_obeyed_and_nothing_is_lost(
    autojump_clock: MockClock, clock: Clock, tmp_path: Path, name: str
) -> None:
    """Neither the harness nor the audit finds a fault in an administered run."""
    assert await lived(name, 1, tmp_path, clock) == ([], set())


@pytest.mark.parametrize(
    ("name", "module", "unchecked", "what"),
    [
        ("administered", core, "check_writable", "admitted"),
        ("administered", pull, "check_readable", "shown"),
        ("administered", pull, "check_enabled", "served"),
        ("administered-pop", asking, "check_enabled", "served"),
    ],
)
async def test_what_a_broker_does_not_obey_is_named(
    autojump_clock: MockClock,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    module: ModuleType,
    unchecked: str,
    what: str,
) -> None:
    """A permission that a broker ignores is found, by the finding for that."""
    monkeypatch.setattr(module, unchecked, lambda *_: None)
    _, found = await lived(name, 1, tmp_path, clock)
    assert {finding[:2] for finding in found} == {(17, what)}
