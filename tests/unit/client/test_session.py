"""Routes: which name servers are asked for them, and the error if none has one."""

from __future__ import annotations

import pytest
import trio

from dledger.net import Connection, Handler, serve_remoting
from dledger.remoting.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.json_dialect import MessageQueue
from mqchaos.cluster.processes import free_ports
from mqclient.connection.session import Session
from mqclient.errors import NoRoute


class NameServer(Handler):
    """Answers every request with one code."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __call__(self, request: Command, connection: Connection) -> Command:
        return request.reply(self.code, remark="its words")


class RoutingServer(NameServer):
    """Knows some broker groups with a queue each, and says in how long it will know all."""

    def __init__(self, *groups: str, settles_in_ms: int | None = None) -> None:
        super().__init__(0)
        self.route = TopicRouteData(
            broker_datas=[BrokerData("c", name, {0: f"{name}:1"}) for name in groups],
            queue_datas=[QueueData(name, 1, 1, 6) for name in groups],
            settles_in_ms=settles_in_ms,
        )

    def __call__(self, request: Command, connection: Connection) -> Command:
        return request.reply(body=encode_body(self.route))


@pytest.mark.parametrize("young_first", [True, False])
async def test_a_name_server_that_has_just_begun_is_believed_where_no_other_knows_more(
    young_first: bool,
) -> None:
    """An old one beside it answers at once; alone it is asked again when it knows all."""
    young, old = RoutingServer("a", settles_in_ms=100), RoutingServer("a", "b")
    async with trio.open_nursery() as nursery:
        addresses: list[str] = []
        for server in (young, old) if young_first else (old, young):
            port = await nursery.start(serve_remoting, server, "127.0.0.1", 0)
            addresses.append(f"127.0.0.1:{port}")
        async with Session(";".join(addresses)) as session:
            route = await session.route("T", "publish to")
            assert session.settled("T")
            assert {queue.broker_name for queue in route.writable} == {"a", "b"}
        async with Session(addresses[0 if young_first else 1]) as session:
            route = await session.route("T", "publish to")
            assert not session.settled("T")
            assert {queue.broker_name for queue in route.writable} == {"a"}
            with pytest.raises(NoRoute, match="have just begun"):
                await session.wait_settled("T", 0.01)
            young.route = old.route
            await session.wait_settled("T", 60)
            known = session.routes.route("T")
            assert known is not None
            assert known.writable == (MessageQueue("T", "a", 0), MessageQueue("T", "b", 0))
        nursery.cancel_scope.cancel()


async def no_route(*codes: int) -> str:
    """The error's text with a name server for each code, and one that is absent."""
    async with trio.open_nursery() as nursery:
        addresses = [f"127.0.0.1:{free_ports(1)[0]}"]
        for code in codes:
            port = await nursery.start(serve_remoting, NameServer(code), "127.0.0.1", 0)
            addresses.append(f"127.0.0.1:{port}")
        async with Session(";".join(addresses)) as session:
            with pytest.raises(NoRoute) as failure:
                await session.route("Orders", "publish to")
        nursery.cancel_scope.cancel()
    return str(failure.value).replace(addresses[0], "ABSENT").replace(addresses[-1], "THERE")


async def test_an_absent_name_server_is_not_taken_for_a_missing_topic() -> None:
    """An absent name server's error says to start one, and not to create a topic."""
    said = await no_route()
    assert "no name server answers" in said
    assert "ABSENT" in said
    assert "mqnamesrv" in said
    assert "updateTopic" not in said


async def test_a_server_that_is_no_name_server_is_told_of() -> None:
    """A broker's address in the place of the name server's."""
    said = await no_route(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    assert "no name server answers" in said
    assert "THERE with code 3: its words" in said


async def test_one_name_server_that_does_not_know_the_topic_is_enough_to_say_so() -> None:
    """The other may be down; the topic is what is missing."""
    said = await no_route(ResponseCode.TOPIC_NOT_EXIST)
    assert "name server THERE does not know it. Create the topic" in said
