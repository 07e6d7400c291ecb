"""Messages encoded by a producer are read by a consumer as they were, and are checked."""

from __future__ import annotations

import zlib

import pytest

from dledger.errors import BadInput, RecordError
from dledger.limits import MESSAGE_BODY_BYTES_MAX
from dledger.remoting.record import encode_record
from mqclient.connection.identity import UniqueKeys
from mqclient.errors import BadMessage
from mqclient.models import Message, ReceivedMessage, SendResult
from mqclient.producing.encoding import Encoder


def encoder() -> Encoder:
    return Encoder(UniqueKeys("10.1.2.3"), "10.1.2.3")


def received(record: bytes) -> ReceivedMessage:
    return ReceivedMessage(memoryview(record), "broker-a")


def test_a_message_comes_back_as_it_went() -> None:
    """A message comes back with all that its sender set, and its unique key."""
    message = Message("T", b"body", keys="a b", tags="X", properties={"p": "ü"}, flag=7)
    unique_key, record = encoder().encode(message, 3)
    back = received(record)
    assert (back.topic, back.body, back.keys, back.tags) == ("T", b"body", "a b", "X")
    assert (back.message_id, back.queue_id, back.flag) == (unique_key, 3, 7)
    assert back.properties["p"] == "ü"


def test_the_callers_unique_key_is_kept() -> None:
    """A key that is set before sending names the message."""
    unique_key, record = encoder().encode(Message("T", b"", unique_key="mine"), 0)
    assert unique_key == "mine" == received(record).message_id


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (Message("T", bytes(MESSAGE_BODY_BYTES_MAX + 1)), str(MESSAGE_BODY_BYTES_MAX)),
        (Message("", b""), "topic"),
        (Message("x" * 128, b""), "1 to 127"),
        (Message("a topic", b""), "'a topic'"),
        (Message("T", "text"), "expected bytes"),  # type: ignore[arg-type]
        (Message("T", b"", keys="a\x01b"), "x01"),
        (Message("T", b"", properties={"p": "x" * 40_000}), "32767"),
        (Message("T", b"", unique_key="a\x02"), "x02"),
    ],
)
def test_what_no_broker_would_store_is_refused_by_name(message: Message, named: str) -> None:
    """A bad message never leaves; the error names the field or the bound."""
    with pytest.raises(BadMessage, match=named) as failure:
        encoder().encode(message, 0)
    assert isinstance(failure.value, BadInput)


def test_unique_keys_are_unique_and_sort_by_age() -> None:
    """32 upper-case hex digits, the address first, growing with every message."""
    keys = UniqueKeys("10.1.2.3")
    keys.refresh(1_700_000_000_000)
    made = [keys.next() for _ in range(3)]
    keys.refresh(1_700_000_000_005)
    made += [keys.next() for _ in range(3)]
    assert sorted(set(made)) == made
    assert all(len(key) == 32 and key.startswith("0A010203") for key in made)


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TRAN_MSG"])
def test_a_delay_or_a_transaction_is_refused_rather_than_ignored(name: str) -> None:
    """A property that means a delay or a transaction is refused by its name."""
    with pytest.raises(BadMessage, match=name):
        encoder().encode(Message("T", b"body", properties={name: "1"}), 0)


def test_a_damaged_body_is_not_handed_out() -> None:
    """A body with one flipped bit raises an error with the message's place."""
    _, record = encoder().encode(Message("T", b"body"), 3)
    at = record.index(b"body")
    damaged = record[:at] + b"bodx" + record[at + 4 :]
    with pytest.raises(RecordError, match="T/broker-a/3"):
        _ = received(damaged).body


def test_compressed_bodies_of_stock_producers_are_inflated() -> None:
    """zlib, as Java's producers compress bodies from 4 KiB on (system flag 0x301)."""
    record = encode_record(
        topic=b"T",
        queue_id=0,
        body=zlib.compress(b"x" * 5000),
        properties=b"",
        sys_flag=0x301,
        born_timestamp_ms=0,
        born_host=bytes(8),
    )
    assert received(record).body == b"x" * 5000


def test_a_result_has_rocketmqs_offset_message_id() -> None:
    """A result has the id that mqadmin's queryMsgById takes: address, port, position in hex."""
    result = SendResult("id", "T", "b", 0, 0, 0xF97, leader="127.0.0.1:10911")
    assert result.offset_message_id == "7F00000100002A9F0000000000000F97"
