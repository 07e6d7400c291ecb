"""Requests for a lock that another client has: the broker holds them until it is given up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trio

from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import LockBatchBody, LockBatchResponseBody, decode_body, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.json_dialect import MessageQueue
from mqbroker.requests.held_pulls import HeldPulls
from mqbroker.state.groups.locks import QueueKey
from mqbroker.testing import MemoryBroker, memory_broker, until
from mqbroker.testing.requests import ask, heartbeat, make_topic

KEY = QueueKey("C", "Orders", 0)
HELD_MS = 10_000


class Members:
    """Two clients of a broker; the first has the lock."""

    def __init__(self, broker: MemoryBroker, first: Peer, second: Peer) -> None:
        self.broker, self.first, self.second = broker, first, second

    @property
    def held(self) -> int:
        """How many requests the broker holds."""
        return len(self.broker.broker._held)

    def owner(self) -> str | None:
        """The client that has the queue."""
        return self.broker.broker.core.machine.locks.owner(KEY)

    async def lock(self, peer: Peer, client_id: str, waits_ms: int | None = HELD_MS) -> list[int]:
        """Ask for the lock; the queues that are the client's."""
        answer = await ask(peer, RequestCode.LOCK_BATCH_MQ, _body(client_id, waits_ms))
        return [
            each.queue_id
            for each in decode_body(LockBatchResponseBody, answer.payload).lock_ok_mq_set
        ]

    async def unlock(self, peer: Peer, client_id: str) -> None:
        """Give the queue up, or withdraw the wish for it."""
        await ask(peer, RequestCode.UNLOCK_BATCH_MQ, _body(client_id))


def _body(client_id: str, waits_ms: int | None = None) -> bytes:
    queue = MessageQueue(KEY.topic, "broker-a", KEY.queue_id)
    return encode_body(LockBatchBody(KEY.group, client_id, [queue], waits_ms=waits_ms))


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[Members]:
    async with (
        memory_broker(tmp_path) as broker,
        connect_peer("127.0.0.1", broker.port) as first,
        connect_peer("127.0.0.1", broker.port) as second,
    ):
        await make_topic(first, KEY.topic)
        members = Members(broker, first, second)
        for peer, client_id in ((first, "c1"), (second, "c2")):
            await ask(peer, RequestCode.HEART_BEAT, heartbeat(client_id))
        assert await members.lock(first, "c1") == [0]
        yield members


async def answered(
    members: Members, meanwhile: Callable[[], Awaitable[object]]
) -> list[int] | None:
    """The answer to the second member, which waits for the lock meanwhile; None if none came."""
    found: list[list[int]] = []
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def lock() -> None:
            found.append(await members.lock(members.second, "c2"))
            nursery.cancel_scope.cancel()

        await until(lambda: members.held == 1)
        assert not found
        await meanwhile()
        with trio.move_on_after(HELD_MS / 2000):
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()
    return found[0] if found else None


async def test_a_held_request_has_the_lock_when_it_is_given_up(members: Members) -> None:
    """A held request gets the lock when its owner unlocks it, and by nobody else's unlock."""

    async def unlock() -> None:
        await members.unlock(members.first, "c3")
        assert members.held == 1
        await members.unlock(members.first, "c1")

    assert await answered(members, unlock) == [0]
    assert members.owner() == "c2"


async def test_who_does_not_wait_is_answered_at_once(members: Members) -> None:
    """Requests of stock clients, and of several queues, are answered at once."""
    with trio.fail_after(HELD_MS / 2000):
        assert await members.lock(members.second, "c2", None) == []
        assert await members.lock(members.second, "c2", 0) == []
        assert await members.lock(members.first, "c1") == [0]
    assert members.held == 0


@pytest.mark.parametrize("way", ["unlocks", "leaves", "topic"])
async def test_a_held_request_that_may_have_nothing_is_answered(members: Members, way: str) -> None:
    """A held request is answered if its client leaves or withdraws, or the topic is deleted."""

    async def end() -> None:
        if way == "unlocks":
            await members.unlock(members.second, "c2")
        elif way == "leaves":
            left = {"clientID": "c2", "consumerGroup": KEY.group}
            await ask(members.second, RequestCode.UNREGISTER_CLIENT, **left)
        else:
            deletes = {"topic": KEY.topic}
            await ask(members.first, RequestCode.DELETE_TOPIC_IN_BROKER, **deletes)

    assert await answered(members, end) == []
    await members.unlock(members.first, "c1")
    assert members.owner() is None


async def test_a_held_request_is_sent_to_the_next_leader(members: Members) -> None:
    """A held request is sent to the next leader as soon as this broker follows."""
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def lock() -> None:
            command = Command(RequestCode.LOCK_BATCH_MQ, {}, _body("c2", HELD_MS))
            answer = await members.second.request(command, HELD_MS / 2000)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE

        await until(lambda: members.held == 1)
        members.broker.broker.following("n2", 2)


@pytest.mark.parametrize("forgets", [False, True])
async def test_a_client_that_is_gone_is_given_no_lock(
    forgets: bool, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A held request of a closed connection is dropped, lest its lock lasts unused."""
    if forgets:
        monkeypatch.setattr(HeldPulls, "disconnected", lambda *_: None)
    async with (
        connect_peer("127.0.0.1", members.broker.port) as third,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(members.lock, third, "c3")
        await until(lambda: members.held == 1)
        nursery.cancel_scope.cancel()
    if not forgets:
        await until(lambda: members.held == 0)
    await members.unlock(members.first, "c1")
    if forgets:
        await until(lambda: members.owner() == "c3")
    else:
        assert await members.lock(members.second, "c2", None) == [0]
