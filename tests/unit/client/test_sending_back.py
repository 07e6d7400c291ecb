"""Answers of a handler, and policies: wrong ones are refused by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import pytest
from trio.testing import MockClock

from dledger.errors import BadInput
from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.message import host_bytes, properties_decode, properties_encode
from dledger.remoting.record import encode_record
from mqbroker.testing import served, until
from mqbroker.testing.requests import heartbeat, make_topic, pull_request, records
from mqclient import limits
from mqclient.connection.leaders import LeaderFinder
from mqclient.consuming.sending_back import (
    DEAD,
    Delay,
    Nack,
    SendingBack,
    check_on_error,
    check_schedule,
    check_times,
)
from mqclient.errors import Refused
from mqclient.models import ReceivedMessage

NOT_WHOLE = (1.5, "3", None, True)


@pytest.mark.parametrize("level", [-2, limits.DELAY_LEVEL_MAX + 1, *NOT_WHOLE])
def test_a_level_that_no_broker_has_is_refused(level: object) -> None:
    """A level below -1, beyond the last, or no whole number is refused."""
    with pytest.raises(BadInput, match="delay_level="):
        Nack(level)  # type: ignore[arg-type]


def test_each_level_that_a_broker_may_have_is_taken() -> None:
    """Levels are -1 for the dead letters, 0 for the broker's choice, and its own."""
    levels = range(-1, limits.DELAY_LEVEL_MAX + 1)

    assert [Nack(level).delay.level for level in levels] == [*levels]


@pytest.mark.parametrize("delay_s", [-0.1, limits.RETRY_DELAY_S_MAX + 1, math.nan, math.inf, "3"])
def test_a_delay_that_no_broker_takes_is_refused(delay_s: float) -> None:
    """A wrong delay is refused, also in a schedule with its place, and together with a level."""
    with pytest.raises(BadInput, match="delay_s="):
        Nack(delay_s=delay_s)
    with pytest.raises(BadInput, match=r"retry_delays_s\[1\]="):
        check_schedule([1, delay_s])
    with pytest.raises(BadInput, match="one of them"):
        Nack(3, delay_s=1)


def test_seconds_of_any_size_are_taken() -> None:
    """0 is as soon as can be: without a delay the message would not come again at all."""
    assert [Nack(delay_s=each).delay.millis for each in (0, 0.0001, 1, 2.5)] == [1, 1, 1000, 2500]
    assert check_schedule([0.5, limits.RETRY_DELAY_S_MAX]) == (500, 3_456_000_000)
    with pytest.raises(BadInput, match="are above"):
        check_schedule([1] * (limits.RETRY_DELAYS_MAX + 1))


@pytest.mark.parametrize("times", [-1, 2**31, 1.5, "3", True])
def test_a_number_of_tries_that_can_not_be_sent_is_refused(times: object) -> None:
    """A wrong number of tries is refused; without one the group's setting holds."""
    with pytest.raises(BadInput, match="max_reconsume_times="):
        check_times(times)  # type: ignore[arg-type]

    assert [check_times(each) for each in (None, 0, 2**31 - 1)] == [None, 0, 2**31 - 1]


def test_a_word_that_names_no_policy_is_refused() -> None:
    """A policy is one of three; without a group no message can be sent back."""
    with pytest.raises(BadInput, match="'retry', 'suspend' or 'raise'"):
        check_on_error("ignore", "G")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="choose 'suspend' or 'raise'"):
        check_on_error("retry", None)
    assert [check_on_error(None, group) for group in ("G", None)] == ["retry", "suspend"]


class OneBroker:
    """A finder that asks one broker, whoever leads."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.codes: list[int] = []

    async def granted(
        self, what: str, broker_name: str, topic: str, command: Command, timeout_s: float
    ) -> Command:
        """The broker's answer, or Refused as from `LeaderFinder`."""
        self.codes.append(command.code)
        answer = await self.peer.request(command, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(what, "its leader", answer.code, answer.remark)
        return answer


@pytest.mark.parametrize("delay", [Delay(), Delay(millis=50), Delay(level=DEAD)])
async def test_what_retention_took_is_sent_back_whole(
    delay: Delay, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A message that retention removed is sent back whole by its consumer."""
    properties = {"UNIQ_KEY": "k", "filler": "x" * 30_000, "DELAY": "1"}
    raw = memoryview(
        encode_record(
            topic=b"Orders",
            queue_id=0,
            body=b"held by its handler",
            properties=properties_encode(properties),
            flag=7,
            born_timestamp_ms=5,
            born_host=host_bytes("127.0.0.1", 1),
        )
    )
    message = ReceivedMessage(raw, "broker-a")
    taken = message.record
    async with served(tmp_path) as (broker, peer):
        await make_topic(peer)
        await peer.request(Command(RequestCode.HEART_BEAT, {}, heartbeat("c1", "G")), 5)
        finder = OneBroker(peer)
        back = SendingBack("G", cast("LeaderFinder", finder))
        assert await back.send_back(message, delay) is None
        assert finder.codes == [RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2]
        topic = "%DLQ%G" if delay.level == DEAD else "%RETRY%G"
        await until(lambda: broker.machine.queues.end(topic, 0) == 1)
        pull = pull_request(0, topic=topic, consumerGroup="G")
        (copy,) = records(await peer.request(pull, 5))
    assert (bytes(copy.body), copy.flag, copy.reconsume_times) == (bytes(taken.body), 7, 1)
    kept = properties_decode(copy.properties)
    assert (kept["RETRY_TOPIC"], kept["filler"]) == ("Orders", properties["filler"])
    assert kept["ORIGIN_MESSAGE_ID"] == message.offset_message_id
