"""Memory of popped messages: those that wait, and those in handlers' hands."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from dledger.limits import KIB, MIB
from mqclient import Message, PopConsumer, PoppedMessage, limits
from mqlocal import local_cluster


@pytest.mark.parametrize("count", [12])
async def test_handlers_have_no_more_bytes_in_hand_than_fit(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Handlers have a bounded number of bytes in flight, of inflated and large bodies, too."""
    monkeypatch.setattr(limits, "POP_HAND_BYTES_MAX", 5 * MIB)
    monkeypatch.setattr(limits, "INFLATED_BODY_BYTES_MAX", 2 * MIB)
    at_once, most, handled = 0, 0, list[int]()

    async def handle(message: PoppedMessage) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        handled.append(len(message.body))
        await trio.sleep(1)
        at_once -= 1

    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P", compression="zlib", compress_from_bytes=KIB) as producer:
            for _ in range(count):
                await producer.send(Message("T", bytes(MIB)))
        async with (
            PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, handle, 100)
            with trio.fail_after(60):
                while len(handled) < count:  # noqa: ASYNC110 - handlers wait for nobody
                    await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
    assert most == 2
    assert handled == [MIB] * count


async def test_one_poll_gives_no_more_bytes_than_fit(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll gives as many messages as fit, one at least; the next poll gives more."""
    monkeypatch.setattr(limits, "POP_HAND_BYTES_MAX", 250 * KIB)
    monkeypatch.setattr(limits, "POP_READY_BYTES_MAX", 300 * KIB)
    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            for size in (100, 100, 100, 300, 100, 100):
                await producer.send(Message("T", b"x" * size * KIB))
        async with PopConsumer(cluster.namesrv_addr, "C", {"T": "*"}) as consumer:
            polled = list[list[int]]()
            while sum(map(len, polled)) < 6:
                messages = await consumer.poll(32, timeout_s=10)
                polled.append([len(message.body) // KIB for message in messages])
                await consumer.ack(*messages)
    assert sorted(size for sizes in polled for size in sizes) == [100] * 5 + [300]
    assert all(sum(sizes) < 250 or len(sizes) == 1 for sizes in polled)
    assert max(map(len, polled)) == 2
