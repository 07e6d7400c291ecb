"""Registrations of a broker at its name servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from dledger.net import Connection, serve_remoting
from dledger.remoting.bodies import RegisterBrokerBody, decode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    BrokerHeartbeatHeader,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
    decode_header,
)
from dledger.testing.local import LocalLedger
from dledger.testing.logs import capture_logs
from mqbroker.config import BrokerConfig
from mqbroker.registration import Registration
from mqbroker.requests.core import Core
from mqbroker.state.machine import Machine
from mqbroker.state.topics import read_write
from mqbroker.testing import until
from mqchaos.cluster.processes import free_ports


class NameServer:
    """Remembers what it is asked. `answer` is the code of its answers to heartbeats."""

    def __init__(self) -> None:
        self.requests: list[Command] = []
        self.answer = ResponseCode.SUCCESS
        self.connections = 0

    def __call__(self, request: Command, connection: Connection) -> Command:
        self.requests.append(request)
        heartbeat = request.code == RequestCode.BROKER_HEARTBEAT
        return request.reply(self.answer if heartbeat else ResponseCode.SUCCESS)

    def connected(self, connection: Connection) -> None:
        self.connections += 1

    def disconnected(self, connection: Connection) -> None:
        self.connections -= 1

    def count(self, code: int) -> int:
        return sum(request.code == code for request in self.requests)

    def registrations(self) -> list[tuple[int, int, set[str]]]:
        """(broker id, term, topics) of each."""
        result = []
        for request in self.requests:
            if request.code == RequestCode.REGISTER_BROKER:
                header = decode_header(RegisterBrokerHeader, request)
                body = decode_body(RegisterBrokerBody, request.payload)
                topics = set(body.topic_config_serialize_wrapper.topic_config_table)
                result.append((header.broker_id, header.term or 0, topics))
        return result


@asynccontextmanager
async def registered(
    directory: Path, servers: int = 1
) -> AsyncIterator[tuple[Core, Registration, list[NameServer]]]:
    """A broker's registration with name servers on real sockets."""
    name_servers = [NameServer() for _ in range(servers)]
    async with trio.open_nursery() as nursery:
        ports = [
            await nursery.start(partial(serve_remoting, server, "127.0.0.1", 0))
            for server in name_servers
        ]
        config = BrokerConfig(
            d_leger_self_id="n1",
            listen_port=10912,
            group_client_addrs="n0-127.0.0.1:10911;n1-127.0.0.1:10912",
            namesrv_addr=";".join(f"127.0.0.1:{port}" for port in ports),
            register_broker_heartbeat_millis=100,
        )
        machine = Machine(directory)
        core = Core(
            config,
            machine,
            LocalLedger(machine),
            clock_ms=lambda: 1,
            clock_s=trio.current_time,
        )
        registration = Registration(core)
        nursery.start_soon(registration.run)
        yield core, registration, name_servers
        nursery.cancel_scope.cancel()


async def test_every_name_server_hears_of_each_change_at_once(tmp_path: Path) -> None:
    """Name servers hear at once of a follower, of the leader of a term, and of a new topic."""
    async with registered(tmp_path, servers=2) as (core, _, servers):
        await until(lambda: all(server.registrations() for server in servers))
        core.role.leading(7)
        core.announcements.changed()
        await until(lambda: all(len(server.registrations()) == 2 for server in servers))
        core.machine.topics.put([read_write("Orders", 4)], 1)
        core.announcements.changed()
        await until(lambda: all(len(server.registrations()) == 3 for server in servers))
        for server in servers:
            assert server.registrations() == [(2, 0, set()), (0, 7, set()), (0, 7, {"Orders"})]


async def test_heartbeats_carry_the_term_and_a_forgotten_broker_registers_again(
    tmp_path: Path,
) -> None:
    """A broker's heartbeats have its term, and one that was forgotten registers again."""
    async with registered(tmp_path) as (core, _, (server,)):
        core.role.leading(7)
        await until(lambda: server.count(RequestCode.BROKER_HEARTBEAT) >= 2)
        assert server.count(RequestCode.REGISTER_BROKER) == 1
        beat = decode_header(BrokerHeartbeatHeader, server.requests[-1])
        assert (beat.broker_id, beat.epoch, beat.heartbeat_timeout_mills) == (0, 7, 300)
        server.answer = ResponseCode.BROKER_NOT_EXIST
        await until(lambda: server.count(RequestCode.REGISTER_BROKER) >= 2)


async def test_an_absent_name_server_is_told_of_once(tmp_path: Path) -> None:
    """A name server that can't be reached is logged once, though it is tried again and again."""
    config = BrokerConfig(namesrv_addr=f"127.0.0.1:{free_ports(1)[0]}")
    machine = Machine(tmp_path)
    ledger = LocalLedger(machine)
    core = Core(config, machine, ledger, clock_ms=lambda: 1, clock_s=trio.current_time)
    with capture_logs() as logs, trio.move_on_after(0.5):
        await Registration(core).run()
    (told,) = [log for log in logs if log["event"] == "name server not reached"]
    assert "Connection refused" in told["reason"]
    assert "mqnamesrv" in told["remedy"]


async def test_a_stopping_broker_says_goodbye(tmp_path: Path) -> None:
    """A broker that stops unregisters with its id."""
    async with registered(tmp_path) as (_, registration, (server,)):
        await until(lambda: server.count(RequestCode.REGISTER_BROKER) == 1)
        registration.stop()
        with trio.fail_after(10):
            await registration.stopped.wait()
        goodbye = decode_header(UnregisterBrokerHeader, server.requests[-1])
        assert (goodbye.broker_name, goodbye.broker_id) == ("broker-a", 2)
