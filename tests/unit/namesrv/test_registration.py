"""REGISTER_BROKER requests in each form that brokers send."""

from __future__ import annotations

import json
import struct
import zlib

import pytest
from msgspec import structs

from dledger.errors import BadInput
from dledger.remoting.bodies import DataVersion, TopicConfig
from dledger.remoting.headers import RegisterBrokerHeader
from dledger.slices import drained
from mqnamesrv import limits
from mqnamesrv.routing.groups import Registration
from mqnamesrv.routing.registration import expiry_s, read_registration

TOPIC_A = TopicConfig(topic_name="TopicA", read_queue_nums=4, write_queue_nums=3, perm=6)
#: Captured from a stock 4.9.8 broker, shortened to one topic.
STOCK_JSON = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":2,'
    b'"timestamp":1700000000000},"topicConfigTable":{"TopicA":{"order":false,"perm":6,'
    b'"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"TopicA","topicSysFlag":0,'
    b'"writeQueueNums":3}}}}'
)


def header(**changes: int | bool) -> RegisterBrokerHeader:
    return RegisterBrokerHeader(
        broker_name="broker-a",
        broker_addr="127.0.0.1:10911",
        cluster_name="DefaultCluster",
        ha_server_addr="127.0.0.1:10912",
        broker_id=0,
        **changes,  # type: ignore[arg-type]
    )


def decode_registration(header: RegisterBrokerHeader, body: bytes) -> Registration:
    return drained(read_registration(header, body))


def piece(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def compressed(*topics: bytes) -> bytes:
    version = json.dumps({"counter": 2, "stateVersion": 1, "timestamp": 5}).encode()
    texts = b"".join(map(piece, topics))
    return zlib.compress(piece(version) + struct.pack(">i", len(topics)) + texts + piece(b"[]"))


def test_a_stock_brokers_json_body_is_read() -> None:
    """Data version and topics come from the body, everything else from the header."""
    read = decode_registration(header(), STOCK_JSON)
    assert (read.cluster, read.broker_name, read.broker_id, read.address, read.ha_address) == (
        "DefaultCluster",
        "broker-a",
        0,
        "127.0.0.1:10911",
        "127.0.0.1:10912",
    )
    assert read.topics == {"TopicA": TOPIC_A}
    assert read.data_version == DataVersion(counter=2, timestamp=1700000000000)
    assert read.term is None
    assert read.expiry_s == limits.BROKER_EXPIRY_S


def test_our_brokers_say_their_term_and_how_long_they_may_be_silent() -> None:
    """Our brokers' headers have their term and their longest silence."""
    read = decode_registration(header(term=7, heartbeat_timeout_millis=3000), b"")
    assert (read.term, read.expiry_s, read.topics) == (7, 3.0, {})


def test_the_silence_that_a_broker_may_ask_for_is_bounded() -> None:
    """A wrong or extreme silence is replaced by one within bounds."""
    asked = [None, 0, -5, 10, 10**12]
    assert [expiry_s(millis) for millis in asked] == [120.0, 120.0, 120.0, 1.0, 3600.0]


def test_a_compressed_body_is_read() -> None:
    """The binary form of RocketMQ's option compressedRegister, with 5.x's attributes or without."""
    body = compressed(b"TopicA 4 3 6 SINGLE_TAG", b'TopicB 1 1 6 SINGLE_TAG {"+a":"b"}')
    read = decode_registration(header(compressed=True), body)
    assert read.topics["TopicA"] == TOPIC_A
    assert read.topics.keys() == {"TopicA", "TopicB"}
    assert read.data_version == DataVersion(counter=2, state_version=1, timestamp=5)


def test_the_body_checksum_is_checked_where_there_is_one() -> None:
    """Zero means unchecked; otherwise it is the CRC-32 without its top bit."""
    crc = zlib.crc32(STOCK_JSON) & 0x7FFFFFFF
    decode_registration(header(body_crc32=0), STOCK_JSON)
    decode_registration(header(body_crc32=crc), STOCK_JSON)
    with pytest.raises(BadInput, match=f"bodyCrc32 is {crc + 1}"):
        decode_registration(header(body_crc32=crc + 1), STOCK_JSON)


@pytest.mark.parametrize(
    "body",
    [
        b"no zlib",
        zlib.compress(b""),
        zlib.compress(piece(b"{}") + struct.pack(">i", -1)),
        zlib.compress(piece(b"{}") + struct.pack(">i", 2**31 - 1)),
        zlib.compress(struct.pack(">i", 2**31 - 1)),
        zlib.compress(struct.pack(">i", -4)),
        compressed(b"TopicA 4"),
        compressed(b"TopicA four 3 6 SINGLE_TAG"),
        compressed(b"\xff 4 3 6 SINGLE_TAG"),
    ],
)
def test_a_malformed_compressed_body_is_refused(body: bytes) -> None:
    """Lengths and counts that lie are noticed before anything is built from them."""
    with pytest.raises(BadInput):
        decode_registration(header(compressed=True), body)


def test_a_body_that_inflates_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes can't make the name server hold gigabytes."""
    monkeypatch.setattr(limits, "REGISTRATION_BYTES_MAX", 1000)
    with pytest.raises(BadInput, match="above 1000 bytes"):
        decode_registration(header(compressed=True), zlib.compress(bytes(1_000_000)))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"readQueueNums": count} for count in (-1, 65_537, (1 << 31) - 1)),
        *({"writeQueueNums": count} for count in (-(1 << 31), 65_537)),
        *({"perm": perm} for perm in (-1, 16, 1 << 30)),
    ],
)
def test_a_topic_whose_numbers_can_not_be_is_left_out(wrong: dict[str, int]) -> None:
    """A topic with impossible numbers is left out: clients would make that many queues."""
    body = json.loads(STOCK_JSON)
    table = body["topicConfigSerializeWrapper"]["topicConfigTable"]
    table["Wrong"] = table["TopicA"] | wrong | {"topicName": "Wrong"}
    read = decode_registration(header(), json.dumps(body).encode())
    assert read.topics == {"TopicA": TOPIC_A}
    assert read.left_out == ("Wrong",)


@pytest.mark.parametrize("name", ["", "x" * 513, "a\0b", "a\nb", "\x1b[2J"])
def test_a_topic_whose_name_can_not_be_is_left_out(name: str) -> None:
    """A topic with an impossible name is left out, and the broker's other topics are taken."""
    body = json.loads(STOCK_JSON)
    table = body["topicConfigSerializeWrapper"]["topicConfigTable"]
    table[name] = table["TopicA"]
    assert decode_registration(header(), json.dumps(body).encode()).left_out == (name,)
    texts = [f"{each} 4 3 6 SINGLE_TAG".encode() for each in (name, "TopicA")]
    read = decode_registration(header(compressed=True), compressed(*texts))
    assert [*read.topics] == ["TopicA"]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"broker_addr": text} for text in ("", "x", "a\0b:1", "h:0", "h:65536", "127.1:80")),
        *({"ha_server_addr": text} for text in ("x", "a b:1")),
        *({"broker_name": text} for text in ("", "x" * 256, "a\n")),
        *({"cluster_name": text} for text in ("", "x" * 256, "\x1b")),
    ],
)
def test_a_broker_whose_names_and_addresses_can_not_be_is_refused(wrong: dict[str, str]) -> None:
    """A broker with impossible names or addresses is refused, as nobody could connect to it."""
    with pytest.raises(BadInput):
        decode_registration(structs.replace(header(), **wrong), STOCK_JSON)
