"""Searches for a group's leader, shared by all who need it, and their number."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from dledger.errors import RemotingError
from dledger.net import Connection, Handler, serve_remoting
from dledger.remoting.bodies import BrokerData, TopicRouteData
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.json_dialect import MessageQueue
from mqbroker.refusal import busy
from mqclient import NoLeader, RangeReader
from mqclient import limits as client_limits
from mqclient.admin.session import SessionClient
from mqclient.bulk.deciding import BatchDecider
from mqclient.connection.leaders import LeaderFinder
from mqclient.connection.peers import PeerPool
from mqclient.connection.routing import RouteTable


def members(*addresses: str) -> TopicRouteData:
    """A group's route as a name server gives it."""
    return TopicRouteData([BrokerData("c", "broker-a", dict(enumerate(addresses)))])


async def test_a_leader_that_is_lost_before_the_search_returns_is_searched_for_again() -> None:
    """A search goes on if the leader's connection breaks meanwhile, and its callers wait."""
    routes, searches = RouteTable(), 0

    async def search(self: LeaderFinder, broker_name: str, topic: str | None) -> None:
        nonlocal searches
        searches += 1
        await trio.lowlevel.checkpoint()
        routes.learn_members(members(f"127.0.0.1:{searches}"))
        routes.learn_leader(broker_name, f"127.0.0.1:{searches}", searches)
        if searches < 3:
            routes.suspect(broker_name, f"127.0.0.1:{searches}")

    async with PeerPool() as pool:
        finder = LeaderFinder(pool, routes, ())
        with patch.object(LeaderFinder, "_search", search), trio.fail_after(5):
            assert await finder.find("broker-a") == "127.0.0.1:3"


class Busy(Handler):
    """A leader that is busy for its first `refusals` answers."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked = 0

    def __call__(self, request: Command, connection: Connection) -> Command:
        self.asked += 1
        if self.asked > self.refusals:
            return request.reply()
        refused = busy("a queue is full")
        return request.reply(refused.code, refused.ext, remark=str(refused))


@pytest.mark.usefixtures("virtual_world")
@pytest.mark.parametrize(("refusals", "code"), [(2, 0), (1000, 14)])
async def test_a_busy_leader_is_asked_again_until_the_deadline(refusals: int, code: int) -> None:
    """A busy leader is asked again until the deadline; its last answer is the caller's."""
    leader, routes = Busy(refusals), RouteTable()
    async with trio.open_nursery() as nursery, PeerPool() as pool:
        port = await nursery.start(serve_remoting, leader, "127.0.0.1", 0)
        routes.learn_members(members(f"127.0.0.1:{port}"))
        finder = LeaderFinder(pool, routes, ())
        answer = await finder.ask("broker-a", Command(RequestCode.UPDATE_CONSUMER_OFFSET), 0.3)
        assert answer.code == code
        assert leader.asked > 2
        nursery.cancel_scope.cancel()


PATIENCE_S = 10.0


@pytest.mark.parametrize("error", [NoLeader("", (), 0.0), RemotingError("refused")])
async def test_each_refused_try_is_followed_by_a_pause(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A refused try is followed by a pause, until the client's patience ends with the error."""
    asked = 0

    async def refuse(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise error

    monkeypatch.setattr(LeaderFinder, "ask", refuse)
    clients: list[tuple[SessionClient, Any]] = [
        (decider := BatchDecider("127.0.0.1:1", patience_s=PATIENCE_S),
         lambda: decider._decision("q", "broker-a")),
        (reader := RangeReader("127.0.0.1:1", patience_s=PATIENCE_S),
         lambda: reader.read(MessageQueue("T", "broker-a", 0), 0, 1)),
    ]  # fmt: skip
    for client, ask in clients:
        asked = 0
        async with client:
            begun_s = trio.current_time()
            with pytest.raises(type(error)):
                await ask()
        assert trio.current_time() - begun_s == pytest.approx(PATIENCE_S, abs=1)
        assert 10 < asked < 2 * PATIENCE_S / client_limits.FIND_BACKOFF_MAX_S
