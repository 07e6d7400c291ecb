"""Topics with priorities: a message's queue, and the order in which queues are popped."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

from dledger.net import Peer
from dledger.remoting.attributes import priority_factor
from dledger.remoting.bodies import SubscriptionGroupConfig, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import ExtValue
from dledger.remoting.message import priority_of
from dledger.remoting.record import Record
from mqbroker.testing import served
from mqbroker.testing.requests import (
    GROUP,
    TIMEOUT_S,
    ask,
    pull_request,
    records,
    send_request,
    topic_request,
)

from .test_popping import pop_request

QUEUES = 4
PRIORITY = "_SYS_MSG_PRIORITY_\x01"


@pytest.mark.parametrize(
    ("value", "priority"),
    [
        ("0", 0),
        ("3", 3),
        ("2147483647", 2**31 - 1),
        ("9999999999", 2**31 - 1),
        ("-1", -1),
        ("-7", -1),
        ("+2", 2),
        ("x", -1),
        ("", -1),
        ("1.5", -1),
        ("9" * 5000, -1),
        ("\u0663", -1),
    ],
)
def test_a_priority_is_a_whole_number_from_0(value: str, priority: int) -> None:
    """A priority is a whole number from 0 on; other texts are none."""
    assert priority_of({"_SYS_MSG_PRIORITY_": value}) == priority


@pytest.mark.parametrize(
    ("value", "factor"), [("0", 0), ("40", 40), ("101", 100), ("x", 100), ("", 100)]
)
def test_a_group_may_want_it_for_some_of_its_pops(value: str, factor: int) -> None:
    """A group's factor is the share of its pops that go by priority; by default all do."""
    assert priority_factor({"priority.factor": value}) == factor


async def make(peer: Peer) -> None:
    request = topic_request(queues=QUEUES)
    request.ext["attributes"] = "+message.type=PRIORITY"
    assert (await peer.request(request, TIMEOUT_S)).code == 0


async def send(peer: Peer, properties: str, body: bytes = b"x") -> int:
    answer = await peer.request(send_request(body, i=properties, e="1"), TIMEOUT_S)
    assert answer.code == 0
    return int(str(answer.ext["queueId"]))


async def pop(peer: Peer, count: int, **changed: ExtValue) -> list[Record]:
    answer = await peer.request(pop_request(count=count, **changed), TIMEOUT_S)
    return records(answer) if answer.code == ResponseCode.SUCCESS else []


def bodies(messages: list[Record]) -> list[bytes]:
    return [bytes(each.body) for each in messages]


@pytest.mark.parametrize(
    ("properties", "queue_id"),
    [
        (f"{PRIORITY}0\x02", 0),
        (f"a\x01b\x02{PRIORITY}2\x02", 2),
        (f"{PRIORITY}3\x02", 3),
        (f"{PRIORITY}4\x02", 3),
        (f"{PRIORITY}2147483647\x02", 3),
        (f"{PRIORITY}-1\x02", 1),
        (f"{PRIORITY}high\x02", 1),
        (f"__SHARDINGKEY\x01k\x02{PRIORITY}3\x02", 1),
        ("", 1),
    ],
)
async def test_a_message_goes_to_the_queue_of_its_priority(
    peer: Peer, properties: str, queue_id: int
) -> None:
    """A message goes to the queue of its priority, or the last; others stay where sent."""
    await make(peer)
    assert await send(peer, properties) == queue_id
    (message,) = records(await peer.request(pull_request(queue_id), TIMEOUT_S))
    kept = b"_SYS_MSG_PRIORITY_" in bytes(message.properties)
    assert kept == (queue_id != 1)


async def test_a_delayed_message_has_no_priority(peer: Peer, autojump_clock: MockClock) -> None:
    """A delayed message comes to the queue that it was sent to, as in RocketMQ."""
    await make(peer)
    await send(peer, f"{PRIORITY}3\x02TIMER_DELAY_MS\x01100\x02", b"late")
    answer = await peer.request(pop_request(poll_ms=5000), TIMEOUT_S)
    (message,) = records(answer)
    assert (message.queue_id, bytes(message.body)) == (1, b"late")


async def test_a_pop_takes_of_the_highest_first(peer: Peer, autojump_clock: MockClock) -> None:
    """A pop takes messages of the highest level first, whichever came first."""
    await make(peer)
    for number in range(3):
        for priority in range(QUEUES):
            await send(peer, f"{PRIORITY}{priority}\x02", b"%d%d" % (priority, number))
    assert bodies(await pop(peer, 2)) == [b"30", b"31"]
    assert bodies(await pop(peer, 3)) == [b"32", b"20", b"21"]
    await send(peer, f"{PRIORITY}9\x02", b"3x")
    assert bodies(await pop(peer, 1)) == [b"3x"]


async def test_a_level_with_more_than_fits_keeps_lower_ones_waiting(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A small message of a lower one is not what fills an answer up."""
    await make(peer)
    for number in range(3):
        await send(peer, f"{PRIORITY}3\x02", b"%d" % number * 1000)
    await send(peer, f"{PRIORITY}0\x02", b"low")
    got = [bodies(await pop(peer, 32, maxMsgBytes="2000")) for _ in range(4)]
    assert [[body[:1] for body in some] for some in got] == [[b"0"], [b"1"], [b"2", b"l"], []]


async def test_what_a_filter_finds_late_comes_before_lower_ones(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that a filter finds late comes before lower ones, after any number of looks."""
    monkeypatch.setattr("mqbroker.limits.PULL_UNITS_SCANNED_MAX", 4)
    async with served(tmp_path) as (_, peer):
        await make(peer)
        for number in range(20):
            await send(peer, f"{PRIORITY}3\x02TAGS\x01{'wanted' if number == 9 else 'not'}\x02")
        await send(peer, f"{PRIORITY}0\x02TAGS\x01wanted\x02", b"low")
        got = [bodies(await pop(peer, 1, exp="wanted")) for _ in range(3)]
        assert got == [[b"x"], [b"low"], []]


async def test_what_comes_again_waits_for_a_level_with_more_than_fits(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A message that comes again waits for a level with more than fits, though it is small."""
    await make(peer)
    await send(peer, f"{PRIORITY}3\x02", b"again")
    assert len(await pop(peer, 1)) == 1
    autojump_clock.jump(61)
    for _ in range(2):
        await send(peer, f"{PRIORITY}1\x02", b"n" * 1000)
    got = [bodies(await pop(peer, 32, maxMsgBytes="2000")) for _ in range(2)]
    assert [[body[:1] for body in some] for some in got] == [[b"n"], [b"a", b"n"]]


async def test_what_comes_again_comes_last(peer: Peer, autojump_clock: MockClock) -> None:
    """New messages come before those that come again, so a failing one keeps none away."""
    await make(peer)
    await send(peer, f"{PRIORITY}1\x02", b"low again")
    await send(peer, f"{PRIORITY}3\x02", b"high again")
    assert len(await pop(peer, 2)) == 2
    autojump_clock.jump(61)
    await send(peer, f"{PRIORITY}0\x02", b"new")
    got = [body for _ in range(3) for body in bodies(await pop(peer, 1))]
    assert got == [b"new", b"high again", b"low again"]


async def test_a_group_that_wants_no_priorities_takes_all_queues_in_turn(peer: Peer) -> None:
    """A group with `priority.factor=0`, or in another type of topic, takes turns."""
    await make(peer)
    config = SubscriptionGroupConfig(GROUP, attributes={"+priority.factor": "0"})
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await ask(peer, code, encode_body(config))).code == 0
    wrong = SubscriptionGroupConfig(GROUP, attributes={"+priority.factor": "101"})
    refused = await ask(peer, code, encode_body(wrong))
    assert "a whole number from 0 to 100" in str(refused.remark)
    for priority in range(QUEUES):
        for _ in range(20):
            await send(peer, f"{PRIORITY}{priority}\x02")
    first = {(await pop(peer, 1))[0].queue_id for _ in range(2 * QUEUES)}
    assert len(first) > 1
