"""Rates that an operator sets: which requests pass or wait, and what clients are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from dledger.net import Peer
from dledger.remoting.attributes import Rate, consume_rate, parse_rate, send_rate
from dledger.remoting.bodies import (
    BrokerStatsData,
    SubscriptionGroupConfig,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.slices import drained
from mqbroker.flow import limits
from mqbroker.flow.bucket import Bucket
from mqbroker.state.machine import Machine
from mqbroker.testing import MemoryBroker, served, until
from mqbroker.testing.leading import save
from mqbroker.testing.requests import (
    GROUP,
    TIMEOUT_S,
    TOPIC,
    ask,
    heartbeat,
    produce_request,
    pull_request,
    records,
    send_request,
    topic_request,
)

from .test_popping import pop_request

BUSY = ResponseCode.SYSTEM_BUSY
SUBSCRIPTION_AND_SUSPEND = 4 | 2


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.floats(0, 3, width=32), st.integers(1, 500)), max_size=60),
)
def test_no_more_passes_than_the_rate_allows(per_s: int, steps: list[tuple[float, int]]) -> None:
    """No span of time passes more than the rate's worth, a full bucket and the last batch."""
    now_s = 0.0
    bucket = Bucket(per_s, now_s)
    passed: list[tuple[float, int]] = []
    for pause_s, count in steps:
        now_s += pause_s
        if bucket.wait_s(now_s) == 0.0:
            bucket.take(count, now_s)
            passed.append((now_s, count))
    for first, (begin_s, _) in enumerate(passed):
        for last in range(first, len(passed)):
            end_s, last_count = passed[last]
            total = sum(count for _, count in passed[first : last + 1])
            full = max(1, per_s * limits.FLOW_BURST_S)
            assert total - last_count <= per_s * (end_s - begin_s) + full + 1e-6


@given(
    st.integers(1, 10**12),
    st.integers(0, 10**13),
    st.floats(0, 1e6),
)
def test_who_comes_when_told_finds_room(per_s: int, count: int, at_s: float) -> None:
    """A client that comes back when it was told finds room, and was told the first moment."""
    bucket = Bucket(per_s, at_s)
    bucket.take(count, at_s)
    wait_s = bucket.wait_s(at_s)
    later_s = at_s + wait_s + at_s * 1e-12
    assert bucket.wait_s(later_s) == 0.0
    assert wait_s == 0 or wait_s >= limits.FLOW_WAIT_S_MIN
    assert bucket.room(later_s) >= 1
    if wait_s > 0:
        assert bucket.room(at_s) == 0


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    """A clock that stands still or goes back neither fills nor empties a bucket."""
    bucket = Bucket(10, 5.0)
    bucket.take(10, 5.0)
    assert bucket.room(4.0) == 0
    bucket.take(1, 4.0)
    assert bucket.wait_s(5.0) == pytest.approx(0.2)
    assert bucket.room(5.2 + 1e-9) == 1


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        ("1", 1),
        ("1000000000000", 10**12),
        ("1000000000001", None),
        ("0", None),
        ("-1", None),
        ("+5", None),
        ("1.5", None),
        ("", None),
        (" 5", None),
        ("\u0665", None),
        ("9" * 5000, None),
    ],
)
def test_a_rate_is_a_whole_number_within_bounds(value: str, rate: int | None) -> None:
    """A value beyond the bounds in an entry of the log limits nothing."""
    assert parse_rate(value) == rate
    assert send_rate({"send.rate.bytes": value}) == (Rate(None, rate) if rate else None)
    assert consume_rate({"consume.rate.messages": value}) == (Rate(rate, None) if rate else None)


async def set_send_rate(peer: Peer, altered: str, topic: str = TOPIC) -> Command:
    request = topic_request(topic)
    request.ext["attributes"] = altered
    return await peer.request(request, TIMEOUT_S)


async def set_consume_rate(peer: Peer, altered: dict[str, str]) -> Command:
    body = encode_body(SubscriptionGroupConfig(GROUP, attributes=altered))
    return await ask(peer, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


async def figure(peer: Peer, name: str, key: str) -> int:
    answer = await ask(peer, RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
    return decode_body(BrokerStatsData, answer.payload).stats_minute.sum


async def send(peer: Peer, key: str, topic: str = TOPIC) -> Command:
    return await peer.request(produce_request(key, topic, [(0, 1)]), TIMEOUT_S)


async def test_sends_above_a_topic_s_rate_are_told_when_to_come_again(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """Sends above a topic's rate are refused in RocketMQ's words; repeated sends pass."""
    assert (await set_send_rate(peer, "+send.rate.messages=10")).code == 0
    for number in range(10):
        assert (await send(peer, f"k{number}")).code == 0
    refused = await send(peer, "late")
    assert refused.code == BUSY
    assert refused.remark == (
        "[OVERLOAD]system busy, start flow control for a while: the topic 'Orders' takes 10 "
        "messages/s; come again in 100 ms"
    )
    assert refused.ext["retryAfterMillis"] == "100"
    assert (await peer.request(send_request(b"stock"), TIMEOUT_S)).code == BUSY
    again = await send(peer, "k3")
    assert (again.code, again.ext["duplicate"]) == (0, True)
    assert (await send(peer, "k0", "Other")).code == 0
    assert await figure(peer, "TOPIC_HELD_BACK_TIMES", TOPIC) == 2

    autojump_clock.jump(0.11)
    assert (await send(peer, "late")).code == 0
    assert (await send(peer, "later")).code == BUSY
    await set_send_rate(peer, "-send.rate.messages")
    assert (await send(peer, "later")).code == 0


async def test_a_batch_passes_whole_and_is_paid_off(peer: Peer, autojump_clock: MockClock) -> None:
    """A batch is never split: later sends wait for its messages' or its bytes' worth."""
    await set_send_rate(peer, "+send.rate.messages=10,+send.rate.bytes=1000000")
    batch = produce_request("b", TOPIC, [(0, 30)])
    assert (await peer.request(batch, TIMEOUT_S)).code == 0
    assert (await send(peer, "x")).ext["retryAfterMillis"] == "2100"
    await set_send_rate(peer, "+send.rate.bytes=10")
    assert (await send(peer, "x")).code == 0
    refused = await send(peer, "y")
    assert "10 bytes/s" in str(refused.remark)


async def test_what_is_delayed_or_half_counts_for_its_topic(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """Delayed and half messages count for their topic, though stored elsewhere first."""
    half = "TRAN_MSG\x01true\x02PGROUP\x01P\x02"
    await set_send_rate(peer, "+send.rate.messages=2")
    for properties in ("DELAY\x011\x02", half):
        assert (await peer.request(send_request(i=properties), TIMEOUT_S)).code == 0
    for properties in ("DELAY\x011\x02", half, "TIMER_DELAY_MS\x011000\x02"):
        assert (await peer.request(send_request(i=properties), TIMEOUT_S)).code == BUSY


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "1000000000001", ""])
async def test_what_is_no_rate_is_refused(peer: Peer, value: str) -> None:
    """A value that is not a rate is refused with its bounds."""
    topic = await set_send_rate(peer, f"+send.rate.messages={value}")
    group = await set_consume_rate(peer, {"+consume.rate.bytes": value})
    for answer in (topic, group):
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "from 1 to 1000000000000" in str(answer.remark)
    assert "is not known" in str((await set_send_rate(peer, "+consume.rate.bytes=5")).remark)
    assert "is not known" in str((await set_consume_rate(peer, {"+message.type": "x"})).remark)


async def group_config(peer: Peer) -> SubscriptionGroupConfig:
    answer = await ask(peer, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=GROUP)
    return decode_body(SubscriptionGroupConfig, answer.payload)


async def test_a_group_s_rate_stays_when_other_settings_change(
    broker: MemoryBroker, peer: Peer, tmp_path: Path
) -> None:
    """A group's rate survives a change by 4.9's tools, without attributes, and a snapshot."""
    await set_consume_rate(peer, {"+consume.rate.messages": "7"})
    old = b'{"groupName": "C", "retryMaxTimes": 3}'
    await ask(peer, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, old)
    config = await group_config(peer)
    assert config.retry_max_times == 3
    assert config.attributes == {"consume.rate.messages": "7"}
    save(broker.machine)
    other = Machine(tmp_path)
    assert other.restore() is None
    assert other.groups.get(GROUP) == config
    other.close()
    await set_consume_rate(peer, {"-consume.rate.messages": ""})
    assert (await group_config(peer)).attributes == {}


async def test_a_groups_rate_holds_on_a_replica_that_took_over_a_state(tmp_path: Path) -> None:
    """A group's rate holds on a replica that got the whole state instead of entries."""
    async with served(tmp_path / "first") as (broker, peer):
        await set_consume_rate(peer, {"+consume.rate.messages": "10"})
        index, payload = drained(broker.machine.capture())
    async with served(tmp_path / "second") as (broker, _):
        drained(broker.machine.install(index, payload, 1))
        assert broker.broker.core.flow.grant(GROUP).messages == 10


async def given_messages(peer: Peer, count: int = 100) -> None:
    """Send `count` messages to queue 0, and subscribe as a member."""
    await peer.request(produce_request("m", TOPIC, [(0, count)]), TIMEOUT_S)
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("m"))


async def pull(peer: Peer, offset: int, sys_flag: int = 4, hold_ms: int = 3000) -> Command:
    request = pull_request(0, offset, sys_flag, suspendTimeoutMillis=hold_ms)
    return await peer.request(request, 60)


async def test_a_pull_waits_until_its_group_may_have_more(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A pull above its group's rate waits at the broker, and gets as much as there is room for."""
    await given_messages(peer)
    await set_consume_rate(peer, {"+consume.rate.messages": "10"})
    offset, began_s = 0, autojump_clock.current_time()
    pulls = 0
    while offset < 50:
        answer = await pull(peer, offset, SUBSCRIPTION_AND_SUSPEND)
        assert answer.code == 0
        assert [each.queue_offset for each in records(answer)] == list(
            range(offset, offset + len(records(answer)))
        )
        offset += len(records(answer))
        pulls += 1
    took_s = autojump_clock.current_time() - began_s
    assert (offset - 20) / 10 <= took_s < 6
    assert pulls < 50
    assert await figure(peer, "GROUP_HELD_BACK_TIMES", GROUP) == pulls - 1


async def test_a_pull_that_can_not_wait_is_told_when_to_come_again(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A pull that may not wait, or not long enough, is told when to come again."""
    await given_messages(peer)
    await set_consume_rate(peer, {"+consume.rate.messages": "1"})
    assert len(records(await pull(peer, 0))) == 1
    for flag, hold_ms in ((4, 3000), (SUBSCRIPTION_AND_SUSPEND, 500)):
        refused = await pull(peer, 1, flag, hold_ms)
        assert refused.code == BUSY
        assert "the group 'C' is given 1 messages/s; come again" in str(refused.remark)
        assert 900 <= int(str(refused.ext["retryAfterMillis"])) <= 1000


async def test_a_rate_in_bytes_gives_one_message_at_least(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A rate in bytes gives one message at least, which is paid off before the next."""
    await given_messages(peer, 3)
    await set_consume_rate(peer, {"+consume.rate.bytes": "100"})
    first = await pull(peer, 0)
    assert len(records(first)) == 1
    refused = await pull(peer, 1)
    assert refused.code == BUSY
    autojump_clock.jump(int(str(refused.ext["retryAfterMillis"])) / 1000)
    assert len(records(await pull(peer, 1))) == 1


async def test_who_waits_for_its_turn_hears_of_another_leader(
    broker: MemoryBroker, peer: Peer
) -> None:
    """A waiting pull is answered at once when the lead is lost; a new leader's buckets are full."""
    await given_messages(peer)
    await set_consume_rate(peer, {"+consume.rate.messages": "1"})
    assert (await pull(peer, 0)).code == 0
    answers = await held_pull(broker, peer)
    broker.ledger.follow()
    await until(lambda: bool(answers))
    assert answers[0].code == ResponseCode.SERVICE_NOT_AVAILABLE
    broker.ledger.lead()
    assert (await pull(peer, 1)).code == 0


async def held_pull(broker: MemoryBroker, peer: Peer) -> list[Command]:
    """A pull that the broker holds; its answer comes into the list."""
    answers: list[Command] = []
    request = pull_request(0, 1, SUBSCRIPTION_AND_SUSPEND, suspendTimeoutMillis=20_000)
    peer.request_nowait(request, lambda answer: answers.append(_command(answer)))
    await until(lambda: len(broker.broker._held) == 1)
    return answers


def _command(answer: object) -> Command:
    assert isinstance(answer, Command)
    return answer


async def test_a_pop_waits_until_its_group_may_have_more(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A pop above its group's rate waits; one that may not wait is told when to come again."""
    await given_messages(peer)
    await set_consume_rate(peer, {"+consume.rate.messages": "10"})
    began_s, got = autojump_clock.current_time(), 0
    while got < 40:
        answer = await peer.request(pop_request(poll_ms=15_000), 60)
        assert answer.code == 0
        got += len(records(answer))
    assert (got - 20) / 10 <= autojump_clock.current_time() - began_s < 5
    refused = await peer.request(pop_request(), 60)
    assert refused.code == BUSY
    assert int(str(refused.ext["retryAfterMillis"])) > 0
