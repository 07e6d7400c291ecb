"""Acks that have no answer when a consumer of popped messages ends."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mqclient import ClientClosed, Message, PopConsumer, PoppedMessage
from mqlocal import local_cluster


async def ack(consumer: PopConsumer, message: PoppedMessage, told: list[str]) -> None:
    with pytest.raises(ClientClosed) as closed:
        await consumer.ack(message)
    told.append(str(closed.value))


async def test_an_ack_that_the_end_cut_off_is_not_taken_for_done(
    autojump_clock: MockClock,
) -> None:
    """Neither an ack on its way nor those behind it are taken for done, and no caller hangs."""
    told: list[str] = []
    async with local_cluster(replicas=1) as cluster, trio.open_nursery() as nursery:
        async with cluster.producer("P") as producer:
            await producer.send_batch([Message("T", b"x") for _ in range(3)])
        async with PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}) as consumer:
            popped = await consumer.poll(3, timeout_s=10)
            assert len(popped) == 3
            await cluster.kill()
            for message in popped:
                nursery.start_soon(ack, consumer, message, told)
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1):
            while len(told) < 3:  # noqa: ASYNC110 - a hang is what it is about
                await trio.sleep(0.1)
    assert set(told) == {
        "this PopConsumer was closed before the acknowledgement was answered: the messages may "
        "come again"
    }
