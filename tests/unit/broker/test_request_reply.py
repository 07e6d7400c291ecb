"""Replies to requests: their way to the asker, their content, and the replier's answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import HeartbeatData, ProducerData, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.headers import (
    PushReplyMessageToClientHeader,
    SendMessageHeader,
    SendMessageResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.message import properties_decode
from mqbroker.testing import memory_broker
from mqbroker.testing.requests import ask, heartbeat, send_request

REPLY = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asker\x02TTL\x013000\x02MSG_TYPE\x01reply\x02"
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def reply_request(**changed: ExtValue) -> Command:
    """SEND_REPLY_MESSAGE_V2 to the client "asker"."""
    wanted: dict[str, ExtValue] = {"b": REPLY_TOPIC, "e": "0", "i": REPLY}
    return send_request(b"an answer", RequestCode.SEND_REPLY_MESSAGE_V2, **wanted | changed)


@asynccontextmanager
async def scene(
    directory: Path, answer: Callable[[Command], Command | None]
) -> AsyncIterator[tuple[Peer, Peer]]:
    """(asker, replier): two clients of a broker; the asker has sent a heartbeat."""
    async with (
        memory_broker(directory) as broker,
        connect_peer("127.0.0.1", broker.port, on_request=answer) as asker,
        connect_peer("127.0.0.1", broker.port) as replier,
    ):
        body = encode_body(HeartbeatData("asker", [ProducerData("P")], []))
        beat = Command(RequestCode.HEART_BEAT, {}, body, encoding=HeaderEncoding.JSON)
        await asker.request(beat, 5)
        yield asker, replier


async def test_a_reply_is_pushed_to_the_client_that_asked(tmp_path: Path) -> None:
    """A reply is pushed with its body, properties and time; after that the replier is answered."""
    pushed: list[Command] = []

    def take(request: Command) -> Command:
        pushed.append(request)
        return request.reply()

    async with scene(tmp_path, take) as (_, replier):
        answer = await replier.request(reply_request(f="1"), 5)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert decode_header(SendMessageResponseHeader, answer).queue_id == 0
    (push,) = pushed
    assert push.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    assert (bytes(push.payload), push.encoding) == (b"an answer", HeaderEncoding.JSON)
    header = decode_header(PushReplyMessageToClientHeader, push)
    assert (header.topic, header.sys_flag, header.born_timestamp) == (REPLY_TOPIC, 1, 5)
    assert header.born_host.startswith("127.0.0.1:")
    properties = properties_decode((header.properties or "").encode())
    assert properties.pop("PUSH_REPLY_TIME") == str(header.store_timestamp)
    assert properties == properties_decode(REPLY.encode())


async def test_the_long_names_mean_the_same(tmp_path: Path) -> None:
    """SEND_REPLY_MESSAGE with long names, as of the Go client, is the same."""
    async with scene(tmp_path, Command.reply) as (_, replier):
        header = SendMessageHeader("P", REPLY_TOPIC, "TBW102", 4, 0, 0, 5, 0, REPLY)
        sent = await ask(
            replier, RequestCode.SEND_REPLY_MESSAGE, b"an answer", **encode_header(header)
        )
        assert sent.code == ResponseCode.SUCCESS, sent.remark


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"i": REPLY.replace("asker", "other")}, ResponseCode.SYSTEM_ERROR, "not connected"),
        ({"i": ""}, ResponseCode.MESSAGE_ILLEGAL, "REPLY_TO_CLIENT"),
        ({"i": "REPLY_TO_CLIENT\x01asker"}, ResponseCode.MESSAGE_ILLEGAL, "CORRELATION_ID"),
    ],
)
async def test_a_reply_that_nobody_waits_for_is_refused(
    tmp_path: Path, changed: dict[str, ExtValue], code: int, words: str
) -> None:
    """A reply that nobody waits for is refused; the code says if another broker may help."""
    async with scene(tmp_path, Command.reply) as (_, replier):
        answer = await replier.request(reply_request(**changed), 5)
        assert answer.code == code
        assert words in (answer.remark or "")


async def test_the_replier_hears_that_the_client_declined(tmp_path: Path) -> None:
    """A replier is told the client's words if the client declines the push."""
    async with scene(tmp_path, lambda push: push.reply(3, remark="what?")) as (_, replier):
        answer = await replier.request(reply_request(), 5)
        assert (answer.code, "what?" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def until_nobody_waits(replier: Peer) -> None:
    """Send replies until one finds nobody: a broken connection is noticed a moment later."""
    with trio.fail_after(5):
        while True:
            answer = await replier.request(reply_request(), 5)
            if "not connected" in (answer.remark or ""):
                return


async def test_a_client_that_is_gone_gets_nothing(tmp_path: Path) -> None:
    """A client whose connection is closed gets no replies, however new its last heartbeat."""
    async with scene(tmp_path, Command.reply) as (asker, replier):
        asker.close()
        await until_nobody_waits(replier)


async def test_a_new_connection_of_a_client_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    """The end of the old one does not take it away; its own end does."""
    async with scene(tmp_path, lambda push: push.reply(1, remark="old")) as (asker, replier):
        host, _, port = asker.address.rpartition(":")
        async with connect_peer(host, int(port), on_request=Command.reply) as again:
            await ask(again, RequestCode.HEART_BEAT, heartbeat("asker"))
            asker.close()
            for _ in range(10):
                answer = await replier.request(reply_request(), 5)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
        await until_nobody_waits(replier)
