"""Our client and `mqadmin` work with RocketMQ's own name server and broker, of 4.9 and of 5."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from mqclient import (
    Admin,
    BadMessage,
    Consumer,
    Decision,
    Message,
    PopConsumer,
    Producer,
    ReceivedMessage,
    blocking,
)
from mqspark.topics.data_source import RocketmqSource
from mqspark.topics.losses import DataLoss

sys.path.insert(0, str(Path(__file__).parent))

from stock_servers import registered, servers

BROKER = "stock-broker"
CLUSTER = "stock-cluster"
WAIT_S = 60.0
MANY = 500


@pytest.fixture(scope="module", params=["4.9.7", pytest.param("5.5.0", marks=pytest.mark.long)])
def stock(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The version and the name server's address of running servers."""
    version = request.param
    with servers(version, tmp_path_factory.mktemp("rocketmq") / version) as address:
        trio.run(registered, address)
        yield version, address


async def read(address: str, group: str, topic: str, wanted: set[bytes]) -> set[tuple[int, int]]:
    """Read until all of these bodies have come, and commit; the places of all that came.

    RocketMQ stores a send again whose first answer was lost or late, so a body may come twice.
    """
    bodies: set[bytes] = set()
    places: set[tuple[int, int]] = set()
    async with Consumer(address, group, {topic: "*"}) as consumer:
        with trio.fail_after(WAIT_S):
            while not wanted <= bodies:
                some = await consumer.poll(timeout_s=1.0)
                bodies |= {each.body for each in some}
                places |= {(each.queue_id, each.queue_offset) for each in some}
        await consumer.commit()
    assert bodies == wanted
    return places


async def test_every_way_to_send_reaches_a_consumer(stock: tuple[str, str]) -> None:
    """Messages of each way to send reach a consumer, and a group goes on where it was."""
    version, address = stock
    topic = f"Ways{version[0]}"
    sent = [b"one", *(b"soon %d" % n for n in range(50)), *(b"of a batch %d" % n for n in range(5))]
    sent += [*(b"many %d" % n for n in range(MANY)), b"one-way", b"keyed", b"committed"]
    async with Admin(address) as admin:
        await admin.topics.update(topic, read_queues=4, write_queues=4)
    async with Producer(address, "ours", checker=lambda _: Decision.UNKNOWN) as producer:
        first = await producer.send(Message(topic, sent[0], keys="key of one"))
        soon = [await producer.send_soon(Message(topic, body)) for body in sent[1:51]]
        batch = await producer.send_batch([Message(topic, body) for body in sent[51:56]])
        many = await producer.send_many(topic, sent[56 : 56 + MANY])
        producer.send_oneway(Message(topic, b"one-way"))
        keyed = await producer.send(Message(topic, b"keyed"), key="ann")
        async with producer.transaction(Message(topic, b"committed")):
            pass
        await producer.flush()
        results = [first, *(each.result() for each in soon), *batch, *many, keyed]
    places = {(each.queue_id, each.queue_offset) for each in results}
    assert len(places) == len(results), "two acknowledgements name one place"
    read_first = await read(address, "ours", topic, set(sent))
    assert places <= read_first
    async with Producer(address, "ours") as producer:
        await producer.send(Message(topic, b"later"))
    async with Consumer(address, "ours", {topic: "*"}) as consumer:
        with trio.fail_after(WAIT_S):
            while not (some := await consumer.poll(timeout_s=1.0)):
                pass
    assert read_first.isdisjoint((each.queue_id, each.queue_offset) for each in some)
    async with Admin(address) as admin:
        for each in (first, batch[3], many[MANY - 1]):
            (found,) = await admin.messages.by_unique_key(topic, each.message_id)
            place = found.queue_id, found.queue_offset, found.position
            assert place == (each.queue_id, each.queue_offset, each.position)


async def test_delays_are_kept_or_refused(stock: tuple[str, str]) -> None:
    """RocketMQ 4 has fixed levels only, so a delay is refused; 5 keeps it."""
    version, address = stock
    topic = f"Delays{version[0]}"
    async with Admin(address) as admin:
        await admin.topics.update(topic, read_queues=1, write_queues=1)
    async with Producer(address, "ours") as producer:
        if version < "5":
            with pytest.raises(BadMessage, match="RocketMQ 4"):
                await producer.send(Message(topic, b"late", delay_s=2))
            return
        began = trio.current_time()
        await producer.send(Message(topic, b"late", delay_s=2))
        await read(address, "delays", topic, {b"late"})
        assert trio.current_time() - began > 1.5


async def test_the_administration_works(stock: tuple[str, str]) -> None:
    """Topics, groups, routes, brokers, configs and progress are shown and changed."""
    version, address = stock
    topic, group = f"Admin{version[0]}", "watched"
    async with Admin(address) as admin:
        await admin.topics.update(topic, read_queues=3, write_queues=3)
        await admin.topics.update(topic, read_queues=5, write_queues=5)
        assert (await admin.topics.route(topic)).groups[0].read_queues == 5
        await admin.groups.update(group, retry_max_times=3)
        config = await admin.groups.config(group)
        assert config is not None
        assert config.retry_max_times == 3
        async with Producer(address, "ours") as producer:
            await producer.send(Message(topic, b"body", keys="k"))
        assert (await admin.topics.status(topic)).messages == 1
        await read(address, group, topic, {b"body"})
        assert (await admin.groups.progress(group)).lag == 0
        await admin.topics.delete(topic)
        assert topic not in {each.topic for each in await admin.topics.list()}


async def test_pop_consumers_read_from_rocketmq_5(stock: tuple[str, str]) -> None:
    """Messages are popped and acknowledged once by RocketMQ 5; RocketMQ 4 has no POP."""
    version, address = stock
    if version < "5":
        pytest.skip("RocketMQ 4 has no POP")
    topic = "Popped"
    async with Admin(address) as admin:
        await admin.topics.update(topic, read_queues=2, write_queues=2)
    async with Producer(address, "ours") as producer:
        await producer.send_many(topic, [b"%d" % n for n in range(40)])
    got: list[bytes] = []
    async with PopConsumer(address, "poppers", {topic: "*"}) as consumer:
        with trio.move_on_after(WAIT_S) as scope:

            async def handle(message: ReceivedMessage) -> None:
                got.append(message.body)
                if len(got) == 40:
                    scope.cancel()

            await consumer.run(handle)
    assert sorted(got) == sorted(b"%d" % n for n in range(40))


@pytest.mark.parametrize("stock", ["4.9.7", "5.5.0"], indirect=True)
def test_spark_reads_topics_and_shows_a_group(stock: tuple[str, str]) -> None:
    """Spark reads topics as tables and streams, by offsets and tags, and shows its group.

    A topic that is deleted is a loss that is told.
    """
    _, namesrv_addr = stock
    options = {"nameserver": namesrv_addr, "subscribe": "Pipe", "startingoffsets": "earliest"}
    with blocking.Admin(namesrv_addr) as admin:
        admin.topics.update("Pipe", read_queues=2, write_queues=2)
        with blocking.Producer(namesrv_addr, group="PipeProducers") as producer:
            for number in range(100):
                producer.send(Message("Pipe", b"%03d" % number, tags="AB"[number % 2]))

        tagged = RocketmqSource({**options, "subexpression": "A"})
        reader = tagged.reader(tagged.schema())
        rows = [
            row
            for part in reader.partitions()
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]
        assert sorted(row["value"] for row in rows) == [b"%03d" % n for n in range(0, 100, 2)]

        source = RocketmqSource({**options, "maxoffsetspertrigger": "37", "group": "PipeGroup"})
        stream = source.streamReader(source.schema())
        at, values, batches = stream.initialOffset(), [], 0
        limit = stream.getDefaultReadLimit()
        while (end := stream.latestOffset(at, limit)) != at:
            for part in stream.partitions(at, end):
                values += [row["value"] for batch in stream.read(part) for row in batch.to_pylist()]
            at, batches = end, batches + 1
        assert sorted(values) == [b"%03d" % number for number in range(100)]
        assert batches == 3
        assert admin.groups.progress("PipeGroup").lag == 0

        admin.topics.delete("Pipe")
        with pytest.raises(DataLoss, match=r"from 50 on of .* the topic was deleted"):
            stream.latestOffset(at, limit)
        stream.stop()
