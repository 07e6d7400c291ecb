"""A key that a message was sent by is stored with it, and handlers keep its order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest
import trio

from dledger.errors import BadInput
from dledger.limits import MESSAGE_BODY_BYTES_MAX
from mqclient import Consumer, Decision, Message, Producer, ReceivedMessage
from mqlocal import LocalCluster, local_cluster

COUNT = 6
KEY = "ann"


async def commit(_: ReceivedMessage) -> Decision:
    """A checker that is never asked."""
    return Decision.COMMIT


def message(number: int) -> Message:
    """A message with keys of its own, which do not decide its order."""
    return Message("T", str(number).encode(), keys=f"id-{number}")


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with local_cluster(replicas=1) as cluster:
        yield cluster


async def send(producer: Producer) -> None:
    for number in range(COUNT):
        await producer.send(message(number), key=KEY)


async def send_soon(producer: Producer) -> None:
    for number in range(COUNT):
        await producer.send_soon(message(number), key=KEY)


async def send_nowait(producer: Producer) -> None:
    await producer.prepare("T")
    for number in range(COUNT):
        producer.send_nowait(message(number), key=KEY)


async def send_oneway(producer: Producer) -> None:
    await producer.prepare("T")
    for number in range(COUNT):
        producer.send_oneway(message(number), key=KEY)


async def send_batch(producer: Producer) -> None:
    await producer.send_batch([message(number) for number in range(3)], key=KEY)
    await producer.send_batch([message(number) for number in range(3, 6)], keys=[KEY] * 3)


async def send_many(producer: Producer) -> None:
    await producer.send_many("T", [str(number).encode() for number in range(COUNT)], key=KEY)


async def send_large(producer: Producer) -> None:
    for number in range(COUNT - 1):
        await producer.send_large(message(number), key=KEY)
    large = b"5".ljust(MESSAGE_BODY_BYTES_MAX + 1)
    await producer.send_large(Message("T", large, keys="id-5"), key=KEY)


async def transaction(producer: Producer) -> None:
    for number in range(COUNT):
        async with producer.transaction(message(number), key=KEY):
            pass


async def delayed(producer: Producer) -> None:
    for number in range(COUNT):
        later = Message("T", str(number).encode(), keys=f"id-{number}", delay_s=1)
        await producer.send(later, key=KEY)


Send: TypeAlias = Callable[[Producer], Awaitable[None]]
WAYS: list[Send] = [
    *(send, send_soon, send_nowait, send_oneway, send_batch, send_many, send_large),
    *(transaction, delayed),
]


@pytest.mark.parametrize("way", WAYS)
async def test_handlers_of_one_key_keep_the_order_of_its_sends(
    way: Send, cluster: LocalCluster
) -> None:
    """Handlers keep the order of a key's sends, of every kind, when the first is slow."""
    async with cluster.producer("P", checker=commit) as producer:
        await way(producer)
    assert await handled(cluster, COUNT) == [(str(number), KEY) for number in range(COUNT)]


async def test_outputs_of_a_transaction_keep_their_keys_order(cluster: LocalCluster) -> None:
    """Outputs of a transaction are sent by their key, too."""
    async with (
        cluster.producer("P", name="n") as producer,
        cluster.consumer("IN", {"IN": "*"}, auto_commit=False) as consumer,
    ):
        await producer.send(Message("IN", b""))
        assert await consumer.poll(timeout_s=20)
        async with consumer.transaction(producer) as step:
            for number in range(COUNT):
                await step.send(message(number), key=KEY)
    assert await handled(cluster, COUNT) == [(str(number), KEY) for number in range(COUNT)]


async def handled(cluster: LocalCluster, count: int) -> list[tuple[str, str]]:
    """Bodies and keys, in the order in which handlers were through with them."""
    done: list[tuple[str, str]] = []

    async def handle(each: ReceivedMessage) -> None:
        body = each.body[:1].decode()
        await trio.sleep(count - int(body))
        done.append((body, each.properties["__SHARDINGKEY"]))
        if len(done) == count:
            running.cancel()

    async with Consumer(cluster.namesrv_addr, "C", {"T": "*"}) as consumer:
        with trio.move_on_after(600) as running:
            await consumer.run(handle, count, order="key")
    return done


async def test_a_key_and_the_property_of_another_are_refused(cluster: LocalCluster) -> None:
    """A key and another one's property are refused; the same one twice is not."""
    async with cluster.producer("P") as producer:
        both = Message("T", b"", properties={"__SHARDINGKEY": "bob"})
        with pytest.raises(BadInput, match=r"key='ann' and the property __SHARDINGKEY='bob'"):
            await producer.send(both, key=KEY)
        await producer.send(both, key="bob")


@pytest.mark.parametrize("key", ["", 5, b"ann", ["ann"]])
async def test_a_key_that_is_no_text_is_refused_at_the_call(
    key: object, cluster: LocalCluster
) -> None:
    """A key that is empty or not text is refused at the call."""
    async with cluster.producer("P") as producer:
        with pytest.raises(BadInput, match="keys?="):
            await producer.send(Message("T", b""), key=key)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="keys?="):
            await producer.send_batch([Message("T", b"")], keys=[key])  # type: ignore[list-item]
        with pytest.raises(BadInput, match="keys?="):
            await producer.send_many("T", [b""], key=key)  # type: ignore[arg-type]
        assert producer.pending == 0
