"""Messages with `ttl_s`, as an application sees them."""

from __future__ import annotations

from datetime import timedelta

import pytest
import trio

from mqclient import BadMessage, Message, Nack, PopConsumer, ReceivedMessage
from mqlocal import LocalCluster, local_cluster


async def send(cluster: LocalCluster, *messages: Message) -> None:
    async with cluster.producer("P") as producer:
        for message in messages:
            await producer.send(message, queue_id=0)


async def test_what_has_expired_is_not_delivered() -> None:
    """An expired message is delivered neither by its leader nor by the next one."""
    async with local_cluster() as cluster:
        await send(
            cluster,
            Message("T", b"always"),
            Message("T", b"a minute", ttl_s=60),
            Message("T", b"an hour", ttl_s=3600, tags="x", keys="k"),
        )
        seen = {}
        for group, pause_s in (("A", 0), ("B", 61), ("C", 3600)):
            await trio.sleep(pause_s)
            await cluster.restart(await cluster.kill("leader"))
            async with cluster.consumer(group, {"T": "*"}) as consumer:
                seen[group] = [each.body for each in await consumer.poll(timeout_s=10)]
    assert seen == {
        "A": [b"always", b"a minute", b"an hour"],
        "B": [b"always", b"an hour"],
        "C": [b"always"],
    }


@pytest.mark.parametrize("way", ["poll", "many", "loop", "run", "pop"])
async def test_what_expires_while_it_waits_here_is_not_handed_out(way: str) -> None:
    """A message that expires in a buffer is not handed out; later ones are, and all commit."""
    got: list[bytes] = []
    async with local_cluster(replicas=1) as cluster:
        lasting = [Message("T", b"%d" % number) for number in range(3)]
        short = [Message("T", b"short", ttl_s=5) for _ in range(5)]
        await send(cluster, lasting[0], *short, *lasting[1:])

        async def slow(message: ReceivedMessage) -> None:
            got.append(message.body)
            await trio.sleep(10)
            if len(got) == 3:
                scope.cancel()

        with trio.fail_after(600), trio.CancelScope() as scope:
            if way == "pop":
                async with PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}) as popping:
                    await popping.run(slow)
            async with cluster.consumer("C", {"T": "*"}) as consumer:
                if way == "run":
                    await consumer.run(slow)
                while way == "many":
                    for message in await consumer.poll_many(1, 60):
                        await slow(message)
                while way == "poll":
                    for message in await consumer.poll(1, 60):
                        await slow(message)
                async for message in consumer:
                    await slow(message)
    assert got == [b"0", b"1", b"2"]


async def test_a_message_that_is_tried_again_keeps_its_end() -> None:
    """A copy for a retry expires with its message, and a dead letter does not."""
    tries: list[tuple[bytes, int]] = []
    async with local_cluster(replicas=1) as cluster:
        await send(cluster, Message("T", b"short", ttl_s=15), Message("T", b"lost", ttl_s=15))

        async def fail(message: ReceivedMessage) -> None:
            tries.append((message.body, message.reconsume_times))
            raise Nack(delay_level=-1) if message.body == b"lost" else Nack(delay_s=10)

        async with cluster.consumer("C", {"T": "*"}) as consumer:
            with trio.move_on_after(120):
                await consumer.run(fail)
        async with cluster.admin() as admin:
            (letter,) = await admin.dead_letters.redrive("C")
        async with cluster.consumer("D", {"T": "*"}) as consumer:
            (again,) = await consumer.poll(timeout_s=10)
    assert tries == [(b"short", 0), (b"lost", 0), (b"short", 1)]
    assert letter.text == "lost"
    assert (again.body, again.expires_ms) == (b"lost", None)


async def test_a_message_that_can_not_arrive_in_time_is_refused() -> None:
    """A message that would arrive after its end is refused by the producer with the reason."""
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        at = cluster.now() + timedelta(seconds=30)
        for message in (
            Message("T", b"", ttl_s=-1),
            Message("T", b"", ttl_s=float("nan")),
            Message("T", b"", ttl_s=float("inf")),
            Message("T", b"", ttl_s=366 * 86_400),
            Message("T", b"", ttl_s=5, delay_s=5),
            Message("T", b"", ttl_s=5, deliver_at=at),
            Message("T", b"", properties={"EXPIRES_AT_MS": "1"}),
        ):
            with pytest.raises(BadMessage, match="ttl_s"):
                await producer.send(message)
        await producer.send(Message("T", b"in time", ttl_s=60, deliver_at=at))
        async with cluster.consumer("C", {"T": "*"}) as consumer:
            (message,) = await consumer.poll(timeout_s=50)
            assert message.body == b"in time"
            await trio.sleep(40)
        async with cluster.consumer("D", {"T": "*"}) as consumer:
            assert await consumer.poll(timeout_s=5) == []
