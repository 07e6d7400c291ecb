"""Delays as fields of a message: the broker's properties, and combinations that are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from math import inf, nan

import pytest

from mqclient.connection.identity import UniqueKeys
from mqclient.errors import BadMessage
from mqclient.models import Message, ReceivedMessage
from mqclient.producing.encoding import PREPARED, Encoder
from mqclient.producing.waiting.delays import delay_properties


@pytest.mark.parametrize(
    ("message", "properties"),
    [
        (Message("T", b""), {}),
        (Message("T", b"", delay_level=3), {"DELAY": "3"}),
        (Message("T", b"", delay_level=64), {"DELAY": "64"}),
        (Message("T", b"", delay_s=90), {"TIMER_DELAY_MS": "90000"}),
        (Message("T", b"", delay_s=0.0011), {"TIMER_DELAY_MS": "2"}),
        (
            Message("T", b"", deliver_at=datetime(2026, 11, 21, 8, tzinfo=UTC)),
            {"TIMER_DELIVER_MS": "1795248000000"},
        ),
        (
            Message(
                "T", b"", deliver_at=datetime(2026, 11, 21, 9, tzinfo=timezone(timedelta(hours=1)))
            ),
            {"TIMER_DELIVER_MS": "1795248000000"},
        ),
    ],
)
def test_each_field_is_a_property_of_rocketmqs(
    message: Message, properties: dict[str, str]
) -> None:
    """A delay's field is RocketMQ's property, rounded up to the millisecond."""
    assert delay_properties(message) == properties


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (Message("T", b"", delay_level=3, delay_s=5), "one of them"),
        (Message("T", b"", delay_s=1, deliver_at=datetime.now(UTC)), "one of them"),
        (Message("T", b"", delay_level=-1), "delay_level=-1"),
        (Message("T", b"", delay_level=65), "delay_level=65"),
        (Message("T", b"", delay_level=99), "more than 64; for seconds there is delay_s"),
        (Message("T", b"", delay_s=-1), "delay_s=-1"),
        (Message("T", b"", delay_s=inf), "delay_s=inf"),
        (Message("T", b"", delay_s=nan), "delay_s=nan"),
        (Message("T", b"", deliver_at=datetime(2026, 11, 21)), "no time zone"),
        (Message("T", b"", properties={"DELAY": "3"}), "delay_level"),
        (Message("T", b"", properties={"TIMER_DELAY_SEC": "3"}), "delay_s"),
        (Message("T", b"", properties={"TRAN_MSG": "true"}), "Producer.transaction"),
        (Message("T", b"", properties={"KEYS": "k"}), "the message's keys"),
        (Message("T", b"", properties={"TAGS": "t"}), "the message's tags"),
        (Message("T", b"", properties={"UNIQ_KEY": "u"}), "the message's unique_key"),
        (Message("T", b"", properties={"REAL_TOPIC": "T"}), "brokers act upon it"),
        (Message("T", b"", properties={"WAIT": "false"}), "brokers act upon it"),
    ],
)
def test_what_can_not_be_meant_never_leaves(message: Message, named: str) -> None:
    """A delay that makes no sense is refused with the name of its field."""
    with pytest.raises(BadMessage, match=named):
        Encoder(UniqueKeys("10.1.2.3"), "10.1.2.3").encode(message, 0)


def test_a_half_message_names_its_producer_group() -> None:
    """A half message has its producer group and can't be delayed: its commit decides."""
    encoder = Encoder(UniqueKeys("10.1.2.3"), "10.1.2.3")
    _, record = encoder.encode(Message("T", b"", keys="k"), 0, "PG")
    half = ReceivedMessage(memoryview(record), "b")
    assert half.properties.items() >= {"TRAN_MSG": "true", "PGROUP": "PG", "KEYS": "k"}.items()
    assert half.record.sys_flag == PREPARED
    with pytest.raises(BadMessage, match="can't be delayed"):
        encoder.encode(Message("T", b"", delay_level=1), 0, "PG")
