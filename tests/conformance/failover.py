"""Leader kills under steady sends of stock Java clients, and what applications notice.

Two topics tell the two stories. `Spread` lies on two broker groups: the synchronous producer's own
retry goes to the other group, so no exception may reach the application. `Single` lies on one: the
producer keeps the dead leader's address until its route poll, and must be back after it.

In no broker group may a message be twice, although each kill leaves sends behind that are stored
and were not answered. What stock clients do by themselves hardly tries that, since they go to the
other group or to the dead address. So there are also applications that send a message object until
it is acknowledged, with a short route poll (`impatient`; topic `Again`, on one group).

The clients' own records are a history as `chaos` writes it. The short form, in the test beside
this, judges it by itself; the long form also asks the audit, which reads the brokers' logs:

    python tests/conformance/failover.py --seconds 60 --kill-every 10 --report DIR
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import trio
from clients import CLIENTS, Client, java

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan, ports_needed
from mqchaos.cluster.probe import Probe, serving
from mqchaos.cluster.processes import free_ports
from mqchaos.report import judge
from mqclient import Admin
from mqclient.connection.peers import PeerPool

SPREAD, SINGLE, AGAIN = "Spread", "Single", "Again"
QUEUES = 4
SEND_S_MAX = 3.0
"""Seconds that a synchronous send may take while a second broker group is there."""
PAUSE_MS = 5
SENDERS = 2
RETRY_SPAN_S = 10.0
"""Brokers take no later send for a retry (docs/explanation/guarantees.md)."""
IMPATIENT_SENDERS, IMPATIENT_POLL_MS, AGAIN_MS = 8, 500, 100
STOCK_POLL_MS = 30_000
LEADERLESS_S = 3.0
"""An election, with the new leader's registration, takes no longer."""
DRAIN_MARGIN_S = 15.0

Event = dict[str, Any]


async def make_topics(cluster: Cluster) -> None:
    """The topics, once every group serves."""
    await serving(cluster)
    async with Admin(cluster.layout.namesrv_addr) as admin:
        await admin.topics.update(SPREAD, read_queues=QUEUES, write_queues=QUEUES)
        for topic in (SINGLE, AGAIN):
            await admin.topics.update(
                topic, broker=cluster.layout.brokers[0], read_queues=QUEUES, write_queues=QUEUES
            )


async def leader_of(cluster: Cluster, broker: str) -> str:
    """The name of a group's leading server."""
    async with PeerPool() as pool:
        return (await Probe(cluster, pool).wait_for_leader(broker)).node.name


async def level(cluster: Cluster, broker: str) -> None:
    """Wait until all nodes of a group answer, and have what its leader has."""
    async with PeerPool() as pool:
        await Probe(cluster, pool).wait_until_level(broker)


class Steady:
    """A JVM of steady producers and a consumer, with the history that it writes."""

    def __init__(
        self,
        client: Client,
        topic: str,
        namesrv_addr: str,
        folder: Path,
        *,
        senders: int = SENDERS,
        pause_ms: int = PAUSE_MS,
        poll_ms: int,
        again_ms: int | None = None,
    ):
        """`again_ms`: the application waits so long before it sends what failed again, if ever."""
        client.prepare(client)
        self.topic, self.client = topic, client
        self.history = folder / f"{client.name}-{topic}.jsonl"
        numbers = [senders, pause_ms, poll_ms, *([] if again_ms is None else [again_ms])]
        arguments = [namesrv_addr, client.name, topic, *map(str, numbers)]
        with self.history.open("wb") as out, self.history.with_suffix(".txt").open("wb") as err:
            self.process = subprocess.Popen(
                [*java(client), "Steady", *arguments],
                cwd=client.home,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
            )

    def tell(self) -> None:
        """End the sending; told again, end the process."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def events(self) -> list[Event]:
        """Events that were written so far."""
        lines = self.history.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events() if event["kind"] == kind]

    def wait_for(self, kind: str, timeout_s: float) -> None:
        """Wait until the first event of a kind."""
        deadline = time.monotonic() + timeout_s
        while not self.of(kind) and time.monotonic() < deadline:
            time.sleep(0.1)

    def drain(self, timeout_s: float) -> None:
        """End the sending and wait until all that was acknowledged is delivered."""
        self.tell()
        self.wait_for("sent", 10)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.undelivered():
            time.sleep(0.2)

    def undelivered(self) -> set[str]:
        """The ids of messages that were acknowledged and not delivered."""
        events = self.events()
        ids = {kind: {e["id"] for e in events if e["kind"] == kind} for kind in ("ack", "deliver")}
        return ids["ack"] - ids["deliver"]

    def twice(self) -> list[str]:
        """Messages that lie at two places of a broker group, as they were delivered, though no try
        of them came late."""
        places = defaultdict(set)
        for event in self.of("deliver"):
            places[event["broker"], event["id"]].add((event["queue_id"], event["offset"]))
        took_s = self.took_s()
        return [
            f"{name} in {broker} at {sorted(found)}"
            for (broker, name), found in places.items()
            if len(found) > 1 and took_s.get(name, 0) <= RETRY_SPAN_S
        ]

    def took_s(self) -> dict[str, float]:
        """Seconds by id, from the call of a send to its return or exception."""
        began = {event["id"]: event["t"] for event in self.of("send")}
        ended = [event for event in self.events() if event["kind"] in ("ack", "fail")]
        return {event["id"]: (event["t"] - began[event["id"]]) / 1e9 for event in ended}

    def longest_send_s(self) -> float:
        return max(self.took_s().values(), default=0)

    def longest_gap_s(self) -> float:
        """The longest time in which nothing was acknowledged."""
        times = sorted(event["t"] for event in self.of("ack"))
        pairs = itertools.pairwise(times)
        return max((after - before for before, after in pairs), default=0) / 1e9

    def disorder(self) -> list[str]:
        """Queues that were delivered out of order; a message may come again after a failover."""
        highest: dict[tuple[str, int], int] = defaultdict(lambda: -1)
        seen: set[tuple[str, int, int]] = set()
        wrong = []
        for event in self.of("deliver"):
            queue = event["broker"], event["queue_id"]
            if event["offset"] != highest[queue] + 1 and (*queue, event["offset"]) not in seen:
                wrong.append(f"{queue}: {event['offset']} after {highest[queue]}")
            seen.add((*queue, event["offset"]))
            highest[queue] = max(highest[queue], event["offset"])
        return wrong


@contextmanager
def steady(
    names: Sequence[str], cluster: Cluster, folder: Path, poll_ms: int
) -> Iterator[list[Steady]]:
    """A JVM for each client and topic, all sending; ended whatever happens."""
    chosen = [client for client in CLIENTS if client.name in names]
    addr = cluster.layout.namesrv_addr
    with ended(
        [
            Steady(client, topic, addr, folder, poll_ms=poll_ms)
            for client in chosen
            for topic in (SPREAD, SINGLE)
        ]
    ) as running:
        yield running


@contextmanager
def impatient(client: Client, cluster: Cluster, folder: Path) -> Iterator[Steady]:
    """An application that has much on its way, and sends each message until it is acknowledged."""
    run = Steady(
        client,
        AGAIN,
        cluster.layout.namesrv_addr,
        folder,
        senders=IMPATIENT_SENDERS,
        pause_ms=0,
        poll_ms=IMPATIENT_POLL_MS,
        again_ms=AGAIN_MS,
    )
    with ended([run]) as (running,):
        yield running


@contextmanager
def ended(running: list[Steady]) -> Iterator[list[Steady]]:
    """JVMs that send and receive by now; ended whatever happens."""
    try:
        for each in running:
            each.wait_for("deliver", 30)
        yield running
    finally:
        for each in running:
            with each.process:
                each.process.kill()


def fault(history: TextIO, kind: str, name: str) -> None:
    """Write down what the harness does to a server, named as "broker-a-n0"."""
    broker, _, node = name.rpartition("-")
    event = {
        "kind": "fault",
        "t": time.monotonic_ns(),
        "fault": kind,
        "broker": broker,
        "node": node,
    }
    print(json.dumps(event), file=history, flush=True)


def kill_leader(cluster: Cluster, broker: str, history: TextIO, down_s: float) -> None:
    """SIGKILL a group's leader, and start it again a while later."""
    name = trio.run(leader_of, cluster, broker)
    cluster.kill(name)
    fault(history, "kill", name)
    time.sleep(down_s)
    cluster.start([name])
    fault(history, "restart", name)


def verdicts(runs: Sequence[Steady], gap_s_max: float) -> list[str]:
    """Broken promises in words; empty without one.

    `gap_s_max`: the longest time without an acknowledgement on the topic that has one group only.
    """
    wrong = []
    for run in runs:
        who = f"{run.client.title} {run.client.version} on {run.topic}"
        failed, longest_s = run.of("fail"), run.longest_send_s()
        if not run.of("ack"):
            wrong.append(f"{who}: nothing was acknowledged")
        if run.topic == SPREAD and failed:
            wrong.append(f"{who}: {len(failed)} exceptions, first {failed[0]['error']}")
        if run.topic == SPREAD and longest_s > SEND_S_MAX:
            wrong.append(f"{who}: a send took {longest_s:.2f} s")
        if run.topic == SINGLE and run.longest_gap_s() > gap_s_max:
            wrong.append(f"{who}: no send succeeded for {run.longest_gap_s():.1f} s")
        if run.undelivered():
            wrong.append(f"{who}: {len(run.undelivered())} acknowledged messages not delivered")
        twice = run.twice()
        if twice:
            wrong.append(f"{who}: {len(twice)} messages are twice in a group, as {twice[0]}")
        wrong += [f"{who}: {text}" for text in run.disorder()[:3]]
    return wrong


def report(runs: Sequence[Steady]) -> None:
    """A line for each client and topic."""
    for run in runs:
        print(
            f"{run.client.title} {run.client.version} {run.topic}: {len(run.of('send'))} sends, "
            f"{len(run.of('ack'))} acknowledged, {len(run.of('fail'))} exceptions, longest send "
            f"{run.longest_send_s():.2f} s, longest gap {run.longest_gap_s():.2f} s, "
            f"{len(run.of('deliver'))} deliveries, "
            f"{len(run.of('again'))} tries of the application's own, {len(run.twice())} twice"
        )


def audit(cluster: Cluster, folder: Path, output: Path) -> int:
    """`mqaudit` over the clients' records and every replica's files; its exit status."""
    command = judge.command(map(cluster.store, cluster.layout.nodes), output, folder)
    return subprocess.run(command, check=False).returncode


def main() -> int:
    """The long form: exit status 0 if all promises held, here and in the audit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--kill-every", type=float, default=10)
    parser.add_argument("--report", type=Path, default=Path(".cache/failover-report"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        layout = plan(free_ports(ports_needed(3, 2, 1)), nodes=3, groups=2, namesrvs=1)
        cluster = Cluster.create(Path(temporary) / "cluster", layout)
        folder = Path(temporary) / "history"
        folder.mkdir()
        with cluster.running():
            trio.run(make_topics, cluster)
            runs = long_run(cluster, folder, options.seconds, options.kill_every)
            cluster.stop()
        report(runs)
        # A client that polls routes every 30 s may learn of a leader just before that one dies.
        wrong = verdicts(runs, options.seconds)
        print("\n".join(wrong) or "every promise to the applications held")
        return audit(cluster, folder, options.report) or bool(wrong)


def long_run(cluster: Cluster, folder: Path, seconds: float, every_s: float) -> list[Steady]:
    """Kill the leader of one group, over and over, with clients as they are out of the box.

    The other group stays: a stock client that lost both leaders within 30 s has no address left.
    """
    with (folder / "harness.jsonl").open("w") as history:
        meta = {
            "kind": "meta",
            "t": time.monotonic_ns(),
            "seed": 0,
            "scenario": "failover",
            "topic": SPREAD,
            "idempotent": False,
            "brokers": cluster.stores(),
        }
        print(json.dumps(meta), file=history, flush=True)
        with steady(("java4", "java5"), cluster, folder, STOCK_POLL_MS) as runs:
            end = time.monotonic() + seconds
            while time.monotonic() + every_s <= end:
                time.sleep(every_s / 2)
                kill_leader(cluster, cluster.layout.brokers[0], history, every_s / 2)
            for run in runs:
                run.drain(STOCK_POLL_MS / 1000 + DRAIN_MARGIN_S)
        print(json.dumps({"kind": "end", "t": time.monotonic_ns()}), file=history, flush=True)
    return runs


if __name__ == "__main__":
    sys.exit(main())
