"""Recalled messages, which waited for their timer, are never delivered and never moved twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from dledger.errors import BadInput
from dledger.net import Peer, connect_peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import SendMessageResponseHeader, decode_header
from dledger.remoting.receipts import RecallHandle
from mqbroker.testing import MemoryBroker, memory_broker
from mqbroker.testing.requests import TOPIC, ask, make_topic, pull_request, records, send_request

Code = ResponseCode
LATER_MS = 60_000


@dataclass
class Scene:
    """A broker whose wall clock is the test's, and a producer."""

    broker: MemoryBroker
    producer: Peer
    later_ms: int = 0

    async def send(self, key: str = "k") -> str:
        """Send a message that waits; its recall handle."""
        properties = f"UNIQ_KEY\x01{key}\x02TIMER_DELAY_MS\x01{LATER_MS}\x02"
        answer = await self.producer.request(send_request(key.encode(), i=properties), 5)
        assert answer.code == Code.SUCCESS, answer.remark
        handle = decode_header(SendMessageResponseHeader, answer).recall_handle
        assert handle is not None
        return handle

    async def recall(self, handle: str, topic: str = TOPIC) -> Command:
        return await ask(
            self.producer, RequestCode.RECALL_MESSAGE, topic=topic, recallHandle=handle
        )

    async def delivered(self) -> list[bytes]:
        """Bodies that a consumer finds when all times have come."""
        self.later_ms = 2 * LATER_MS
        with trio.fail_after(5):
            while len(self.broker.machine.timers):  # noqa: ASYNC110 -- nothing to be woken by
                await trio.sleep(0.01)
        answer = await self.producer.request(pull_request(1), 5)
        return [bytes(record.body) for record in records(answer)]


@pytest.fixture
async def its(tmp_path: Path) -> AsyncIterator[Scene]:
    """A broker, its producer, and a clock in the test's hands."""
    held: list[Scene] = []

    def clock_ms() -> int:
        return int(trio.current_time() * 1000) + (held[0].later_ms if held else 0)

    async with (
        memory_broker(tmp_path, clock_ms=clock_ms) as broker,
        connect_peer("127.0.0.1", broker.port) as producer,
    ):
        held.append(Scene(broker, producer))
        await make_topic(producer)
        yield held[0]


async def test_a_message_that_was_taken_back_is_never_delivered(its: Scene) -> None:
    """A recalled message is not delivered, others are, and a second recall is refused."""
    handle = await its.send("a")
    await its.send("b")
    done = await its.recall(handle)
    assert (done.code, done.ext["msgId"]) == (Code.SUCCESS, "a")
    again = await its.recall(handle)
    assert again.code == Code.ILLEGAL_OPERATION
    assert "taken back already" in (again.remark or "")
    assert await its.delivered() == [b"b"]


async def test_after_its_delivery_it_is_too_late(its: Scene) -> None:
    """A recall after the delivery is refused."""
    handle = await its.send()
    assert await its.delivered() == [b"k"]
    assert (await its.recall(handle)).code == Code.ILLEGAL_OPERATION


async def test_a_handle_must_be_of_this_topic_and_broker(its: Scene) -> None:
    """A handle of another topic or broker, or of no waiting message, is refused."""
    topic, broker, due_ms, key = RecallHandle.decode(await its.send())
    for other in (
        RecallHandle("Other", broker, due_ms, key),
        RecallHandle(topic, "broker-z", due_ms, key),
        RecallHandle(topic, broker, due_ms, "nobody"),
    ):
        assert (await its.recall(other.encode())).code == Code.ILLEGAL_OPERATION
    assert len(its.broker.machine.timers) == 1


@pytest.mark.parametrize("text", ["", "?", "djE", "djEgYSBiIGM=", "djIgYSBiIGMgZA==", "\x00\xff"])
async def test_any_text_is_a_handle_or_refused(its: Scene, text: str) -> None:
    """A text is decoded as a handle or refused, whatever a client sends."""
    with pytest.raises(BadInput, match="not a valid recall handle"):
        RecallHandle.decode(text)
    assert (await its.recall(text)).code == Code.ILLEGAL_OPERATION


def test_a_handle_is_what_stock_clients_can_read() -> None:
    """RocketMQ's RecallMessageHandle: they find the broker's name in it."""
    handle = RecallHandle("T", "broker-a", "1700000000000", "KEY")
    assert handle.encode() == "djEgVCBicm9rZXItYSAxNzAwMDAwMDAwMDAwIEtFWQ=="
    assert RecallHandle.decode(handle.encode()) == handle
