"""The doctor at real servers: a healthy cluster has no finding, a broken one has."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from dledger.testing.certificates import files, pair
from mqclient import Admin, Message
from mqclient.admin.doctor.facts import Finding
from mqclient.admin.doctor.replicas import log_digests
from mqclient.commands.mqadmin import main
from mqclient.errors import ClientError
from mqlocal import LocalCluster, local_cluster, local_cluster_in_thread
from mqnamesrv.app import serve
from mqnamesrv.config import NamesrvConfig


async def until_found(admin: Admin, check: str) -> Finding:
    """The first finding of a check, once there is one."""
    with trio.fail_after(60):
        while True:
            found = [each for each in await admin.doctor.findings() if each.check == check]
            if found:
                return found[0]
            await trio.sleep(0.1)


async def until_well(admin: Admin) -> None:
    """Wait until nothing is found wrong."""
    with trio.fail_after(60):
        while await admin.doctor.findings():  # noqa: ASYNC110 - it is asked
            await trio.sleep(0.1)


async def give_one_up(cluster: LocalCluster, admin: Admin) -> None:
    """Make a group give its first message up."""
    await admin.topics.update("Lost", read_queues=1, write_queues=1)
    async with cluster.producer() as producer, cluster.consumer("DG", {"Lost": "*"}) as dead:
        await producer.send(Message("Lost", b"hopeless"))
        while not (polled := await dead.poll(1, 1.0)):
            pass
        await dead.nack(polled[0], -1)


async def differ(cluster: LocalCluster, _: Admin) -> None:
    """A member that reads, and one that wants something else: it is kept out."""
    async with cluster.consumer("Mixed", {"Lost": "A"}) as first:
        await first.poll(1, 0.2)
        with suppress(ClientError):
            async with cluster.consumer("Mixed", {"Lost": "B"}) as second:
                await second.poll(1, 1.0)
        async with cluster.admin() as admin:
            found = await until_found(admin, "subscriptions-differ")
        assert "[Lost A]" in found.what
        assert "[Lost B]" in found.what


async def kill_a_follower(cluster: LocalCluster, admin: Admin) -> None:
    """Kill a follower of three, and let it come back."""
    leader = await cluster.leader()
    victim = next(each for each in cluster.servers if "broker" in each and each != leader)
    await cluster.kill(victim)
    found = await until_found(admin, "address-silent")
    assert cluster.address(victim) in found.where
    await cluster.restart(victim)


async def ask_another_name_server(cluster: LocalCluster, _: Admin) -> None:
    """A name server that no broker was told of."""
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve, NamesrvConfig(listen_port=0))
        servers = f"{cluster.namesrv_addr};127.0.0.1:{port}"
        async with Admin(servers) as admin:
            found = list(await admin.doctor.findings())
        assert {each.check for each in found} == {"not-registered"}
        assert all(each.what.endswith(f"not known to: 127.0.0.1:{port}") for each in found)
        assert len(found) == 3
        nursery.cancel_scope.cancel()


async def ask_a_dead_name_server(cluster: LocalCluster, _: Admin) -> None:
    """Ask two name servers, one of which does not answer."""
    async with Admin(f"127.0.0.1:1;{cluster.namesrv_addr}") as admin:
        (found,) = await admin.doctor.findings()
    assert (found.check, found.where) == ("name-server-away", "127.0.0.1:1")


PASSING: tuple[Callable[[LocalCluster, Admin], Awaitable[None]], ...] = (
    kill_a_follower,
    ask_another_name_server,
    ask_a_dead_name_server,
)


async def test_the_doctor_sees_what_is_broken_and_that_it_is_mended() -> None:
    """Three replicas, whose logs, topics and users it compares, too."""
    async with local_cluster(replicas=3) as cluster, cluster.admin() as admin:
        await until_well(admin)
        await trio.sleep(1)  # so all have heard what is committed
        facts = await admin.doctor.facts(with_history=True)
        assert {each.address for each in facts.histories} == {
            *cluster.namesrv_addr.split(";"),
            *(each.address for each in facts.brokers),
        }
        assert all(each.rows and len(each.names) > 10 for each in facts.histories)
        assert [each.tables.keys() for each in facts.brokers] == [{"topics", "users"}] * 3
        assert set.intersection(*(set(log_digests(each)) for each in facts.brokers))
        assert facts.unasked == ()
        for break_it in PASSING:
            await break_it(cluster, admin)
            await until_well(admin)
        await give_one_up(cluster, admin)
        found = await until_found(admin, "dead-letters-grow")
        assert found.where == "group DG on broker-a"
        await differ(cluster, admin)


async def test_the_doctor_sees_a_minority(tmp_path: Path) -> None:
    """Without a leader the doctor says what it could not ask; an old certificate is found."""
    given = files(tmp_path, pair(days=5))
    settings = {
        "tls.server.mode": "permissive",
        "tls.server.certPath": str(given.certificate),
        "tls.server.keyPath": str(given.key),
    }
    async with local_cluster(replicas=3, settings=settings) as cluster, cluster.admin() as admin:
        found = await until_found(admin, "certificate-ends")
        assert "ends in 3 days" in found.what
        await cluster.kill("leader")
        await cluster.kill("leader")
        await until_found(admin, "no-leader")
        facts = await admin.doctor.facts()
        assert [each.what for each in facts.unasked] == ["dead letters and groups of broker-a"]


def command(*line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """The status and the JSON result of a command."""
    status = 0
    try:
        main([*line, "-o", "json"])
    except SystemExit as end:
        status = int(end.code or 0)
    return status, json.loads(capsys.readouterr().out)


def test_the_commands_say_so_by_their_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 if nothing is wrong, 1 if something is; and of an archive later, without the cluster."""
    path = tmp_path / "cluster.tar.gz"
    log = tmp_path / "broker.log"
    log.write_text("line\n")
    with local_cluster_in_thread(replicas=1) as cluster:
        namesrv = cluster.namesrv_addr
        status, told = command("doctor", "-n", namesrv, capsys=capsys)
        assert (status, told["result"]) == (0, [])
        servers = f"{namesrv};127.0.0.1:1"
        status, told = command("doctor", "-n", servers, capsys=capsys)
        assert (status, told["result"][0]["check"]) == (1, "name-server-away")
        line = ("bundle", str(path), "-n", servers, "--log", str(log))
        status, told = command(*line, capsys=capsys)
        assert (status, told["result"]) == (0, {"file": str(path), "brokers": 1, "logs": 1})
    status, told = command("doctor", "--offline", str(path), capsys=capsys)
    assert (status, told["result"][0]["check"]) == (1, "name-server-away")
