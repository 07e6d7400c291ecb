"""A run against a cluster that others started: load, hooks, history, a verdict by reading back.

The order is that of every run: steady sends, a fault of whoever leads (or of a node that the seed
draws), a while later its end, and a wait until sends go on. Who leads is asked of the name server,
as any client would. Whatever ends a run, all that was hurt is healed, by the operator's own hooks.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from dledger.errors import BadInput, DledgerError
from dledger.remoting.bodies import ClusterInfo, decode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.headers import UpdateAndCreateTopicHeader, encode_header
from dledger.remoting.message import DEFAULT_TOPIC
from dledger.remoting.names import PERM_READ_WRITE
from mqchaos.attach.clients import Clients, OurClients, ProgramClients
from mqchaos.attach.hooks import Hook, Hooks
from mqchaos.cluster.access import NO_IDENTITY, Identity
from mqchaos.cluster.processes import ClusterError, log_tail
from mqchaos.faults.kinds import KINDS
from mqchaos.history.events import End, Fault, HistoryWriter, Lead, Meta
from mqchaos.limits import (
    AWAY_S,
    DRAIN_TIMEOUT_S,
    PROBE_INTERVAL_S,
    PROBE_TIMEOUT_S,
    STEADY_S,
    TOPIC_TIMEOUT_S,
)
from mqchaos.run.load.workload import Consume, Produce, run_name
from mqclient.connection.credentials import Credentials
from mqclient.connection.peers import PeerPool

GROUP: Final = "chaos-readers"
CLIENTS: Final = 2


@dataclass(frozen=True, slots=True)
class Attach:
    """The parameters of such a run. `on`: "leader", or "node" for any."""

    namesrv_addr: str
    hooks: Hooks
    fault: str
    times: int
    on: str
    seed: int
    topic: str
    queues: int
    rate_per_s: float
    send_timeout_s: float
    settle_s: float
    away_s: tuple[float, float] = AWAY_S
    identity: Identity = NO_IDENTITY


@dataclass(slots=True)
class Attached:
    """A run, while it goes on. `lines` is the file whose lines our own clients send."""

    order: Attach
    directory: Path
    lines: Path
    phase: str = "starting"
    done: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    _hurt: list[tuple[str, Hook]] = field(default_factory=list)
    _leader: str | None = None

    @property
    def history(self) -> Path:
        """Folder of the run's history, a file for each client."""
        return self.directory / "history"

    @property
    def hooks_log(self) -> Path:
        """The file with the output of the hooks."""
        return self.directory / "hooks.log"

    async def execute(self) -> None:
        """Perform the run, and heal all nodes that were hurt, whatever happens."""
        self.history.mkdir()
        try:
            access = self.order.identity.access()
            credentials = Credentials.of(access["user"], access["secret"])
            async with PeerPool(credentials=credentials, tls=access["tls"]) as pool:
                with HistoryWriter(self.history / "harness.jsonl") as history:
                    await self._run(pool, history)
                    history.write(End(time.monotonic_ns()))
        finally:
            with trio.CancelScope(shield=True):
                for _, hook in self._hurt:
                    with suppress(ClusterError):
                        await run_hook(hook.heal, hook.timeout_s, "heal", self.hooks_log)

    async def _run(self, pool: PeerPool, history: HistoryWriter) -> None:
        order = self.order
        brokers = {order.hooks.broker: dict.fromkeys(order.hooks.nodes, "")}
        scenario = f"attach {order.fault} {order.on}"
        history.write(Meta(time.monotonic_ns(), order.seed, scenario, order.topic, False, brokers))
        await self._make_topic(pool)
        clients = self._clients()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, pool, history)
            await nursery.start(clients.run)
            self.phase = "waiting for the first acknowledgements"
            await self._acknowledged(clients, clients.acked)
            draw = random.Random(order.seed).uniform
            for _ in range(order.times):
                await trio.sleep(draw(*STEADY_S))
                await self._strike(clients, history, draw(0.0, 1.0), draw(*order.away_s))
            await trio.sleep(draw(*STEADY_S))
            await self._finish(clients)
            nursery.cancel_scope.cancel()

    async def _make_topic(self, pool: PeerPool) -> None:
        """On every node that takes it: RocketMQ's keep topics beside the log, each its own."""
        order, refused = self.order, list[str]()
        header = UpdateAndCreateTopicHeader(
            topic=order.topic,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=order.queues,
            write_queue_nums=order.queues,
            perm=PERM_READ_WRITE,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        for name, node in order.hooks.nodes.items():
            try:
                code = RequestCode.UPDATE_AND_CREATE_TOPIC
                answer = await ask(pool, node.address, code, encode_header(header), TOPIC_TIMEOUT_S)
                refused += [f"{name}: {answer.remark}"] if answer.code else []
            except DledgerError as error:
                refused.append(f"{name}: {error}")
        if len(refused) == len(order.hooks.nodes):
            raise ClusterError(f"no node makes the topic {order.topic}: {'; '.join(refused)}")

    def _clients(self) -> Clients:
        order, folder = self.order, self.history
        if order.hooks.workload is not None:
            log = self.directory / "workload.log"
            return ProgramClients(order.hooks.workload.command, folder / "workload.jsonl", log)
        run = run_name(order.seed, str(time.time_ns()))
        producers = [
            Produce(
                client=f"producer-{number}",
                namesrv_addr=order.namesrv_addr,
                topic=order.topic,
                history=str(folder / f"producer-{number}.jsonl"),
                lines=str(self.lines),
                index=number,
                producers=CLIENTS,
                messages=None,
                rate_per_s=order.rate_per_s / CLIENTS,
                run=run,
                send_timeout_s=order.send_timeout_s,
                identity=order.identity,
            )
            for number in range(CLIENTS)
        ]
        consumers = [
            Consume(
                client=f"consumer-{number}",
                namesrv_addr=order.namesrv_addr,
                topic=order.topic,
                history=str(folder / f"consumer-{number}.jsonl"),
                group=f"{GROUP}-{run}",
                identity=order.identity,
            )
            for number in range(CLIENTS)
        ]
        return OurClients(producers, consumers, self.directory)

    async def _strike(
        self, clients: Clients, history: HistoryWriter, pick: float, away_s: float
    ) -> None:
        """Hurt a node, heal it, and wait until sends have gone on for a while."""
        order = self.order
        name = await self._victim(pick)
        hook = order.hooks.nodes[name].faults[order.fault]
        self.phase, field_name = f"{order.fault} {name}", f"nodes.{name}.faults.{order.fault}"
        self._note(history, order.fault, name)
        self._hurt.append((name, hook))
        await run_hook(hook.inject, hook.timeout_s, f"{field_name}.inject", self.hooks_log)
        await trio.sleep(away_s)
        self._note(history, KINDS[order.fault].undone, name)
        await run_hook(hook.heal, hook.timeout_s, f"{field_name}.heal", self.hooks_log)
        self._hurt.clear()
        self.phase = "waiting for sends to go on"
        await self._acknowledged(clients, clients.acked)
        await trio.sleep(order.settle_s)

    async def _victim(self, pick: float) -> str:
        names = list(self.order.hooks.nodes)
        if self.order.on == "node":
            return names[int(pick * len(names)) % len(names)]
        with trio.move_on_after(DRAIN_TIMEOUT_S):
            while self._leader is None:  # noqa: ASYNC110 - another cluster's
                await trio.sleep(PROBE_INTERVAL_S)
        if self._leader is None:
            raise ClusterError(
                f"the name server routes to no leader of {self.order.hooks.broker} for "
                f"{DRAIN_TIMEOUT_S:.0f} s"
            )
        return self._leader

    async def _acknowledged(self, clients: Clients, before: int) -> None:
        """Wait until more than `before` sends are acknowledged. Raises ClusterError if that takes
        too long."""
        with trio.move_on_after(DRAIN_TIMEOUT_S):
            while clients.acked <= before:  # noqa: ASYNC110 - other processes'
                await trio.sleep(PROBE_INTERVAL_S)
            return
        raise ClusterError(f"no send was acknowledged for {DRAIN_TIMEOUT_S:.0f} s")

    async def _finish(self, clients: Clients) -> None:
        self.phase = "waiting for the last sends' outcomes"
        with trio.move_on_after(DRAIN_TIMEOUT_S):
            await clients.stop_sending()
        self.phase = "waiting for the consumers to catch up"
        with trio.move_on_after(DRAIN_TIMEOUT_S) as scope:
            while not clients.drained():  # noqa: ASYNC110 - other processes'
                await trio.sleep(PROBE_INTERVAL_S)
        if scope.cancelled_caught:
            self.findings.append(
                f"not all that was acknowledged was read back within {DRAIN_TIMEOUT_S:.0f} s"
            )
        self.phase = "letting the clients leave"
        await clients.leave()

    async def _watch(self, pool: PeerPool, history: HistoryWriter) -> None:
        """Note whom the name server routes to, whenever that changes; a count stands for terms."""
        term, broker = 0, self.order.hooks.broker
        while True:
            began = time.monotonic_ns()
            address = await leader_address(pool, self.order.namesrv_addr, broker)
            node = self.order.hooks.node_at(address)
            if node is not None and node != self._leader:
                term += 1
                history.write(Lead(time.monotonic_ns(), broker, node, term, began))
            self._leader = node
            await trio.sleep(PROBE_INTERVAL_S)

    def _note(self, history: HistoryWriter, fault: str, node: str) -> None:
        history.write(Fault(time.monotonic_ns(), fault, self.order.hooks.broker, node))
        self.done.append(f"{fault} {node}")


async def leader_address(pool: PeerPool, namesrv_addr: str, broker: str) -> str | None:
    """The address that name servers give for the group's leader, the broker id 0."""
    for address in namesrv_addr.split(";"):
        with suppress(DledgerError, BadInput):
            code = RequestCode.GET_BROKER_CLUSTER_INFO
            answer = await ask(pool, address, code, {}, PROBE_TIMEOUT_S)
            table = decode_body(ClusterInfo, answer.payload).broker_addr_table
            return table[broker].broker_addrs.get(0) if broker in table else None
    return None


async def ask(
    pool: PeerPool, address: str, code: RequestCode, ext: Mapping[str, ExtValue], timeout_s: float
) -> Command:
    """A server's answer; it is asked in JSON, which servers of others read, too."""
    request = Command(code, ext, encoding=HeaderEncoding.JSON)
    return await pool.request(address, request, timeout_s)


async def run_hook(command: str, timeout_s: float, what: str, log: Path) -> None:
    """Run a line of the operator's. Raises ClusterError if it fails or takes too long.

    What it prints goes to a file and not to a pipe: a server that it starts keeps that open.
    """
    with log.open("ab") as output, trio.move_on_after(timeout_s) as scope:
        done = await trio.run_process(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            raise ClusterError(
                f"{what} ended with status {done.returncode}: {command}\n{log_tail(log)}"
            )
    if scope.cancelled_caught:
        raise ClusterError(f"{what} did not end within {timeout_s:g} s: {command}")
