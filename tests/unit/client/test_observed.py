"""Rights from `observe` to `enforce`: granted suggestions let an application run on."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from mqclient import (
    Admin,
    Consumer,
    Decision,
    Message,
    PopConsumer,
    Producer,
    RangeReader,
    ReceivedMessage,
)
from mqlocal import local_cluster

WORD = "the word of this cluster"
PASSWORD = "a user's password"  # noqa: S105
SETTINGS = {"dLegerSecret": WORD}
TOPIC, POPPED, ASKED = "Orders", "Popped", "Asked"
GROUP, POPPERS, ANSWERERS = "Workers", "Poppers", "Answerers"
SHOP = {"user": "shop", "secret": PASSWORD}
SECONDS = 20.0


async def send_all(producer: Producer) -> int:
    """Messages of each kind to one topic; how many are read at once."""
    await producer.send(Message(TOPIC, b"plain", keys="k"), timeout_s=5)
    await producer.send(Message(TOPIC, b"ordered"), key="a", timeout_s=5)
    await producer.send_batch([Message(TOPIC, b"first"), Message(TOPIC, b"second")], timeout_s=5)
    await producer.send_many(TOPIC, [b"many"] * 3, timeout_s=5)
    await producer.send_large(Message(TOPIC, bytes(5 << 20)))
    await producer.send(Message(TOPIC, b"delayed", delay_s=1), timeout_s=5)
    taken_back = await producer.send(Message(TOPIC, b"recalled", delay_s=100), timeout_s=5)
    await producer.recall(taken_back)
    async with producer.transaction(Message(TOPIC, b"committed")):
        pass
    async with producer.transaction(Message(TOPIC, b"rolled back")) as transaction:
        await transaction.rollback()
    return 10


async def consume_all(namesrv: str, count: int) -> None:
    """Consume the messages; two are given back: one is redelivered, one is a dead letter."""
    async with Consumer(namesrv, GROUP, {TOPIC: "*"}, **SHOP) as consumer:
        seen = 0
        with trio.fail_after(SECONDS):
            while seen < count + 1:
                for message in await consumer.poll(timeout_s=1):
                    seen += 1
                    if message.body == b"first" and not message.reconsume_times:
                        await consumer.nack(message, delay_s=0.5)
                    elif message.body == b"second":
                        await consumer.nack(message, delay_level=-1)
                    else:
                        await consumer.commit(message)


async def ask_and_answer(namesrv: str, producer: Producer) -> None:
    """A request and its reply."""
    async with (
        Consumer(namesrv, ANSWERERS, {ASKED: "*"}, **SHOP) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            async for message in consumer:
                await producer.reply(message, b"yes")
                await consumer.commit(message)
                return

        nursery.start_soon(answer)
        reply = await producer.request(Message(ASKED, b"?"), timeout_s=SECONDS)
        assert reply.body == b"yes"


async def pop_one(namesrv: str, producer: Producer) -> None:
    """A message by POP, whose time is changed before it is acknowledged."""
    async with PopConsumer(namesrv, POPPERS, {POPPED: "*"}, **SHOP) as pop:
        await producer.send(Message(POPPED, b"popped"), timeout_s=5)
        with trio.fail_after(SECONDS):
            while not (found := await pop.poll(timeout_s=1)):
                pass
        await pop.extend(found[0], invisible_s=60)
        await pop.ack(found[0])


async def administrate(namesrv: str) -> None:
    """Ask and change as an operator without super rights."""
    async with Admin(namesrv, user="operator", secret=PASSWORD) as admin:
        await admin.topics.update("Made", read_queues=2, write_queues=2)
        await admin.groups.update("Made")
        assert (await admin.topics.status(TOPIC)).messages
        await admin.groups.progress(GROUP)
        await admin.groups.list()
        assert list(await admin.messages.by_key(TOPIC, "k"))
        await admin.dead_letters.list(GROUP)
        assert await admin.dead_letters.redrive(GROUP)
        await admin.brokers.status()
        await admin.settings.broker_config()
        await admin.users.list()
        await admin.topics.delete("Made")
        await admin.groups.delete("Made")


async def read_by_ranges(namesrv: str) -> None:
    """A topic's bounds and its messages, for no group."""
    async with RangeReader(namesrv, **SHOP) as reader:
        bounds = await reader.bounds(TOPIC)
        for queue, (begin, end) in ((q, b[:2]) for q, b in bounds.queues.items()):
            await reader.read(queue, begin, end)


async def checker(_: ReceivedMessage) -> Decision:
    """Commit; no transaction is left for it to decide."""
    return Decision.COMMIT


async def work(namesrv: str) -> None:
    """Send, consume, reply, pop, read and administrate once."""
    async with Producer(namesrv, group="Shop", checker=checker, **SHOP) as producer:
        await consume_all(namesrv, await send_all(producer))
        await ask_and_answer(namesrv, producer)
        await pop_one(namesrv, producer)
    await read_by_ranges(namesrv)
    await administrate(namesrv)


async def test_what_was_suggested_is_enough_for_all(autojump_clock: MockClock) -> None:
    """Granted suggestions refuse nothing once rights are enforced, and no more are suggested."""
    async with local_cluster(replicas=3, settings=SETTINGS) as cluster:
        namesrv = cluster.namesrv_addr
        async with Admin(namesrv, secret=WORD) as admin:
            for topic in (TOPIC, POPPED, ASKED):
                await admin.topics.update(topic, read_queues=2, write_queues=2)
            for name in ("shop", "operator"):
                await admin.users.create(name, PASSWORD)
            await admin.users.create("root", PASSWORD, super_user=True)
            await admin.settings.update_broker_config("authorizationMode", "observe")
            await work(namesrv)
            wanted = await admin.rights.suggest()
            assert {each.user for each in wanted} == {"shop", "operator"}
            for each in wanted:
                await admin.rights.grant(each.user, [each.resource], each.actions)
            await admin.settings.update_broker_config("authorizationMode", "enforce")
            await work(namesrv)
            assert await admin.rights.suggest() == wanted
            assert await admin.rights.strangers() == ()
