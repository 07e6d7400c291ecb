"""The largest properties that our producer takes, through retries, dead letters, and back."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from dledger.limits import PROPERTIES_SENT_BYTES_MAX
from mqclient import BadMessage, Message, Producer, ReceivedMessage
from mqlocal import local_cluster

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


async def test_the_largest_is_given_up_and_sent_again(autojump_clock: MockClock) -> None:
    """Twice over: its queue goes on behind it, and its dead letter can be sent again."""
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
