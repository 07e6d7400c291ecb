"""A TLS cluster of real processes: sends, a dead leader, new certificates, tools."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from clusters import new_cluster

from dledger.errors import DledgerError
from dledger.files import replace
from dledger.limits import TLS_LOOK_S
from dledger.tls.authority import Authority
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import (
    AUTHORITY,
    AUTHORITY_KEY,
    CERTIFICATE,
    KEY,
)
from mqchaos.cluster.probe import Probe
from mqclient import Admin, Consumer, Message, Producer, Tls
from mqclient.blocking import Producer as BlockingProducer

TOPIC, BROKER = "Orders", "broker-a"
PATIENCE_S = 20.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A running cluster with an authority of its own."""
    with new_cluster(tmp_path, tls=True).running() as made:
        yield made


def mqadmin(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mqclient.commands", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


async def until_taken_over(cluster: Cluster, times: int) -> None:
    """Wait until each server has logged so often that it has taken certificates over."""
    with trio.fail_after(PATIENCE_S):
        for name in cluster.names:
            said = cluster.log(name)
            while said.read_text().count("certificates taken over") < times:  # noqa: ASYNC110
                await trio.sleep(TLS_LOOK_S / 10)


async def test_no_message_is_lost_while_a_leader_dies_and_certificates_roll(
    cluster: Cluster,
) -> None:
    """Sends go on over a change of authorities, which overlap, and over a failover."""
    async with cluster.pool() as pool:
        probe = Probe(cluster, pool)
        await probe.wait_until_serving()
        acknowledged = list[bytes]()
        async with Producer(
            cluster.layout.namesrv_addr, "PG", tls=cluster.tls, timeout_s=PATIENCE_S
        ) as producer:

            async def send(count: int) -> None:
                for _ in range(count):
                    body = b"%d" % len(acknowledged)
                    await producer.send(Message(TOPIC, body))
                    acknowledged.append(body)

            await send(50)
            old = (cluster.directory / AUTHORITY).read_bytes()
            new = Authority.make("a new authority")
            replace(cluster.directory / AUTHORITY, old + new.pair.certificate)
            await until_taken_over(cluster, 1)
            for name in cluster.names:
                pair = new.sign(name, cluster.layout.hosts(name))
                pair.write(cluster.folder(name) / CERTIFICATE, cluster.folder(name) / KEY)
            await until_taken_over(cluster, 2)
            leader = await probe.wait_for_leader(BROKER, PATIENCE_S)
            cluster.kill(leader.node.name)
            await send(50)
            replace(cluster.directory / AUTHORITY, new.pair.certificate)
            new.sign("clients").write(
                cluster.directory / "tls" / CERTIFICATE, cluster.directory / "tls" / KEY
            )
            cluster.start([leader.node.name])
            await probe.wait_until_serving()
            await send(50)
        async with Consumer(
            cluster.layout.namesrv_addr, "G", {TOPIC: "*"}, tls=cluster.tls
        ) as consumer:
            read = set[bytes]()
            with trio.fail_after(PATIENCE_S):
                while len(read) < len(acknowledged):
                    read |= {bytes(each.body) for each in await consumer.poll(timeout_s=1)}
        assert read == set(acknowledged)
        await probe.wait_until_level(BROKER)


async def test_plain_text_and_strangers_authorities_get_nothing(cluster: Cluster) -> None:
    """A client without TLS, and one that trusts another authority, send nothing, and are told."""
    async with cluster.pool() as pool:
        await Probe(cluster, pool).wait_until_serving()
    other = cluster.directory / "other.pem"
    other.write_bytes(Authority.make("another").pair.certificate)
    for tls in (None, Tls(ca=other)):
        async with Producer(cluster.layout.namesrv_addr, "PG", tls=tls, timeout_s=2) as producer:
            with pytest.raises(DledgerError, match="closed|reset|does not trust"):
                await producer.send(Message(TOPIC, b"no"))
    async with Admin(cluster.layout.namesrv_addr, tls=cluster.tls) as admin:
        assert TOPIC not in {each.topic for each in await admin.topics.list()}


def test_tools_and_blocking_clients_speak_tls(cluster: Cluster) -> None:
    """mqadmin with --tls, `tls check`, and the blocking producer with the authority's "
    "file alone."""
    address, ca = cluster.layout.namesrv_addr, str(cluster.directory / AUTHORITY)

    async def serving() -> None:
        async with cluster.pool() as pool:
            await Probe(cluster, pool).wait_until_serving()

    trio.run(serving)
    with BlockingProducer(address, "PG", tls=ca) as producer:
        assert producer.send(Message(TOPIC, b"hello")).message_id
    listed = mqadmin("topicList", "-n", address, "--tls", ca, "-o", "json")
    assert TOPIC in listed.stdout, listed.stderr
    for command in (("sendMessage", "-p", "from a tool"), ("consumeMessage",)):
        done = mqadmin(*command, "-t", TOPIC, "-n", address, "--tls", ca)
        assert done.returncode == 0, done.stderr
    assert "from a tool" in done.stdout
    refused = mqadmin("topicList", "-n", address, "--timeout", "2")
    assert refused.returncode == 1
    checked = mqadmin("tls", "check", address, "--tls", ca, "-o", "json")
    found = json.loads(checked.stdout)["result"]
    assert found["tls"] == "taken", found
    assert found["plain"] != "taken"
    assert "127.0.0.1" in found["names"]
    assert found["valid_until"] > "2026"
    other = cluster.directory / "other.pem"
    other.write_bytes(Authority.make("another").pair.certificate)
    failed = mqadmin("tls", "check", address, "--tls", str(other), "-o", "json")
    assert failed.returncode == 1
    found = json.loads(failed.stdout)["result"]
    assert found["refused_by"] == "this end"
    assert "does not trust" in found["tls"]
    missing = mqadmin("topicList", "-n", address, "--tls", "/missing.pem")
    assert missing.returncode == 2
    assert "/missing.pem can't be read" in missing.stderr


def test_keys_are_their_users_alone_and_no_config_shows_a_password(cluster: Cluster) -> None:
    """Files of a cluster with keys are private, and no tool shows a password."""
    keys = [cluster.directory / AUTHORITY_KEY, *cluster.directory.glob("*/tls.key")]
    assert len(keys) == 6
    assert [key for key in keys if key.stat().st_mode & 0o077] == []
