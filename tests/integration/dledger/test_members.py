"""Broker processes that join their group and are removed from it, while messages are sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import trio
from clusters import new_cluster

from dledger import Entry, LedgerConfig, open_ledger
from mqchaos.cluster.cluster import SECRET_FILE, Cluster
from mqchaos.cluster.layout import Layout, NodeLayout
from mqchaos.cluster.probe import serving
from mqchaos.cluster.processes import free_ports
from mqclient import Admin, Message, Producer

TIMEOUT_S = 60.0


def run_mqadmin(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mqclient.commands", *arguments, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "NAMESRV_ADDR": layout.namesrv_addr},
    )


def mqadmin(layout: Layout, *arguments: str) -> Any:
    """The result of a command, which must succeed."""
    done = run_mqadmin(layout, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def newcomer(directory: Path, layout: Layout) -> tuple[Cluster, NodeLayout]:
    """A fourth node: its config names all four, those of the others only themselves."""
    node = NodeLayout("broker-a", "n3", *free_ports(2))
    wider = msgspec.structs.replace(layout, nodes=(*layout.nodes, node))
    return Cluster.create(directory, wider), node


class Sending:
    """A task that sends messages one after the other; none may fail."""

    def __init__(self, namesrv: str) -> None:
        self.sent = 0
        self._more = trio.Event()
        self._namesrv = namesrv

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with Producer(self._namesrv, "PG") as producer:
            task_status.started()
            while True:
                await producer.send(Message("Orders", b"%d" % self.sent))
                self.sent += 1
                self._more.set()
                self._more = trio.Event()
                await trio.sleep(0.005)

    async def go_on(self, count: int = 20) -> None:
        """Return when that many more have been sent."""
        wanted = self.sent + count
        with trio.fail_after(TIMEOUT_S):
            while self.sent < wanted:
                await self._more.wait()


async def roles(namesrv: str) -> dict[str, str]:
    async with Admin(namesrv) as admin:
        return {member.node_id: member.role for member in await admin.raft.status()}


async def stored(namesrv: str) -> int:
    async with Admin(namesrv) as admin:
        return (await admin.topics.status("Orders")).messages


async def test_a_group_gets_a_new_node_and_loses_its_leader_under_sends(tmp_path: Path) -> None:
    """A node is added and the leader removed under sends, none of which fails.

    What remains is a group of three: it survives one more death, and its node that is restarted
    still knows the members, whatever its config file says.
    """
    with new_cluster(tmp_path).running() as cluster:
        layout, namesrv = cluster.layout, cluster.layout.namesrv_addr
        await serving(cluster)
        async with Admin(namesrv) as admin:
            await admin.topics.update("Orders", read_queues=4, write_queues=4)
        fourth, node = newcomer(tmp_path / "fourth", layout)
        (fourth.directory / SECRET_FILE).write_bytes((cluster.directory / SECRET_FILE).read_bytes())
        sending = Sending(namesrv)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(sending.run)
                fourth.start([node.name])
                peer = f"127.0.0.1:{node.raft_port}"
                where = ("-b", "broker-a", "--node", "n3", "--peer", peer, "--client", node.address)
                added = await trio.to_thread.run_sync(mqadmin, layout, "addNode", *where)
                assert added["members"] == ["n0", "n1", "n2", "n3"]
                again = await trio.to_thread.run_sync(mqadmin, layout, "addNode", *where)
                assert again["members"] == added["members"]
                await sending.go_on()

                led = await roles(namesrv)
                (leader,) = [node_id for node_id, role in led.items() if role == "leader"]
                gone = ("-b", "broker-a", "--node", leader)
                removed = await trio.to_thread.run_sync(mqadmin, layout, "removeNode", *gone)
                left = sorted({"n0", "n1", "n2", "n3"} - {leader})
                assert removed["members"] == left
                await sending.go_on()
                assert (await roles(namesrv))[leader] == "removed"
                cluster.kill(f"broker-a-{leader}")
                await sending.go_on()

                fourth.kill(node.name)
                await sending.go_on()
                fourth.start([node.name])
                await wait_until_level(namesrv, left)
                old = next(name for name in left if name != "n3")
                cluster.kill(f"broker-a-{old}")
                await sending.go_on()
                nursery.cancel_scope.cancel()
            assert await stored(namesrv) >= sending.sent
        finally:
            fourth.kill_all()


async def test_a_group_shrinks_to_two_and_no_further(tmp_path: Path) -> None:
    """A group of two refuses to lose a member, and says what to do.

    A leader that is removed hands over first.
    """
    with new_cluster(tmp_path).running() as cluster:
        layout, namesrv = cluster.layout, cluster.layout.namesrv_addr
        await serving(cluster)
        async with Admin(namesrv) as admin:
            await admin.topics.update("Orders", read_queues=4, write_queues=4)
        sending = Sending(namesrv)
        async with trio.open_nursery() as nursery:
            await nursery.start(sending.run)
            led = await roles(namesrv)
            (leader,) = [node_id for node_id, role in led.items() if role == "leader"]
            gone = ("-b", "broker-a", "--node", leader)
            removed = await trio.to_thread.run_sync(mqadmin, layout, "removeNode", *gone)
            left = sorted({"n0", "n1", "n2"} - {leader})
            assert removed["members"] == left
            cluster.kill(f"broker-a-{leader}")
            await sending.go_on()
            for node_id in left:
                more = ("removeNode", "-b", "broker-a", "--node", node_id, "--within", "10")
                done = await trio.to_thread.run_sync(run_mqadmin, layout, *more)
                assert done.returncode != 0
                assert "only one voter would be left" in done.stderr
                assert "add another member first" in done.stderr
            assert sorted(await roles(namesrv)) == left
            await sending.go_on()
            nursery.cancel_scope.cancel()
        assert await stored(namesrv) >= sending.sent


class Counting:
    """A state machine that counts what it applies."""

    applied_index = 0

    def apply(self, entry: Entry) -> object:
        return entry.index

    def leading(self, term: int) -> None:
        pass

    def following(self, leader: str | None, term: int) -> None:
        pass


async def test_a_group_of_one_grows(tmp_path: Path) -> None:
    """A second node copies what the first had alone; from then on nothing is committed without it.
    The first still knows that after a restart, though its config names itself only."""
    first_port, second_port = free_ports(2)
    peers = {"n0": ("127.0.0.1", first_port), "n1": ("127.0.0.1", second_port)}
    alone = LedgerConfig("g", "n0", {"n0": peers["n0"]}, tmp_path / "n0")
    joining = LedgerConfig("g", "n1", peers, tmp_path / "n1")
    with trio.fail_after(TIMEOUT_S):
        async with open_ledger(alone, Counting()) as first:
            await until(lambda: first.status.role == "leader")
            for _ in range(5):
                await first.append(b"alone")
            async with open_ledger(joining, Counting()) as second:
                await first.add_member("n1", *peers["n1"])
                await until(lambda: [m.role for m in first.status.members] == ["voter", "voter"])
                appended = await first.append(b"together")
                await second.wait_applied(appended.index)
        async with open_ledger(alone, Counting()) as first:
            assert [member.node_id for member in first.status.members] == ["n0", "n1"]
            with trio.move_on_after(2.0):
                await until(lambda: first.status.role == "leader")
            assert first.status.role != "leader"
            async with open_ledger(joining, Counting()) as second:
                await until(lambda: "leader" in (first.status.role, second.status.role))


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not condition():  # noqa: ASYNC110 (others change it, without an event)
        await trio.sleep(0.02)


async def wait_until_level(namesrv: str, members: list[str]) -> None:
    """Wait until all members are level with the leader, but for the newest entries."""
    with trio.fail_after(TIMEOUT_S):
        while True:
            async with Admin(namesrv) as admin:
                status = {member.node_id: member for member in await admin.raft.status()}
            lags = [status[name].lag_entries for name in members if name in status]
            if len(lags) == len(members) and all(lag is not None and lag < 50 for lag in lags):
                return
            await trio.sleep(0.1)
