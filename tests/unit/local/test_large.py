"""Bodies above 4 MiB, as an application sees them."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from dledger.errors import DledgerError
from dledger.remoting.headers import PullMessageHeader
from dledger.remoting.message import LARGE_BODY
from mqbroker.requests.reading.pull import PullHandler
from mqclient import (
    BadMessage,
    Message,
    Nack,
    PopConsumer,
    ReceivedMessage,
    SendError,
    SendFailed,
    limits,
)
from mqclient.user_properties import OwnProperties
from mqlocal import LocalCluster, local_cluster

MIB = 1 << 20
SEED = 15


def content(size: int, number: int = 0) -> bytes:
    return random.Random(SEED + number).randbytes(size)


async def test_a_large_body_arrives_as_it_was_sent() -> None:
    """A body of ten MiB arrives with its keys and tags, in order, though leaders die."""
    body = content(10 * MIB + 7)
    async with local_cluster() as cluster:
        async with cluster.producer("P", timeout_s=30) as producer:
            await producer.send(Message("T", b"before"), queue_id=0)
            sending = producer.send_large(
                Message("T", body, keys="k", tags="A", properties={"x": "y"}), queue_id=0
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cluster.kill, "leader")
                sent = await sending
            await producer.send_large(Message("T", b"after"), queue_id=0)
        async with cluster.consumer("C", {"T": "*"}) as consumer:
            got: list[ReceivedMessage] = []
            while len(got) < 3:
                got += await consumer.poll(timeout_s=30)
        async with cluster.admin() as admin:
            kinds = {info.topic: info.kind for info in await admin.topics.list()}
    before, large, after = got
    assert (before.body, after.body) == (b"before", b"after")
    assert large.body == body
    assert (large.keys, large.tags, large.properties["x"]) == ("k", "A", "y")
    assert (large.queue_offset, large.message_id) == (sent.queue_offset, sent.message_id)
    assert len(large.record.body) == 0
    assert kinds["%PARTS%T"] == "parts"


async def fill(cluster: LocalCluster, count: int) -> list[bytes]:
    bodies = [content(1000 + 700 * number, number) for number in range(1, count + 1)]
    async with cluster.producer("P") as producer:
        for body in bodies:
            await producer.send_large(Message("T", body), queue_id=0)
    return bodies


@pytest.mark.parametrize("way", ["poll", "loop", "run", "batches", "pop", "pop poll"])
async def test_every_way_of_reading_gets_it(small: None, way: str) -> None:
    """A large body is there with its message, in every way of reading."""
    got: list[bytes] = []
    async with local_cluster(replicas=1) as cluster:
        bodies = await fill(cluster, 5)

        def take(message: ReceivedMessage) -> None:
            got.append(message.body)
            if len(got) == len(bodies):
                scope.cancel()

        def take_all(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                take(message)

        with trio.fail_after(300), trio.CancelScope() as scope:
            if way.startswith("pop"):
                async with PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}) as popping:
                    while way == "pop poll":
                        for popped in await popping.poll():
                            take(popped)
                            await popping.ack(popped)
                    await popping.run(take)
            async with cluster.consumer("C", {"T": "*"}) as consumer:
                if way == "run":
                    await consumer.run(take)
                if way == "batches":
                    await consumer.run_batches(take_all)
                while way == "poll":
                    for message in await consumer.poll():
                        take(message)
                async for message in consumer:
                    take(message)
    assert sorted(got) == sorted(bodies)


async def test_a_message_whose_parts_were_not_all_stored_is_never_seen(small: None) -> None:
    """A message that lacks a part, for whatever reason, is never seen."""
    async with local_cluster() as cluster, cluster.producer("P", timeout_s=2) as producer:
        await producer.send(Message("T", b"first"), queue_id=0)
        async with cluster.admin() as admin:
            await admin.topics.update("%PARTS%T", attributes="+send.rate.messages=1")
        with trio.move_on_after(0.5) as leaving:
            await producer.send_large(Message("T", content(400 * 200)), queue_id=0)
        assert leaving.cancelled_caught
        await trio.sleep(2)
        with pytest.raises(SendFailed, match="a part of its body was not stored"):
            await producer.send_large(Message("T", content(400 * 200)), timeout_s=3)
        await producer.send(Message("T", b"second"), queue_id=0)
        async with cluster.consumer("C", {"T": "*"}) as consumer:
            got = [message.body for message in await consumer.poll(timeout_s=5)]
        async with cluster.admin() as admin:
            assert (await admin.topics.status("%PARTS%T")).messages > 5
    assert got == [b"first", b"second"]


async def test_a_retry_has_the_body_too(small: None) -> None:
    """A retry, and a dead letter that is redelivered, have the whole body."""
    bodies: list[bytes] = []
    async with local_cluster() as cluster:
        (body,) = await fill(cluster, 1)

        async def fail(message: ReceivedMessage) -> None:
            bodies.append(message.body)
            raise Nack

        async with cluster.consumer("C", {"T": "*"}) as consumer:
            with trio.move_on_after(120):
                await consumer.run(fail, max_reconsume_times=2)
        await cluster.kill("leader")
        async with cluster.admin() as admin:
            await admin.dead_letters.redrive("C")
        async with cluster.consumer("D", {"T": "*"}) as consumer:
            while len(bodies) < 5:
                bodies += [message.body for message in await consumer.poll(timeout_s=5)]
    assert bodies == [body] * 5


@pytest.mark.parametrize(
    "manifest",
    [
        "nonsense",
        "a 5 00000000 %PARTS%T broker-a 0 0",
        "a 5 00000000 %PARTS%T broker-a 0 77-99",
        "a 5 00000000 %PARTS%None broker-a 0 0",
        "a 5 00000000 %PARTS%T broker-z 0 0",
        "a 5 00000000 Secret broker-a 0 0",
        "a 99999999999999 00000000 %PARTS%T broker-a 0 0",
    ],
)
async def test_a_message_that_lies_about_its_parts_stops_nobody(
    small: None, manifest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message with a wrong manifest is given up with the reason; those behind it are handled."""
    monkeypatch.setattr(limits, "LARGE_FETCH_S", 1.0)
    handled: list[bytes] = []
    async with local_cluster(replicas=1) as cluster:
        (body,) = await fill(cluster, 1)
        async with cluster.producer("P") as producer:
            told = OwnProperties.of({"lies": "yes"}, {LARGE_BODY: manifest})
            lying = Message("T", b"", properties=told)
            await producer.send(lying, queue_id=0)
            await producer.send(Message("T", b"behind"), queue_id=0)
        async with cluster.consumer("A", {"T": "*"}) as consumer:
            got: list[ReceivedMessage] = []
            while len(got) < 3:
                got += await consumer.poll(timeout_s=30)
        if manifest:
            with pytest.raises(DledgerError):
                _ = got[1].body
        else:
            assert got[1].body == b""
        async with cluster.consumer("B", {"T": "*"}) as consumer:
            with trio.move_on_after(120):
                await consumer.run(
                    lambda message: handled.append(message.body), max_reconsume_times=0
                )
        async with cluster.admin() as admin:
            letters = await admin.dead_letters.list("B")
    assert handled == [body, *([] if manifest else [b""]), b"behind"]
    assert len(letters) == int(bool(manifest))


@pytest.mark.parametrize("way", ["poll", "loop", "run", "pop poll"])
async def test_a_broker_that_fails_to_read_a_part_for_a_while_is_asked_again(
    small: None, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that fails to read a part is asked again: the part is not gone."""
    failures = iter(range(5))
    find = PullHandler._find

    def failing(handler: PullHandler, header: PullMessageHeader, *wanted: Any) -> Any:
        if header.topic.startswith("%PARTS%") and next(failures, None) is not None:
            raise OSError(errno.ENOMEM, "no memory")
        return find(handler, header, *wanted)

    got: list[bytes] = []
    async with local_cluster(replicas=1) as cluster:
        (body,) = await fill(cluster, 1)
        monkeypatch.setattr(PullHandler, "_find", failing)
        with trio.fail_after(300), trio.CancelScope() as scope:
            if way == "pop poll":
                async with PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}) as popping:
                    while not got:
                        got += [message.body for message in await popping.poll()]
                scope.cancel()
            async with cluster.consumer("C", {"T": "*"}) as consumer:
                if way == "run":

                    def take(message: ReceivedMessage) -> None:
                        got.append(message.body)
                        scope.cancel()

                    await consumer.run(take)
                elif way == "loop":
                    got.append((await anext(consumer)).body)
                while way == "poll" and not got:
                    got += [message.body for message in await consumer.poll()]
    assert next(failures, None) is None
    assert got == [body]


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_a_body_whose_group_is_away_is_waited_for(small: None, *, auto_commit: bool) -> None:
    """A poll ends with its time, and a caller may wait no longer: neither has been given anything,
    and once the group is back the same messages come, whole and in order."""
    polled: list[bytes] = []
    async with local_cluster() as cluster:
        bodies = await fill(cluster, 3)
        async with cluster.consumer("C", {"T": "*"}, auto_commit=auto_commit) as consumer:
            first = await anext(consumer)
            assert first.body == bodies[0]
            brokers = [name for name in cluster.servers if name.startswith("broker")]
            for name in brokers:
                await cluster.kill(name)
            began = trio.current_time()
            for _ in range(3):
                assert await consumer.poll(timeout_s=20) == []
                with trio.move_on_after(20) as scope:
                    await anext(consumer)
                assert scope.cancelled_caught
            assert trio.current_time() - began < 200
            for name in brokers:
                await cluster.restart(name)
            with trio.fail_after(100):
                while len(polled) < 2:
                    polled += [message.body for message in await consumer.poll(timeout_s=5)]
            if not auto_commit:
                await consumer.commit()
    assert polled == bodies[1:]


@pytest.mark.parametrize("way", ["poll", "loop"])
async def test_a_group_that_is_away_does_not_keep_others_messages(small: None, way: str) -> None:
    """Bodies of a dead group's messages wait, and the other group's messages come meanwhile."""
    sent: dict[str, list[str]] = {"broker-a": [], "broker-b": []}
    got: list[str] = []
    async with local_cluster(groups=2, replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            while min(map(len, sent.values())) < 4:
                ack = await producer.send_large(Message("T", content(2000)))
                sent[ack.broker_name].append(ack.message_id)
        async with cluster.consumer("C", {"T": "*"}) as consumer:

            async def read(count: int) -> None:
                with trio.fail_after(200):
                    while len(got) < count:
                        if way == "loop":
                            messages = [await anext(consumer)]
                        else:
                            messages = await consumer.poll(1, timeout_s=5)
                        for message in messages:
                            assert len(message.body) == 2000
                            assert f" {message.broker_name} " in message.manifest
                            got.append(message.message_id)

            await read(1)
            await trio.sleep(2)
            before = len([each for each in got if each in sent["broker-b"]])
            await cluster.kill("broker-b-n0")
            await read(before + len(sent["broker-a"]))
            assert {*sent["broker-a"]} <= {*got}
            assert before < len(sent["broker-b"])
            await cluster.restart("broker-b-n0")
            await read(sum(map(len, sent.values())))
    assert sorted(got) == sorted([*sent["broker-a"], *sent["broker-b"]])


async def test_a_poll_brings_no_more_bodies_than_there_is_memory_for(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll brings as many bodies as memory allows, one at least, and the next poll the rest."""
    monkeypatch.setattr(limits, "UNDER_WAY_BYTES_MAX", 5000)
    async with local_cluster(replicas=1) as cluster:
        bodies = await fill(cluster, 8)
        polls: list[list[bytes]] = []
        async with cluster.consumer("C", {"T": "*"}) as consumer:
            while sum(map(len, polls)) < len(bodies):
                polls.append([message.body for message in await consumer.poll(timeout_s=5)])
            lag = sum(consumer.lag().values())
        async with cluster.consumer("C", {"T": "*"}) as consumer:
            assert await consumer.poll(timeout_s=1) == []
    assert [body for poll in polls for body in poll] == bodies
    assert all(sum(map(len, poll)) <= 5000 or len(poll) == 1 for poll in polls)
    assert lag <= len(polls[-1])


async def test_the_limits_are_told_before_anything_is_sent(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies that are too large for parts, or delayed, are refused before anything is sent."""
    monkeypatch.setattr(limits, "LARGE_BODY_BYTES_MAX", 5000)
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        with pytest.raises(BadMessage, match="at most 5000"):
            await producer.send_large(Message("T", content(5001)))
        with pytest.raises(BadMessage, match="delayed"):
            await producer.send_large(Message("T", content(5000), delay_s=5))
        with pytest.raises((SendError, BadMessage)):
            await producer.send_large(Message("T" * 125, content(5000)))
        async with cluster.admin() as admin:
            assert not [t for t in await admin.topics.list() if t.kind == "parts"]
