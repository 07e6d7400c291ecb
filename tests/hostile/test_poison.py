"""Poison: harm that one message may do to its consumers.

A stranger who may send may send any record that a broker takes: bodies that inflate without end,
manifests that name parts that are not there, properties with absurd values. Each way of reading
must come to the honest message behind them within a bounded time, and in bounded memory.
"""

from __future__ import annotations

import os
import tracemalloc
import zlib
from collections.abc import Sequence
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from dledger.errors import DledgerError
from dledger.limits import MIB
from dledger.net import connect_peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.record import encode_record
from dledger.testing.logs import capture_logs
from mqbroker.testing.requests import BORN_HOST
from mqclient import Message, PopConsumer, ReceivedMessage
from mqlocal import LocalCluster, local_cluster

ALL = "DEAREST" in os.environ
HONEST = b"honest"
SECONDS_EACH = 1.0
"""The cluster's time for one message of poison; and once `PATIENCE_S` in all."""
PATIENCE_S = 40.0
MEMORY_MAX = 96 * MIB

BOMB = zlib.compress(bytes(64 * MIB))
COMPRESSED = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201, "unnamed": 0x001, "unknown": 0x701}
MANIFEST = "id 9 0000ffff %PARTS%T broker-a 0 0-3"


def manifests() -> list[str]:
    """Manifests of parts that are not there: other groups, topics, queues, offsets, sizes."""
    fields = MANIFEST.split(" ")
    changes: list[tuple[int, Sequence[str]]] = [
        (1, ["0", "268435456", "-1", "9" * 4000]),
        (2, ["", "x", "f" * 4000]),
        (3, ["%PARTS%Nowhere", "T", "%PARTS%", "%PARTS%" + "x" * 400]),
        (4, [f"unknown-{number}" for number in range(40)]),
        (5, ["1", "7", "1024", "65535", "99999999"]),
        (6, ["0", "0-255", "0,1,2,3", "0,0", "3-0", "9223372036854775807", "7-9," * 900, "0-256"]),
    ]
    found = [MANIFEST, "", " ", "x" * 8000]
    for number, values in changes:
        found += [" ".join([*fields[:number], value, *fields[number + 1 :]]) for value in values]
    nowhere = MANIFEST.replace("%PARTS%T", "%PARTS%Nowhere")
    found += [nowhere.replace("broker-a", f"unknown-{number}") for number in range(20)]
    return found


ABSURD = ["", "-1", "9" * 4000, "1e999", "NaN", "\u0667", "true", "0x10", " ", "../x", "x" * 4000]
NAMES = (
    *(
        "UNIQ_KEY",
        "KEYS",
        "TAGS",
        "WAIT",
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "REAL_QID",
        "ORIGIN_MESSAGE_ID",
    ),
    *("RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "EXPIRES_AT_MS", "POP_CK"),
    *("_SYS_MSG_PRIORITY_", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE"),
    *(
        "LARGE_BODY",
        "LARGE_PART",
        "INNER_NUM",
        "__SHARDINGKEY",
        "TRACE_ON",
        "MSG_REGION",
        "CLUSTER",
    ),
)


def poison() -> list[bytes]:
    """Poisonous records of each kind."""
    found = [record(b"", f"LARGE_BODY\x01{each}\x02".encode()) for each in manifests()]
    for flag in COMPRESSED.values():
        for body in (b"", b"x" * 100, BOMB[:1000], BOMB, zlib.compress(b"fine")):
            found.append(record(body, sys_flag=flag))
    for number, name in enumerate(NAMES):
        for more in range(len(ABSURD) if ALL else 3):
            value = ABSURD[(number + 4 * more) % len(ABSURD)]
            found.append(record(properties=f"{name}\x01{value}\x02".encode()))
    for properties in (
        b"\xff" * 100,
        b"\x01\x02" * 8000,
        b"a\x01b\x02" * 8000,
        b"\x02\x02\x01",
        b"x",
    ):
        found.append(record(properties=properties))
    found += [record(flag=-1), record(reconsume_times=2**31 - 1), record(b"x" * 4 * MIB)]
    return found


def record(body: bytes = b"x", properties: bytes = b"", **fields: int) -> bytes:
    """A record that a producer may send."""
    return encode_record(
        topic=b"T",
        queue_id=0,
        body=body,
        properties=properties,
        born_timestamp_ms=1,
        born_host=BORN_HOST,
        **fields,
    )


async def send(cluster: LocalCluster, records: list[bytes]) -> int:
    """Send records, each by itself; how many the broker has taken."""
    host, port = cluster.address(await cluster.leader()).split(":")
    taken = 0
    async with connect_peer(host, int(port)) as peer:
        for each in records:
            ext: dict[str, ExtValue] = {"topic": "T", "producerGroup": "P", "runs": [[0, 1]]}
            answer = await peer.request(Command(RequestCode.PRODUCE, ext, each), 30)
            taken += answer.code == ResponseCode.SUCCESS
    return taken


def look(message: ReceivedMessage) -> bool:
    """Read a message as an application does; whether it is the honest one."""
    for name in ("keys", "tags", "properties", "expires_ms", "priority", "message_id", "topic"):
        with suppress(DledgerError):
            getattr(message, name)
    repr(message)
    try:
        return message.body == HONEST
    except DledgerError:
        return False


async def read(cluster: LocalCluster, way: str) -> None:
    """Read a topic in one way until the honest message comes."""
    came = trio.Event()

    def handle(message: ReceivedMessage) -> None:
        if look(message):
            came.set()
            scope.cancel()

    def handle_all(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            handle(message)

    with trio.CancelScope() as scope:
        if way.startswith("pop"):
            async with PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}) as popping:
                while way == "pop poll" and not came.is_set():
                    for popped in await popping.poll():
                        handle(popped)
                        await popping.ack(popped)
                await popping.run(handle)
        async with cluster.consumer("C", {"T": "*"}) as consumer:
            if way == "run":
                await consumer.run(handle)
            if way == "batches":
                await consumer.run_batches(handle_all)
            while way == "many" and not came.is_set():
                found = await consumer.poll_many(100, timeout_s=5)
                for message in found:
                    handle(message)
            while way == "poll" and not came.is_set():
                handle_all(await consumer.poll(timeout_s=5))
            async for message in consumer:
                handle(message)
    assert came.is_set()


@pytest.mark.parametrize("way", ["poll", "many", "loop", "run", "batches", "pop", "pop poll"])
async def test_poison_keeps_no_consumer_from_the_message_behind_it(
    autojump_clock: MockClock, way: str
) -> None:
    """Poison costs little time, and no more memory than one body may have."""
    with capture_logs():
        async with local_cluster(replicas=1) as cluster:
            async with cluster.producer("P") as producer:
                await producer.send_large(Message("T", b"parts" * MIB), queue_id=0)
            taken = await send(cluster, poison())
            await send(cluster, [record(HONEST)])
            if way in ("poll", "pop poll"):
                tracemalloc.start()
            began_s = trio.current_time()
            try:
                await read(cluster, way)
                took_s, (_, peak) = trio.current_time() - began_s, tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    print(f"{way}: {taken} messages, {took_s:.1f} s, {peak >> 20} MiB")
    assert taken > 100
    assert took_s < PATIENCE_S + SECONDS_EACH * taken / 10
    assert peak < MEMORY_MAX
