"""A group whose replicas are lost is restored from one copy, and goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from clusters import new_cluster

from dledger.errors import DledgerError
from dledger.log.recovery.verify import verify_replica
from dledger.log.replica import describe_replica
from dledger.program.config import load_config
from mqbroker import restoring
from mqbroker.config import BrokerConfig
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import serving
from mqclient import Admin, Consumer, Message, Producer

BODY = bytes(100_000)
LAST = b"the last of the copy"
SEGMENT_BYTES = 1 << 20


def restore(copy: Path, config: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mqbroker", "restore", str(copy), "-c", str(config)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def refusal(copy: Path, config: Path) -> str:
    """The reason why a copy is not restored, without a process of its own."""
    with pytest.raises(DledgerError) as refused:
        restoring.restore(copy, load_config(config, BrokerConfig))
    return str(refused.value)


async def read_to(namesrv: str, last: bytes) -> list[bytes]:
    """The bodies of the topic Orders that are new to a group, up to a last one."""
    bodies = [b""]
    async with Consumer(namesrv, "readers", {"Orders": "*"}) as consumer:
        with trio.fail_after(60):
            while bodies[-1] != last:
                bodies += [message.body for message in await consumer.poll(1000, timeout_s=10)]
        await consumer.commit()
    return bodies[1:]


async def export(namesrv: str) -> Path:
    """The copy that holds most, of all replicas: a follower hears later of what is committed."""
    async with Admin(namesrv) as admin:
        copies = await admin.replicas.export("broker-a", "last-night")
    return Path(max(copies, key=lambda copy: copy.end_position).directory)


@pytest.mark.parametrize("retain_bytes", [0, 3 * SEGMENT_BYTES], ids=["whole", "without its head"])
async def test_a_lost_group_is_restored_from_one_copy(tmp_path: Path, retain_bytes: int) -> None:
    """A restored group has the copy's messages, topics and offsets, and takes new sends.

    A node of the first life that comes back late, with a longer log, takes nothing back.
    """
    cluster = new_cluster(tmp_path, segment_bytes=SEGMENT_BYTES, retain_bytes=retain_bytes)
    layout, namesrv = cluster.layout, cluster.layout.namesrv_addr
    old = cluster.store(layout.nodes[2])
    with cluster.running():
        await serving(cluster)
        async with Producer(namesrv, "PG") as producer:
            for number in range(60):
                await producer.send(Message("Orders", b"%d" % number + BODY), key="one")
            assert await read_to(namesrv, b"59" + BODY)
            if retain_bytes:
                await trimmed(cluster)
            await producer.send(Message("Orders", LAST), key="one")
            copy = await export(namesrv)
            for _ in range(5):
                await producer.send(Message("Orders", b"after the copy"), key="one")
    assert (describe_replica(copy).segments[0] > 0) == bool(retain_bytes)
    kept = copy.rename(tmp_path / "copy")
    shutil.copytree(old, tmp_path / "old")
    for node in layout.nodes:
        shutil.rmtree(cluster.store(node))
        config = cluster.folder(node.name) / "broker.toml"
        done = restore(kept, config)
        assert done.returncode == 0, done.stderr

    shutil.rmtree(old)
    shutil.copytree(tmp_path / "old", old)
    late = layout.nodes[2].name
    try:
        cluster.start([name for name in cluster.names if name != late])
        await serving(cluster)
        assert await read_to(namesrv, LAST) == [LAST]
        async with Producer(namesrv, "PG") as producer:
            await producer.send(Message("Orders", b"second life"), key="one")
            cluster.start([late])
            # With retention it has saved its state, and may know that its tail was acknowledged:
            # then it cuts nothing, and takes no part.
            if not retain_bytes:
                await cut(cluster)
            await producer.send(Message("Orders", b"goes on"), key="one")
        assert await read_to(namesrv, b"goes on") == [b"second life", b"goes on"]
    finally:
        cluster.stop()
    assert [verify_replica(cluster.store(node)).damaged for node in layout.nodes] == [0, 0, 0]


async def cut(cluster: Cluster) -> None:
    """Wait until the late node's log has a tail of the second life."""
    store = cluster.store(cluster.layout.nodes[2])
    with trio.fail_after(30):
        while verify_replica(store).last_term < 1 << 20:  # noqa: ASYNC110 - a process's files
            await trio.sleep(0.2)


async def trimmed(cluster: Cluster) -> None:
    """Wait until retention has removed the beginning of n0's log."""
    log = cluster.store(cluster.layout.nodes[0]) / "log"
    with trio.fail_after(30):
        while not (log / "head").exists():  # noqa: ASYNC110 - a process's files
            await trio.sleep(0.1)


async def test_what_can_not_be_restored_is_refused(tmp_path: Path) -> None:
    """A folder that is not a copy, another group's, a damaged one, or one with a pipe is refused.

    Each has its reason, and leaves nothing behind.
    """
    cluster = new_cluster(tmp_path, segment_bytes=SEGMENT_BYTES)
    layout, namesrv = cluster.layout, cluster.layout.namesrv_addr
    with cluster.running():
        await serving(cluster)
        async with Producer(namesrv, "PG") as producer:
            for _ in range(12):
                await producer.send(Message("Orders", BODY), key="one")
        copy = await export(namesrv)
    config = cluster.folder("broker-a-n0") / "broker.toml"
    store = cluster.store(layout.nodes[0])

    assert "a replica's own folder, not a copy" in refusal(store, config)
    assert "is not empty" in refusal(copy, config)
    shutil.rmtree(store)
    assert "no replica" in refusal(tmp_path / "nowhere", config)
    other = config.with_name("other.toml")
    other.write_text(config.read_text().replace('"broker-a"', '"broker-b"'))
    assert "group 'broker-a', not of 'broker-b'" in refusal(copy, other)
    segment = sorted((copy / "log").glob("*.seg"))[0]
    segment.chmod(0o600)
    with segment.open("r+b") as file:
        file.seek(5_000)
        file.write(b"rot")
    damaged = restore(copy, config)
    assert "is damaged" in damaged.stderr
    assert damaged.returncode == 2
    (copy / "snapshot.msgpack").unlink(missing_ok=True)
    os.mkfifo(copy / "snapshot.msgpack")
    assert "snapshot.msgpack is a pipe, not a file" in refusal(copy, config)
    assert list(store.parent.glob("store*")) == []
