"""Connected clients: their running info, and points in time, as Admin reads them."""

from __future__ import annotations

from datetime import datetime

import pytest

from dledger.errors import BadInput, ConfigError
from mqclient.admin.clients import running_info
from mqclient.admin.results import END
from mqclient.commands.terminal.times import parse_time


def test_a_stock_consumers_running_info_becomes_plain() -> None:
    """A map that is keyed by queues, which is not JSON, gets "topic/broker/queue" as keys."""
    stock = (
        b'{"mqTable":{{"brokerName":"b","queueId":3,"topic":"T"}:{"commitOffset":7,"locked":false}},'
        b'"properties":{"PROP_CLIENT_VERSION":"V4_9_8"},"statusTable":{},"subscriptionSet":[]}'
    )
    assert running_info(stock) == {
        "mqTable": {"T/b/3": {"commitOffset": 7, "locked": False}},
        "properties": {"PROP_CLIENT_VERSION": "V4_9_8"},
        "statusTable": {},
        "subscriptionSet": [],
    }


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"'])
def test_running_info_that_is_none_is_refused(body: bytes) -> None:
    """Running info comes from a client through a broker that does not check it."""
    with pytest.raises(BadInput):
        running_info(body)


def test_a_time_is_given_as_in_rocketmq_or_as_iso_8601() -> None:
    """A time is given as in RocketMQ or ISO 8601, and is local unless it has a zone."""
    local_ms = round(datetime(2026, 7, 1, 12, 30).astimezone().timestamp() * 1000)
    for text in (
        "2026-07-01#12:30:00:000",
        "2026-07-01#12:30:00",
        "2026-07-01T12:30",
        "2026-07-01 12:30",
    ):
        assert parse_time(text) == local_ms
    assert parse_time("1970-01-01T00:00:01+00:00") == 1000
    assert parse_time("1700000000123") == 1_700_000_000_123
    assert [parse_time(text) for text in ("now", "-1")] == [END, END]


@pytest.mark.parametrize("text", ["", "yesterday", "-2", "12:30", "2026-13-01T00:00"])
def test_a_time_that_is_not_understood_is_refused(text: str) -> None:
    """A wrong time is refused, because an offset reset can't be taken back."""
    with pytest.raises(ConfigError, match="not understood"):
        parse_time(text)
