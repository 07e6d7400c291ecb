"""Routes: who is asked for them, and what is said if nobody has one."""

from __future__ import annotations

import pytest
import trio

from dledger.net import Connection, serve_remoting
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from mqchaos.cluster.processes import free_ports
from mqclient.connection.session import Session
from mqclient.errors import NoRoute


class NameServer:
    """Answers every request with one code."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __call__(self, request: Command, connection: Connection) -> Command:
        return request.reply(self.code, remark="its words")

    def connected(self, connection: Connection) -> None:
        """Nothing to do."""

    def disconnected(self, connection: Connection) -> None:
        """Nothing to do."""


async def no_route(*codes: int) -> str:
    """What is said with a name server for each code, and one that is not there."""
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
    """Who reads it starts a name server, and creates no topic."""
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
