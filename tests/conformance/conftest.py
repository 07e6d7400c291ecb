"""A cluster of two broker groups, with all clients' runs, for the whole suite."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from mqchaos.cluster.cluster import LOG_FILE, Cluster
from mqchaos.cluster.layout import plan
from mqchaos.cluster.probe import serving
from mqchaos.cluster.processes import free_ports
from mqclient import Admin

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("judges")

from clients import CACHE, CLIENTS  # noqa: E402 -- beside this file, which is no package
from doors import DOORS  # noqa: E402 -- beside this file, which is no package
from drivers import pop_by_default, run_all  # noqa: E402 -- beside this file, which is no package
from judges import FEATURES, Scenario  # noqa: E402 -- beside this file, which is no package

QUEUES = 2
"""Queues of a topic per broker group: enough to share, few enough to be seen all."""
MET_LINES_MAX = 60
"""Lines of the nodes' logs that are shown below a failed test."""
POPPED = {"pop", "pop_retry"}
MAKE_THEIR_OWN = {"auto_topic", "namespace"}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two groups of three nodes and a name server, all real processes."""
    layout = plan(ports_with_room_for_vip(), nodes=3, groups=2, namesrvs=1)
    running = Cluster.create(tmp_path_factory.mktemp("conformance") / "cluster", layout)
    for node in layout.nodes:
        with (running.folder(node.name) / "broker.toml").open("a") as config:
            print("vipChannelEnable = true", file=config)
    with running.running():
        trio.run(make_topics, running)
        yield running
        assert running.stop() == []


def ports_with_room_for_vip() -> list[int]:
    """A name server's port, then each node's for clients and for peers; VIP is two below."""
    free = free_ports(1 + 3 * 6)
    nodes = [free[first : first + 3] for first in range(1, len(free), 3)]
    if any(client != vip + 2 for vip, _, client in nodes):
        return ports_with_room_for_vip()
    return [free[0], *(port for _, peers, client in nodes for port in (client, peers))]


async def make_topics(cluster: Cluster) -> None:
    """A stock consumer looks for a missing topic every 30 s only: have them all before.

    So it is with the topic that a new group's retries come in, which its first heartbeat makes.
    """
    await serving(cluster)
    async with Admin(cluster.layout.namesrv_addr) as admin:
        at_once = trio.CapacityLimiter(8)

        async def make(topic: str, queues: int) -> None:
            async with at_once:
                await admin.topics.update(topic, read_queues=queues, write_queues=queues)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(make, "RMQ_SYS_TRACE_TOPIC", 1)
            for client in CLIENTS:
                for feature in client.features:
                    if feature not in MAKE_THEIR_OWN:
                        nursery.start_soon(make, f"{client.name}_{feature}", QUEUES)
                        nursery.start_soon(make, f"%RETRY%{client.name}_{feature}", 1)
        for client in CLIENTS:
            for feature in set(client.features) & POPPED:
                await pop_by_default(admin, f"{client.name}_{feature}")


@pytest.fixture(scope="session")
def runs(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Mapping[str, dict[str, Scenario]], Mapping[str, str]]:
    """The scenarios of each client that a selected test judges, and why clients are missing."""
    wanted = defaultdict(list)
    here = Path(__file__).parent
    for item in request.session.items:
        if item.path.parent == here and "runs" in getattr(item, "fixturenames", ()):
            parameters = item.callspec.params  # type: ignore[attr-defined]
            wanted[parameters["client"].name].append(parameters["feature"])
    clients = [
        replace(client, features=tuple(wanted[client.name]))
        for client in CLIENTS
        if client.name in wanted
    ]
    return run_all(clients, cluster.layout.namesrv_addr, tmp_path_factory.mktemp("drivers"))


_found: dict[str, dict[str, Any]] = {}
_doors: dict[str, dict[str, Any]] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note the outcome of each client's feature for docs/reference/compatibility.md."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when != "call" and report.outcome == "passed":
        return
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and cluster is not None:
        report.sections.append(("What the cluster met", "\n".join(met(cluster))))
    parameters = getattr(item, "callspec", None)
    names = {} if parameters is None else parameters.params
    found, of = (_found, "feature") if "feature" in names else (_doors, "door")
    if of not in names:
        return
    kind = "missing" if report.skipped else report.outcome
    reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
    if report.failed and call_error(report):
        reason = call_error(report)
    noted = {"outcome": kind, "reason": reason.removeprefix("reason: ")}
    found.setdefault(names[of], {})[names["client"].name] = noted


def met(cluster: Cluster) -> list[str]:
    """Events that may have delayed clients: nodes' last warnings and changes of roles."""
    found = []
    for path in sorted(cluster.directory.glob(f"*/{LOG_FILE}")):
        lines = path.read_text().splitlines()
        logged = [json.loads(line) for line in lines if line[:1] + line[-1:] == "{}"]
        found += [
            (line["timestamp"], f"{path.parent.name}: {json.dumps(line)}")
            for line in logged
            if line["level"] != "info" or line["event"] == "role changed"
        ]
    return [text for _, text in sorted(found)[-MET_LINES_MAX:]]


def call_error(report: pytest.TestReport) -> str:
    """The error in a line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message) if crash is not None else ""


def pytest_sessionfinish() -> None:
    """Write the results of a whole run for the page's generator, or those of its doors alone."""
    if all({*_doors.get(name, ())} == {*door.clients} for name, door in DOORS.items()):
        doors = {"made": datetime.now(UTC).date().isoformat(), "doors": _doors}
        (CACHE / "doors.json").write_text(json.dumps(doors, indent=1))
    if len(_found) < len(FEATURES):
        return
    results = {
        "made": datetime.now(UTC).date().isoformat(),
        "clients": [
            {"name": each.name, "title": each.title, "version": each.version} for each in CLIENTS
        ],
        "titles": {name: title for name, (title, _) in FEATURES.items()},
        "features": _found,
    }
    (CACHE / "results.json").write_text(json.dumps(results, indent=1))
