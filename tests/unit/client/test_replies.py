"""Replies: their requests, and replies that nobody waits for."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from dledger.remoting.bodies import HeartbeatData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    PushReplyMessageToClientHeader,
    SendMessageV2Header,
    decode_header,
    encode_header,
)
from dledger.remoting.message import host_bytes, properties_decode, properties_encode
from dledger.remoting.record import encode_record
from mqclient import Message, Producer
from mqclient.connection.session import Session
from mqclient.errors import BadMessage, ClientClosed
from mqclient.models import ReceivedMessage
from mqclient.producing.replies import Questions, reply_request
from mqlocal import local_cluster

ASKED = {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "asker", "TTL": "3000", "CLUSTER": "Blue"}


def received(properties: dict[str, str]) -> ReceivedMessage:
    record = encode_record(
        topic=b"T",
        queue_id=0,
        body=b"a question",
        properties=properties_encode(properties),
        born_timestamp_ms=1,
        born_host=host_bytes("127.0.0.1", 1),
    )
    return ReceivedMessage(memoryview(record), "broker-a")


def test_a_reply_names_who_asked_and_which_question() -> None:
    """A reply goes to the reply topic of the asker's cluster, made as by RocketMQ's MessageUtil."""
    to = received(ASKED | {"KEYS": "k"})
    command = reply_request(to, b"an answer", {"mood": "good"}, group="G", now_ms=5)
    assert (command.code, command.payload) == (RequestCode.SEND_REPLY_MESSAGE_V2, b"an answer")
    header = decode_header(SendMessageV2Header, command).to_v1()
    assert (header.topic, header.producer_group) == ("Blue_REPLY_TOPIC", "G")
    assert properties_decode((header.properties or "").encode()) == {
        "mood": "good",
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c1",
        "REPLY_TO_CLIENT": "asker",
        "TTL": "3000",
    }


@pytest.mark.parametrize("lacking", ["CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_only_requests_can_be_replied_to(lacking: str) -> None:
    """An ordinary message says neither who asks nor what."""
    properties = {name: value for name, value in ASKED.items() if name != lacking}
    with pytest.raises(BadMessage, match="asks for no reply"):
        reply_request(received(properties), b"", {}, group="G", now_ms=5)


def test_a_reply_that_comes_too_late_is_taken_and_dropped() -> None:
    """The broker must not think that the client is gone; what else it asks is not answered here."""
    heartbeat = HeartbeatData("asker", [], [])
    questions = Questions(Session("127.0.0.1:9876"), "G", lambda: heartbeat)
    header = PushReplyMessageToClientHeader(
        producer_group="G",
        topic="Blue_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        store_timestamp=2,
        properties="CORRELATION_ID\x01late\x02",
    )
    push = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, encode_header(header), b"an answer")
    answer = questions.take(push)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert questions.take(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)) is None


async def test_who_waits_for_a_reply_hears_of_the_end(autojump_clock: MockClock) -> None:
    """A request ends with its producer, since no reply can come any more."""

    async def ask(producer: Producer) -> None:
        with pytest.raises(ClientClosed, match="closed before the reply came"):
            await producer.request(Message("T", b"?"), timeout_s=900)

    async with local_cluster(replicas=1) as cluster, trio.open_nursery() as nursery:
        async with cluster.producer("P") as producer:
            await producer.prepare("T")
            nursery.start_soon(ask, producer)
            await trio.sleep(1)
        nursery.cancel_scope.deadline = trio.current_time() + 1
    assert not nursery.cancel_scope.cancelled_caught
