"""A group that is disabled while its members wait gets nothing, and goes on when it may."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from mqclient import Consumer, Message, PopConsumer, PoppedMessage
from mqlocal import local_cluster


@pytest.mark.parametrize("pops", [False, True])
@pytest.mark.parametrize("what", ["group", "topic"])
async def test_members_get_nothing_while_they_may_not(
    pops: bool, what: str, autojump_clock: MockClock
) -> None:
    """Whether its group is disabled or its topic unreadable: no message passes, none is lost."""
    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        cluster.admin() as admin,
    ):
        await admin.topics.update("T", read_queues=2, write_queues=2)

        async def allow(*, allowed: bool) -> None:
            if what == "group":
                await admin.groups.update("G", consume_enable=allowed)
            else:
                await admin.topics.update("T", perm=6 if allowed else 2)

        make = PopConsumer if pops else Consumer
        async with make(cluster.namesrv_addr, "G", {"T": "*"}) as consumer:
            found: list[bytes] = []

            async def read() -> None:
                while True:
                    for message in await consumer.poll(timeout_s=5):
                        found.append(message.body)
                        if isinstance(consumer, PopConsumer):
                            assert isinstance(message, PoppedMessage)
                            await consumer.ack(message)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await producer.send(Message("T", b"1"))
                await trio.sleep(2)
                assert found == [b"1"]
                await allow(allowed=False)
                await producer.send(Message("T", b"2"))
                await trio.sleep(60)
                assert found == [b"1"]
                await allow(allowed=True)
                with trio.fail_after(60):
                    while len(found) < 2:  # noqa: ASYNC110 -- nothing to be woken by
                        await trio.sleep(0.1)
                assert found == [b"1", b"2"]
                nursery.cancel_scope.cancel()
