"""Keys and properties on every way of a message, with texts of any kind and length."""

from __future__ import annotations

import random
from collections.abc import Iterable

import trio

from dledger.limits import PROPERTIES_SENT_BYTES_MAX
from mqclient import BadMessage, Consumer, Message, PopConsumer, Producer, ReceivedMessage
from mqlocal import LocalCluster, local_cluster

CHARACTERS = "ab\x00\t\n\x0b\x0c\r\x1c\x85\xa0\u2028\u2029\u3000\ufeff|=*'\"\\%漢😀"
NAMES = ["name", "__SHARDINGKEY", "MIN_OFFSET", "MAX_OFFSET", "xTAGS", "\u3000", "1"]


class Texts:
    """Random texts from a seed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def text(self) -> str:
        """A text that is not empty."""
        return "".join(self._chance.choices(CHARACTERS, k=self._chance.randint(1, 4)))

    def message(self, body: str) -> Message:
        """A message with keys, a tag and properties."""
        names = self._chance.sample([*NAMES, self.text() + "x"], 3)
        return Message(
            "T",
            body.encode(),
            keys=[self.text() for _ in range(self._chance.randint(1, 3))],
            tags=self.text(),
            properties={name: self.text() for name in names},
        )


def check(message: ReceivedMessage, sent: Message) -> None:
    """Check that a message has what was sent, and nothing else of these names."""
    assert message.keys.split(" ") == list(sent.keys)
    assert message.tags == sent.tags
    given = dict(sent.properties or {})
    assert {name: message.properties.get(name) for name in given} == given


async def send(producer: Producer, texts: Texts) -> dict[str, Message]:
    """A message on each way."""
    sent = {way: texts.message(way) for way in ("send", "soon", "level", "timer", "half", "oneway")}
    await producer.send(sent["send"])
    await (await producer.send_soon(sent["soon"])).wait()
    producer.send_oneway(sent["oneway"])
    sent["level"].delay_level, sent["timer"].delay_s = 1, 2
    await producer.send(sent["level"])
    await producer.send(sent["timer"])
    async with producer.transaction(sent["half"]):
        pass
    batch = {f"batch{number}": texts.message(f"batch{number}") for number in range(3)}
    await producer.send_batch(list(batch.values()))
    like = texts.message("many")
    await producer.send_many("T", [b"many"] * 2, tags=like.tags, properties=like.properties)
    like.keys = [""]
    return {**sent, **batch, "many": like}


async def test_keys_and_properties_come_as_they_were_given() -> None:
    """Keys and properties stay as given: sent by all ways, retried, popped, redriven, found."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    texts = Texts(random.Random(seed))
    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P", checker=lambda _: None) as producer:
            sent = await send(producer, texts)
        with trio.fail_after(600):
            await all_tries(cluster, sent)
            await popped(cluster, sent)
        await found_by_tools(cluster, sent)


async def all_tries(cluster: LocalCluster, sent: dict[str, Message]) -> None:
    """Each comes, is tried again once, and becomes a dead letter then."""
    expected = sorted([*sent, "many"] * 2)
    seen: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        check(message, sent[message.body.decode()])
        seen.append(message.body.decode())
        raise ValueError

    async with cluster.admin() as admin:
        await admin.groups.update("G", retry_max_times=1)
    async with cluster.consumer("G", {"T": "*"}, retry_delays_s=[1]) as consumer:
        with trio.move_on_after(60):
            await consumer.run(handle)
    assert sorted(seen) == expected
    async with cluster.admin() as admin:
        for letter in await admin.dead_letters.list("G", count=99):
            assert letter.keys == " ".join(sent[letter.text].keys)
            assert letter.tags == sent[letter.text].tags
        again = await admin.dead_letters.redrive("G", count=99)
    assert len(again) == len(expected) // 2
    async with cluster.consumer("After", {"T": "*"}) as consumer:
        for message in await received(consumer, len(expected)):
            check(message, sent[message.body.decode()])


async def received(consumer: Consumer | PopConsumer, count: int) -> Iterable[ReceivedMessage]:
    """Poll until `count` messages have come."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found += await consumer.poll(count, timeout_s=5)
    return found


async def popped(cluster: LocalCluster, sent: dict[str, Message]) -> None:
    """Check all messages as a pop consumer gets them."""
    async with PopConsumer(cluster.namesrv_addr, "Pop", {"T": "*"}) as consumer:
        for message in await received(consumer, len(sent) + 1):
            check(message, sent[message.body.decode()])


async def found_by_tools(cluster: LocalCluster, sent: dict[str, Message]) -> None:
    """Assert that tools find each message by each of its keys."""
    async with cluster.admin() as admin:
        for body, message in sent.items():
            for key in filter(None, message.keys):
                found = await admin.messages.by_key("T", key)
                assert body in {each.body.decode() for each in found}


async def test_a_request_and_its_reply_keep_theirs() -> None:
    """A request and its reply keep their own properties beside those that tie them."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    texts = Texts(random.Random(seed))
    asked, told = texts.message("asked"), dict(texts.message("told").properties or {})
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        await producer.send(Message("T", b"first"))

        async def answer() -> None:
            async with cluster.consumer("R", {"T": "*"}) as consumer:
                async for message in consumer:
                    if message.body == b"asked":
                        check(message, asked)
                        await producer.reply(message, b"", properties=told)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            reply = await producer.request(asked, timeout_s=30)
            nursery.cancel_scope.cancel()
    assert {name: reply.properties.get(name) for name in told} == told


RETRY_S = 1.0


async def largest(producer: Producer) -> str:
    """The longest value that a message may have, found by trying."""
    low, high = 1, 2 * PROPERTIES_SENT_BYTES_MAX
    while high - low > 1:
        middle = (low + high) // 2
        try:
            await producer.send(Message("Probes", b"", properties={"p": "x" * middle}))
        except BadMessage:
            high = middle
        else:
            low = middle
    return "x" * low


async def test_the_largest_is_given_up_and_sent_again() -> None:
    """The largest message is given up twice; its queue goes on, and it is redelivered."""
    handled: list[str] = []
    done = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.body.decode())
        if message.body == b"bad":
            raise ValueError("never handled")
        done.set()

    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        cluster.admin() as admin,
    ):
        value = await largest(producer)
        await producer.send(Message("T", b"bad", properties={"p": value}), queue_id=0)
        await producer.send(Message("T", b"good"), queue_id=0)
        letters = 0
        async with (
            cluster.consumer("G", {"T": "*"}, retry_delays_s=[RETRY_S]) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(lambda: consumer.run(handle, max_reconsume_times=2))
            with trio.fail_after(600):
                await done.wait()
                for tries in (3, 6):
                    while letters < tries // 3:
                        await trio.sleep(1)
                        letters = len(await admin.dead_letters.list("G", redriven=True))
                    assert handled.count("bad") == tries
                    (letter,) = await admin.dead_letters.list("G")
                    assert letter.origin_topic == "T"
                    await admin.dead_letters.redrive("G")
            nursery.cancel_scope.cancel()
