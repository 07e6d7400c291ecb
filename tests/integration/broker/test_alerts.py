"""Alerts fire: by promtool on series, and by a Prometheus that scrapes real brokers.

The short form waits a second where the rules wait 15 to 60, and takes messages of 5 s for ones of 5
minutes; the long form takes the rules as they are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

import mqbroker.app
import mqbroker.requests.admin.broker as broker_requests
from dledger.tls.authority import Authority
from dledger.trust.users import User
from mqbroker.state.machine import Machine
from mqchaos.cluster import certificates
from mqchaos.cluster.layout import AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY
from mqclient import Message
from mqclient.errors import ClientError
from mqlocal import LocalCluster, local_cluster, places

from .prometheus import Prometheus, prometheus
from .test_scrape import cluster_with_figures, encrypted, job, with_token

ROOT = Path(__file__).parents[3]
RULES = ROOT / "docs" / "reference" / "monitoring" / "alerts.yml"
SHORT = {
    **{f"for: {time}": "for: 1s" for time in ("15s", "30s", "1m")},
    "latency_milliseconds) > 300000": "latency_milliseconds) > 5000",
}
SMALL_DISK_BYTES = 160 << 20
STATE = {"DledgerDiskFills", "DledgerUsersDiffer", "DledgerFaults"}
WORK = {"DledgerLagGrows", "DledgerDeadLetters"}


def alerts() -> set[str]:
    """The names of all alerts."""
    return set(re.findall(r"- alert: (\w+)", RULES.read_text()))


def test_each_alert_fires_after_its_time_and_not_before(tools: Path, tmp_path: Path) -> None:
    """An alert fires on its series after its time, with its labels; a healthy group fires none."""
    cases = ROOT / "tests" / "data" / "alerts_test.yml"
    for path in (RULES, cases):
        shutil.copy(path, tmp_path)
    for words in (("check", "rules", RULES.name), ("test", "rules", cases.name)):
        command = (tools / "promtool", *words)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    tested = re.findall(r"alertname: (\w+)\n\s+exp_alerts", cases.read_text())
    assert set(tested) == alerts()


def test_each_alert_says_where_its_remedy_stands() -> None:
    """An alert's `runbook_url` is a heading of the page whose commands a test runs."""
    named = re.findall(r"runbook_url: docs/how-to/alerts.md#([\w-]+)", RULES.read_text())
    page = (ROOT / "docs" / "how-to" / "alerts.md").read_text()
    headings = {each.lower().replace(" ", "-") for each in re.findall(r"^## (.*)$", page, re.M)}
    assert len(named) == len(alerts())
    assert set(named) <= headings


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A file system of its own for the brokers; None where nobody may mount one."""
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs", str(folder))
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(("umount", "-l", str(folder)), check=True)


async def metrics_addresses(cluster: LocalCluster) -> list[str]:
    """Addresses of the brokers' figures, also of brokers that are down."""
    async with cluster.admin() as admin:
        found = []
        for name in cluster.servers:
            if name.startswith("broker") and cluster.runs(name):
                (state,) = await admin.brokers.status(cluster.address(name))
                found.append(state.figures["metricsAddress"])
    return found


class Scene(NamedTuple):
    """A scenario's cluster, its Prometheus, the machines of the brokers, and a disk."""

    cluster: LocalCluster
    prometheus: Prometheus
    machines: dict[str, Machine]
    disk: Path | None
    patience_s: float

    async def scrape(self) -> None:
        """Scrape all brokers that run now."""
        self.prometheus.scrape(await metrics_addresses(self.cluster))

    async def until(self, wanted: set[str]) -> None:
        """Wait until just these alerts fire."""
        await self.prometheus.until(wanted, self.patience_s)


async def give_up_and_stay_behind(scene: Scene) -> None:
    """Make one group give a message up, and another one lose its only member."""
    cluster = scene.cluster
    async with cluster.admin() as admin, cluster.producer() as producer:
        await admin.topics.update("T", read_queues=1, write_queues=1)
        await admin.topics.update("Lost", read_queues=1, write_queues=1)
        async with cluster.consumer("G", {"T": "*"}) as reader:
            await producer.send(Message("T", b"first"))
            await reader.poll(1, 30)
            await reader.commit()
        await producer.send(Message("T", b"nobody reads this"))
        async with cluster.consumer("DG", {"Lost": "*"}) as dead:
            await producer.send(Message("Lost", b"hopeless"))
            while not (polled := await dead.poll(1, 1.0)):
                pass
            await dead.nack(polled[0], -1)
            await dead.commit()


async def break_state(scene: Scene, victim: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """A full disk, a user that one member has alone, and an error of its own code."""
    expected = set(STATE)
    if scene.disk is not None:
        free = shutil.disk_usage(scene.disk).free
        with (scene.disk / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, free - SMALL_DISK_BYTES // 5)
    else:
        expected -= {"DledgerDiskFills"}
    scene.machines[victim].users.put(User("stray", b""))

    def fail(*_: object) -> str:
        raise RuntimeError("planted")

    async with scene.cluster.admin() as admin:
        with monkeypatch.context() as patched:
            patched.setattr(broker_requests, "write_properties", fail)
            with pytest.raises(ClientError):
                await admin.settings.broker_config(scene.cluster.address(victim))
    return expected


async def mend(scene: Scene, killed: list[str]) -> None:
    """Start what was killed, make room, and read what waits."""
    if scene.disk is not None:
        (scene.disk / "filler").unlink()
    for name in killed:
        await scene.cluster.restart(name)
    await scene.cluster.leader()
    await scene.scrape()
    async with scene.cluster.consumer("G", {"T": "*"}) as reader:
        while not await reader.poll(1, 1.0):
            pass
        await reader.commit()


async def scenario(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break everything, one thing after the other, and mend it."""
    cluster = scene.cluster
    await scene.scrape()
    await trio.sleep(3)
    assert await scene.prometheus.firing() == set()
    await give_up_and_stay_behind(scene)
    await scene.until(WORK)
    leader = await cluster.leader()
    victim, _ = (each for each in cluster.servers if "broker" in each and each != leader)
    broken = await break_state(scene, victim, monkeypatch)
    await scene.until(WORK | broken)
    await cluster.kill(victim)
    away = {"DledgerServerDown", "DledgerFollowerBehind"}
    planted = {"DledgerUsersDiffer", "DledgerFaults"}  # they end with the process
    await scene.until(WORK | (broken - planted) | away)
    await cluster.kill(leader)
    without = {"DledgerServerDown", "DledgerNoLeader"}
    await scene.until((broken - planted) | without)  # what only leaders tell is not told
    await mend(scene, [victim, leader])
    await scene.until({"DledgerDeadLetters"})


async def seen_firing(
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rules: str,
    patience_s: float,
) -> None:
    """Run the scenario with some rules."""
    machines: dict[str, Machine] = {}

    class Noted(Machine):
        """A machine that the test can reach, to plant in."""

        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            machines[folder.name] = self

    monkeypatch.setattr(mqbroker.app, "Machine", Noted)
    monkeypatch.setattr(places, "SHARED_MEMORY_BYTES_MIN", 1)
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setattr(places, "SHARED_MEMORY", disk or tmp_path)
        async with (
            prometheus(tools, tmp_path, rules) as running,
            local_cluster(replicas=3, settings=settings) as cluster,
        ):
            scene = Scene(cluster, running, machines, disk, patience_s)
            await scenario(scene, monkeypatch)


async def test_alerts_fire_when_real_brokers_break_and_end_when_they_are_mended(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alerts fire and end on real brokers, with rules that wait a second."""
    rules = RULES.read_text()
    for slow, quick in SHORT.items():
        assert slow in rules
        rules = rules.replace(slow, quick)
    await seen_firing(tools, tmp_path, monkeypatch, rules, 60)


async def test_an_alert_fires_before_a_certificate_ends_until_it_is_replaced(
    tools: Path, tmp_path: Path
) -> None:
    """The certificate of a server is good for three days more; a running server takes the next."""
    cluster, figures = cluster_with_figures(tmp_path, nodes=1)
    victim = next(name for name in cluster.names if "broker" in name)
    folder, hosts = cluster.folder(victim), cluster.layout.hosts(victim)
    authority = Authority.read(cluster.directory / AUTHORITY, cluster.directory / AUTHORITY_KEY)
    authority.sign(victim, hosts, days=3).write(folder / CERTIFICATE, folder / KEY)
    jobs = (
        job("dledger", figures, "https", tls=encrypted(cluster), proof=with_token(cluster)) + "\n"
    )
    head, *each = re.split(r"(?m)^(?=      - alert: )", RULES.read_text())
    (rule,) = (rule for rule in each if "DledgerCertificateEnds" in rule)  # this disk may be full
    rules = head + rule.replace("for: 15s", "for: 1s")
    with cluster.running():
        async with prometheus(tools, tmp_path, rules, jobs) as running:
            await running.until({"DledgerCertificateEnds"}, 60)
            (told,) = (await running.asked("alerts"))["alerts"]
            address = f"127.0.0.1:{figures[cluster.names.index(victim)]}"
            assert told["labels"]["instance"] == address
            certificates.sign(cluster.directory, cluster.layout, victim)
            await running.until(set(), 60)


@pytest.mark.long
async def test_alerts_fire_within_their_own_times(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alerts fire with the rules as they are: some seven minutes, as messages must wait five."""
    await seen_firing(tools, tmp_path, monkeypatch, RULES.read_text(), 420)
