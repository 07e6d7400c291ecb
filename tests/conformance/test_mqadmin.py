"""Stock `mqadmin`, 4.9 and 5.x, unmodified: every command of operators in turn."""

from __future__ import annotations

from collections.abc import Iterator

import mqadmin
import pytest
import trio
from anyio.from_thread import start_blocking_portal
from clients import CLIENTS, Client, ready
from mqadmin import LINES, Line, Stock

from mqchaos.cluster.cluster import Cluster
from mqclient import Admin, Consumer, Message, Producer

JAVA = [client for client in CLIENTS if client.title == "Java"]
LIVE = "LiveGroup"


async def clients_at_work(
    namesrv_addr: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """A producer and a consumer of the topic Orders that stay."""
    async with Admin(namesrv_addr) as admin:
        await admin.topics.update("Orders", read_queues=2, write_queues=2)
    async with (
        Producer(namesrv_addr, f"{LIVE}P") as producer,
        Consumer(namesrv_addr, LIVE, {"Orders": "*"}) as consumer,
    ):
        for number in range(8):
            await producer.send(Message("Orders", b"%d" % number))
        consumed = 0
        while consumed < 8:
            consumed += len(await consumer.poll(8, 1.0))
        await consumer.commit()
        task_status.started()
        await trio.sleep_forever()


async def members_of(namesrv_addr: str, broker_name: str) -> dict[str, str]:
    """The addresses of the member that leads a group now, and of one that follows."""
    async with Admin(namesrv_addr, timeout_s=10) as admin:
        members = await admin.raft.status(None, broker_name)
    return {member.role: member.address for member in members}


@pytest.fixture(scope="module")
def at_work(cluster: Cluster) -> Iterator[str]:
    """The cluster's name servers, while there are clients to be shown."""
    with start_blocking_portal("trio") as portal:
        working, _ = portal.start_task(clients_at_work, cluster.layout.namesrv_addr)
        yield cluster.layout.namesrv_addr
        working.cancel()


@pytest.fixture(scope="module", params=JAVA, ids=lambda client: client.version)
def stock(request: pytest.FixtureRequest, at_work: str) -> Iterator[Stock]:
    """A release of the tool, pointed to the cluster."""
    client: Client = request.param
    ready(client)
    with Stock(client, at_work, LIVE) as running:
        yield running


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.line)
def test_a_stock_command_works(stock: Stock, line: Line) -> None:
    """A command prints as with RocketMQ's servers, or why ours refuse it."""
    if line.major not in (0, int(stock.client.version[0])):
        pytest.skip(f"not how {stock.client.version} wants it")
    stock.names |= trio.run(members_of, stock.namesrv_addr, "broker-a")
    mqadmin.judge(stock, line, stock.run(line))
