"""A broker tells name servers of changed topics alone, and they hold its whole list."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from dledger.net import Connection, serve_remoting
from dledger.net.serving import Answer
from dledger.remoting.bodies import RegisterBrokerBody, decode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import RegisterBrokerHeader, decode_header
from dledger.slices import drained
from dledger.testing.local import LocalLedger
from mqbroker import limits
from mqbroker.config import BrokerConfig
from mqbroker.registration import Registration
from mqbroker.requests.core import Core
from mqbroker.state.machine import Machine
from mqbroker.state.topics import read_write
from mqbroker.testing import until
from mqnamesrv.config import NamesrvConfig
from mqnamesrv.requests.dispatch import Dispatcher
from mqnamesrv.saved.kv_file import KvStore

BROKER = "broker-a"
WHOLE = None
#: A registration: the topics that it lists, and the version since which they have changed.
Told = tuple[set[str], int | None]


class NameServer:
    """The real one, which notes what brokers register. `restart` makes it forget all of them."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.restart()

    def restart(self) -> None:
        config = NamesrvConfig()
        self.served = Dispatcher(config, KvStore(None), trio.current_time, config.door(nonce))

    def __call__(self, request: Command, connection: Connection) -> Answer:
        if request.code == RequestCode.REGISTER_BROKER:
            header = decode_header(RegisterBrokerHeader, request)
            listed = decode_body(RegisterBrokerBody, request.payload).topic_config_serialize_wrapper
            self.told.append((set(listed.topic_config_table), header.since))
        return self.served(request, connection)

    def connected(self, connection: Connection) -> None:
        self.served.connected(connection)

    def disconnected(self, connection: Connection) -> None:
        self.served.disconnected(connection)

    @property
    def topics(self) -> dict[str, int]:
        """The topics that it would tell clients, with their queues."""
        topics = self.served.routes.topics
        return {
            name: topics.queues(name)[0].read_queue_nums for name in drained(topics.union({BROKER}))
        }


class StockNameServer(NameServer):
    """A name server whose answers lack our fields."""

    def __call__(self, request: Command, connection: Connection) -> Answer:
        super().__call__(request, connection)
        return request.reply()


def nonce() -> bytes:
    return os.urandom(16)


def topics_of(core: Core) -> dict[str, int]:
    return {topic.topic_name: topic.read_queue_nums for topic in core.machine.topics}


@asynccontextmanager
async def leading(
    directory: Path, server: NameServer | None = None
) -> AsyncIterator[tuple[Core, NameServer]]:
    """A leader that is registered with a name server on a real socket."""
    server = server or NameServer()
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(serve_remoting, server, "127.0.0.1", 0))
        config = BrokerConfig(
            broker_name=BROKER,
            d_leger_self_id="n1",
            listen_port=10912,
            group_client_addrs="n0-127.0.0.1:10911;n1-127.0.0.1:10912",
            namesrv_addr=f"127.0.0.1:{port}",
            register_broker_heartbeat_millis=60_000,  # so that changes alone are told
        )
        machine = Machine(directory)
        ledger = LocalLedger(machine)
        core = Core(config, machine, ledger, clock_ms=lambda: 1, clock_s=trio.current_time)
        core.role.leading(7)
        machine.topics.put([read_write("A", 4), read_write("B", 4)], 1)
        nursery.start_soon(Registration(core).run)
        await until(lambda: len(server.told) == 1)
        yield core, server
        nursery.cancel_scope.cancel()


def put(core: Core, name: str, queues: int = 4) -> None:
    core.machine.topics.put([read_write(name, queues)], 1)
    core.announcements.changed([name])


async def agrees(core: Core, server: NameServer) -> None:
    """Waits until the name server's list is the broker's."""
    await until(lambda: server.topics == topics_of(core))


async def test_a_new_topic_is_told_alone(tmp_path: Path) -> None:
    """A new or changed topic is told alone, and the others stay."""
    async with leading(tmp_path) as (core, server):
        assert server.told == [({"A", "B"}, WHOLE)]
        put(core, "C")
        await agrees(core, server)
        put(core, "A", 8)
        await agrees(core, server)
        assert server.told[1:] == [({"C"}, 1), ({"A"}, 2)]


async def test_a_deleted_topic_and_a_new_setting_have_all_told(tmp_path: Path) -> None:
    """A deleted topic and a new setting cause a whole list, by which topics are removed."""
    async with leading(tmp_path) as (core, server):
        core.machine.topics.delete("A", 1)
        core.announcements.changed(["A"])
        await agrees(core, server)
        core.announcements.changed()
        await until(lambda: len(server.told) == 3)
        assert server.told[1:] == [({"B"}, WHOLE), ({"B"}, WHOLE)]


async def test_a_name_server_that_has_forgotten_is_told_all(tmp_path: Path) -> None:
    """A name server that has forgotten refuses a change and gets the whole list at once."""
    async with leading(tmp_path) as (core, server):
        server.restart()
        put(core, "C")
        await agrees(core, server)
        assert server.told[1:] == [({"C"}, 1), ({"A", "B", "C"}, WHOLE)]


async def test_too_many_changes_are_one_whole_list(tmp_path: Path) -> None:
    """Changes beyond the number that is remembered for a name server are told as a whole list."""
    async with leading(tmp_path) as (core, server):
        names = [f"T{number}" for number in range(limits.NEWS_TOPICS_MAX + 1)]
        core.machine.topics.put([read_write(name, 1) for name in names], 1)
        core.announcements.changed(names)
        await agrees(core, server)
        assert server.told[1:] == [({"A", "B", *names}, WHOLE)]


async def test_a_name_server_that_takes_no_changes_gets_the_whole_list(tmp_path: Path) -> None:
    """A name server of RocketMQ's takes no changes, and gets the whole list."""
    async with leading(tmp_path, StockNameServer()) as (core, server):
        put(core, "C")
        await agrees(core, server)
        assert server.told[1:] == [({"A", "B", "C"}, WHOLE)]


async def test_through_any_history_the_name_server_holds_the_list(tmp_path: Path) -> None:
    """A name server's list is the leader's, as topics change, it restarts and members lead."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with leading(tmp_path) as (core, server):
        for step in range(60):
            name = f"T{chance.randrange(8)}"
            match chance.choice(["put", "put", "put", "delete", "restart", "lead", "several"]):
                case "put":
                    put(core, name, 1 + step)
                case "delete":
                    core.machine.topics.delete(name, 1)
                    core.announcements.changed([name])
                case "restart":
                    server.restart()
                    put(core, name, 1 + step)
                case "lead":
                    core.role.leading(core.role.term + 1)
                    core.announcements.changed()
                case "several":
                    for number in range(3):
                        put(core, f"T{number}", 1 + step)
            if chance.random() < 0.7:
                await agrees(core, server)
        await agrees(core, server)
        assert any(since is not None for _, since in server.told)
