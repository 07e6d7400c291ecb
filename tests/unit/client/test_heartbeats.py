"""Heartbeats tell every broker of a client, and repeat what a broker may not know."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from dledger.net import Connection, peer, serve_remoting
from dledger.remoting.bodies import (
    BrokerData,
    HeartbeatData,
    ProducerData,
    TopicRouteData,
    decode_body,
)
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from mqclient import limits
from mqclient.connection.heartbeats import Heartbeats
from mqclient.connection.peers import PeerPool
from mqclient.connection.routing import RouteTable

LOOKS = 5


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks come fast, and none is due because time has passed."""
    monkeypatch.setattr(limits, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(limits, "HEARTBEAT_REPEAT_S", 3600.0)


class Broker:
    """Takes heartbeats, or declines them all."""

    def __init__(self, *, declines: bool = False) -> None:
        self.heard: list[HeartbeatData] = []
        self.connections: list[Connection] = []
        self._declines = declines
        self._more = trio.Event()

    def __call__(self, request: Command, connection: Connection) -> Command:
        self.heard.append(decode_body(HeartbeatData, request.payload))
        self._more.set()
        self._more = trio.Event()
        return request.reply(ResponseCode.SYSTEM_ERROR if self._declines else 0)

    def connected(self, connection: Connection) -> None:
        self.connections.append(connection)

    def disconnected(self, connection: Connection) -> None:
        """Do nothing when a client leaves."""

    async def heard_of(self, count: int) -> None:
        """Wait until `count` heartbeats have come."""
        with trio.fail_after(10):
            while len(self.heard) < count:
                await self._more.wait()


@asynccontextmanager
async def telling(
    heartbeat: Callable[[], HeartbeatData], *brokers: Broker
) -> AsyncIterator[Heartbeats]:
    """A client that keeps telling these members of one group."""
    async with trio.open_nursery() as nursery, PeerPool() as pool:
        ports = [await nursery.start(serve_remoting, broker, "127.0.0.1", 0) for broker in brokers]
        addresses = {number: f"127.0.0.1:{port}" for number, port in enumerate(ports)}
        routes = RouteTable()
        routes.learn_members(TopicRouteData([BrokerData("c", "g", addresses)], []))
        heartbeats = Heartbeats(pool, routes)
        nursery.start_soon(heartbeats.keep_telling, heartbeat)
        yield heartbeats
        nursery.cancel_scope.cancel()


def said(*groups: str) -> HeartbeatData:
    return HeartbeatData("me", [ProducerData(group) for group in groups])


async def test_a_broker_that_took_a_heartbeat_is_not_told_again_each_second() -> None:
    """An idle client costs it nothing; one that declined is asked at every look."""
    took, declined = Broker(), Broker(declines=True)
    async with telling(lambda: said("P"), took, declined):
        await declined.heard_of(LOOKS)
        assert took.heard == [said("P")]


async def test_it_is_told_again_when_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker is told again before it takes the client for gone."""
    monkeypatch.setattr(limits, "HEARTBEAT_REPEAT_S", 0.0)
    broker = Broker()
    async with telling(lambda: said("P"), broker):
        await broker.heard_of(LOOKS)


async def test_a_new_connection_is_told_at_the_next_look() -> None:
    """A broker forgets its members when their connections end."""
    broker = Broker()
    async with telling(lambda: said("P"), broker):
        for count in range(1, LOOKS):
            await broker.heard_of(count)
            assert len(broker.connections) == count
            broker.connections[-1].close("the test ends it")
        await broker.heard_of(LOOKS)


async def test_a_heartbeat_that_has_changed_is_told_at_the_next_look() -> None:
    """A consumer by pattern subscribes to more as topics are made."""
    broker, now = Broker(), said("P")
    async with telling(lambda: now, broker):
        await broker.heard_of(1)
        now = said("P", "Q")
        await broker.heard_of(2)
        assert broker.heard[-1] == now


async def test_a_connection_with_too_much_under_way_is_told_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full connection makes its heartbeat later, and ends nothing else of the client."""
    broker = Broker()
    with monkeypatch.context() as full:
        full.setattr(peer, "REQUESTS_IN_FLIGHT_PER_PEER_MAX", 0)
        async with telling(lambda: said("P"), broker) as heartbeats:
            assert await heartbeats.tell(said("P")) == []
            assert broker.heard == []
            full.undo()
            await broker.heard_of(1)


async def test_what_is_told_at_once_goes_to_all() -> None:
    """A heartbeat at once goes to all brokers; one that declines it is named."""
    took, declined = Broker(), Broker(declines=True)
    async with telling(lambda: said("P"), took, declined) as heartbeats:
        await declined.heard_of(LOOKS)
        answers = await heartbeats.tell(said("P"))
        assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR]
        assert len(took.heard) == 2
