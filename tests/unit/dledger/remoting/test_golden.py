"""Requests as stock clients wrote them: tests/data/golden/README.md says how they were captured."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import DledgerError
from dledger.remoting import headers
from dledger.remoting.bodies import HeartbeatData, LockBatchBody, decode_body
from dledger.remoting.codec import decode_frame, encode_frame
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, HeaderEncoding, Language
from dledger.remoting.headers import decode_header
from dledger.remoting.message import batch_decode

GOLDEN = Path(__file__).parents[3] / "data" / "golden"

HEADERS = {
    RequestCode.SEND_MESSAGE: headers.SendMessageHeader,
    RequestCode.SEND_MESSAGE_V2: headers.SendMessageV2Header,
    RequestCode.SEND_BATCH_MESSAGE: headers.SendMessageV2Header,
    RequestCode.PULL_MESSAGE: headers.PullMessageHeader,
    RequestCode.LITE_PULL_MESSAGE: headers.PullMessageHeader,
    RequestCode.QUERY_MESSAGE: headers.QueryMessageHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: headers.QueryConsumerOffsetHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: headers.UpdateConsumerOffsetHeader,
    RequestCode.GET_MAX_OFFSET: headers.GetMaxOffsetHeader,
    RequestCode.UNREGISTER_CLIENT: headers.UnregisterClientHeader,
    RequestCode.CONSUMER_SEND_MSG_BACK: headers.ConsumerSendMsgBackHeader,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: headers.GetConsumerListByGroupHeader,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: headers.GetRouteinfoByTopicHeader,
}
BODIES = {
    RequestCode.HEART_BEAT: HeartbeatData,
    RequestCode.LOCK_BATCH_MQ: LockBatchBody,
    RequestCode.UNLOCK_BATCH_MQ: LockBatchBody,
}
LANGUAGES = {"java": Language.JAVA, "go": Language.GO, "node": Language.JAVA, "cpp": Language.CPP}
"""Languages that the clients name; the one in Node calls itself Java."""


CAPTURED = [
    (path.stem, name, bytes.fromhex(frame))
    for path in sorted(GOLDEN.glob("*.json"))
    for name, frame in json.loads(path.read_text())["frames"].items()
]
FRAMES = [frame for _, _, frame in CAPTURED]


def payload(command: Command) -> memoryview:
    return memoryview(b"".join(encode_frame(command)))[4:]


@pytest.mark.parametrize(
    ("source", "frame"),
    [pytest.param(source, frame, id=f"{source} {name}") for source, name, frame in CAPTURED],
)
def test_what_a_stock_client_wrote_is_read(source: str, frame: bytes) -> None:
    """A stock client's frame, header and body are read, and stay the same when written anew."""
    client, _, encoding = source.partition("-")

    command = decode_frame(memoryview(frame)[4:])

    assert command.encoding == HeaderEncoding[encoding.upper()]
    assert command.language == LANGUAGES[client.rstrip("45")]
    assert not command.is_response
    if command.code in HEADERS:
        decode_header(HEADERS[RequestCode(command.code)], command)
    if command.code in BODIES:
        decode_body(BODIES[RequestCode(command.code)], command.payload)
    if command.code == RequestCode.SEND_BATCH_MESSAGE:
        assert len(list(batch_decode(command.payload))) == 10
    again = decode_frame(payload(command))
    assert (again.code, again.opaque, again.flag) == (command.code, command.opaque, command.flag)
    assert bytes(again.payload) == bytes(command.payload)
    assert {name: text(value) for name, value in again.ext.items()} == {
        name: text(value) for name, value in command.ext.items()
    }


@given(st.sampled_from(FRAMES), st.data())
def test_a_damaged_request_is_read_or_refused_and_nothing_else(
    frame: bytes, data: st.DataObject
) -> None:
    """A damaged request is an error that servers answer, or another request."""
    damaged = bytearray(frame[4 : data.draw(st.integers(5, len(frame)))])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DledgerError):
        command = decode_frame(memoryview(damaged))
        for code, header in HEADERS.items():
            if code == command.code:
                decode_header(header, command)
        for code, body in BODIES.items():
            if code == command.code:
                decode_body(body, command.payload)
        if command.code == RequestCode.SEND_BATCH_MESSAGE:
            list(batch_decode(command.payload))


def text(value: object) -> str:
    """A field as it is written for stock clients, which read strings only."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_binary_header_is_written_as_java_writes_it() -> None:
    """The binary header is written as by Java, byte for byte, fields in their order."""
    frames = json.loads((GOLDEN / "java5-rocketmq.json").read_text())["frames"]

    for frame in map(bytes.fromhex, frames.values()):
        command = decode_frame(memoryview(frame)[4:])
        assert b"".join(encode_frame(command)) == frame


def test_every_kind_of_client_was_captured() -> None:
    """Captures have Java with both header encodings, Go, Node and C++."""
    assert {path.stem for path in GOLDEN.glob("*.json")} == {
        "java4-json",
        "java4-rocketmq",
        "java5-json",
        "java5-rocketmq",
        "go-json",
        "node-json",
        "cpp-json",
    }
