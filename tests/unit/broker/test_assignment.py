"""QUERY_ASSIGNMENT: consumers ask the broker which queues are theirs, over two broker groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from dledger.net import Connection, Handler, Peer, connect_peer, serve_remoting
from dledger.remoting.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from mqbroker import limits
from mqbroker.config import BrokerConfig
from mqbroker.testing.memory import MemoryBroker, served
from mqbroker.testing.requests import ask, heartbeat, make_topic


class NameServer(Handler):
    """Knows "Orders" in two groups; `asked` counts."""

    def __init__(self) -> None:
        self.asked = 0
        #: The route of the topic "Foreign".
        self.foreign = TopicRouteData()

    def __call__(self, request: Command, connection: Connection) -> Command:
        self.asked += 1
        if request.ext.get("topic") == "Foreign":
            return request.reply(body=encode_body(self.foreign))
        if request.ext.get("topic") != "Orders":
            return request.reply(17, remark="no route")
        data = TopicRouteData(
            queue_datas=[QueueData("b", 2, 3), QueueData("a", 2, 2), QueueData("gone", 8, 8)],
            broker_datas=[BrokerData("c", name, {0: "h:1"}) for name in "ab"],
        )
        return request.reply(body=encode_body(data))


@asynccontextmanager
async def brokers(directory: Path) -> AsyncIterator[tuple[MemoryBroker, Peer, NameServer]]:
    async with trio.open_nursery() as nursery:
        namesrv = NameServer()
        port = await nursery.start(serve_remoting, namesrv, "127.0.0.1", 0)
        config = BrokerConfig(namesrv_addr=f"127.0.0.1:1;127.0.0.1:{port}")
        async with served(directory, config) as (broker, peer):
            yield broker, peer, namesrv
        nursery.cancel_scope.cancel()


async def assigned(
    peer: Peer, client: str, mode: str = "PULL", **changed: str
) -> list[tuple[str, int]] | None:
    """The queues that a client is told of, in the order told; None for "keep what you have"."""
    body = {"topic": "Orders", "consumerGroup": "C", "clientId": client, "strategyName": "AVG"}
    body |= {"messageModel": "CLUSTERING"} | changed
    answer = await ask(peer, RequestCode.QUERY_ASSIGNMENT, msgspec.json.encode(body))
    assert answer.code == 0
    told = msgspec.json.decode(bytes(answer.payload)).get("messageQueueAssignments")
    if told is None:
        return None
    assert all(one["mode"] == mode and one["messageQueue"]["topic"] == "Orders" for one in told)
    return [(one["messageQueue"]["brokerName"], one["messageQueue"]["queueId"]) for one in told]


async def test_members_share_the_queues_of_all_groups(tmp_path: Path) -> None:
    """Members get disjoint queues by the strategy that they name, from a follower, too."""
    async with brokers(tmp_path) as (broker, peer, namesrv):
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        assert await assigned(peer, "c1") == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        async with connect_peer(broker.host, broker.port) as second:
            await ask(second, RequestCode.HEART_BEAT, heartbeat("c2"))
            broker.ledger.follow()
            assert await assigned(peer, "c1") == [("a", 0), ("a", 1)]
            assert await assigned(second, "c2") == [("b", 0), ("b", 1)]
            circle = await assigned(second, "c2", strategyName="AVG_BY_CIRCLE")
            assert circle == [("a", 1), ("b", 1)]
            everything = await assigned(second, "c2", messageModel="BROADCASTING")
            assert everything is not None
            assert len(everything) == 4
        assert namesrv.asked == 1


async def test_half_an_answer_is_none(tmp_path: Path) -> None:
    """A client that is told of no route, no members or no strategy keeps what it has."""
    async with brokers(tmp_path) as (_, peer, _namesrv):
        assert await assigned(peer, "c1") is None
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        assert await assigned(peer, "c1", topic="Nope") is None
        assert await assigned(peer, "c1", strategyName="MACHINE_ROOM") is None
        assert await assigned(peer, "stranger") == []


@pytest.mark.parametrize(
    "told",
    [
        TopicRouteData([BrokerData("c", "a")], [QueueData("a", 2**31 - 1, 1)]),
        TopicRouteData([BrokerData("c", "a")], [QueueData("a", 1, 2**31 - 1)]),
        TopicRouteData([BrokerData("c", "a")], [QueueData("a", -(2**31), 1)]),
        TopicRouteData([BrokerData("c", "a")], [QueueData("a", 65_536, 1), QueueData("a", 1, 1)]),
        TopicRouteData([BrokerData("c", "a")], [QueueData("a", 1, 1)] * 1025),
        TopicRouteData([BrokerData("c", f"b{number}") for number in range(1025)]),
        TopicRouteData([BrokerData("c", "a", dict.fromkeys(range(65), "h:1"))]),
    ],
)
async def test_a_route_that_nobody_can_have_is_no_route(
    tmp_path: Path, told: TopicRouteData
) -> None:
    """A name server passes on what any broker has registered: two thousand million queues."""
    async with brokers(tmp_path) as (_, peer, namesrv):
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1", topic="Foreign"))
        namesrv.foreign = told
        assert await assigned(peer, "c1", topic="Foreign") is None
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        assert await assigned(peer, "c1")


async def test_routes_that_are_kept_have_a_bound_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cached routes have a bound together; any other route is asked for each time."""
    monkeypatch.setattr(limits, "ROUTE_QUEUES_KEPT_MAX", 6)
    async with brokers(tmp_path) as (_, peer, namesrv):
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        namesrv.foreign = TopicRouteData([BrokerData("c", "a")], [QueueData("a", 5, 5)])
        body = {"topic": "Foreign", "consumerGroup": "C", "clientId": "c1", "strategyName": "AVG"}
        for _ in range(2):
            await ask(peer, RequestCode.QUERY_ASSIGNMENT, msgspec.json.encode(body))
        assert namesrv.asked == 1
        for _ in range(2):
            assert await assigned(peer, "c1")
        assert namesrv.asked == 3


async def test_members_that_pop_have_all_queues_or_those_of_the_next_few(tmp_path: Path) -> None:
    """Members that pop get any queue, or with a share number their own and the next ones."""
    async with brokers(tmp_path) as (broker, peer, _), AsyncExitStack() as stack:
        await make_topic(peer, "Orders")
        for number in range(4):
            other = await stack.enter_async_context(connect_peer(broker.host, broker.port))
            await ask(other, RequestCode.HEART_BEAT, heartbeat(f"c{number}"))

        async def put(share: int) -> None:
            body = {"topic": "Orders", "consumerGroup": "C", "mode": "POP"}
            content = msgspec.json.encode(body | {"popShareQueueNum": share})
            assert (await ask(peer, RequestCode.SET_MESSAGE_REQUEST_MODE, content)).code == 0

        for share in (0, 3, 9):
            await put(share)
            assert await assigned(peer, "c1", "POP") == [("a", -1), ("b", -1)]
        await put(1)
        assert await assigned(peer, "c0", "POP") == [("a", 0), ("a", 1)]
        assert await assigned(peer, "c3", "POP") == [("b", 1), ("a", 0)]
        assert await assigned(peer, "nobody", "POP") == []
        other = await stack.enter_async_context(connect_peer(broker.host, broker.port))
        await ask(other, RequestCode.HEART_BEAT, heartbeat("c4"))
        assert await assigned(peer, "c4", "POP") == [("a", 0)]
