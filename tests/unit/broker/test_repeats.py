"""Messages that are delivered again and again: when, how often, and by whom."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from dledger.net import Peer
from dledger.remoting import message as names
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.record import Record
from mqbroker import limits
from mqbroker.leader.waiting.repeats import (
    Budget,
    Repeat,
    again,
    check_repeat,
    delivered,
    repeat_of,
)
from mqbroker.refusal import Refused
from mqbroker.testing import MemoryBroker, served, until
from mqbroker.testing.requests import (
    TIMEOUT_S,
    ask,
    pull_request,
    records,
    send_request,
    topic_request,
)

NOW_MS = 1_790_000_000_000


@given(
    st.integers(limits.REPEAT_EVERY_MS_MIN, limits.REPEAT_EVERY_MS_MAX),
    st.integers(0, NOW_MS),
    st.integers(-(10**9), 10**12),
)
def test_the_next_time_is_the_first_after_now(every_ms: int, due_ms: int, late_ms: int) -> None:
    """The next time is the first whole period after now: lateness shifts nothing."""
    now_ms = due_ms + late_ms
    next_ms = Repeat(every_ms, None).next_ms(due_ms, now_ms)
    assert (next_ms - due_ms) % every_ms == 0
    assert next_ms > max(now_ms, due_ms)
    assert next_ms - every_ms <= max(now_ms, due_ms)


@pytest.mark.parametrize(
    ("every", "left", "repeat"),
    [
        ("1000", None, Repeat(1000, None)),
        ("60000", "3", Repeat(60_000, 3)),
        ("3456000000", "1000000", Repeat(3_456_000_000, 1_000_000)),
        ("999", None, None),
        ("3456000001", None, None),
        ("1000", "0", None),
        ("1000", "1000001", None),
        ("1000", "-1", None),
        ("1000", "x", None),
        ("1e3", None, None),
        ("-1000", None, None),
        ("9" * 5000, None, None),
        ("", "3", None),
    ],
)
def test_a_period_and_a_count_are_within_bounds(
    every: str, left: str | None, repeat: Repeat | None
) -> None:
    """A message repeats with a period and a count within bounds, and else not at all."""
    properties = {names.REPEAT_EVERY_MS: every}
    assert repeat_of(properties | ({} if left is None else {names.REPEATS_LEFT: left})) == repeat


def test_it_ends_after_so_many_times_or_with_its_own_time() -> None:
    """A repeated message counts down to its end, or ends with its own time."""
    waits = {
        names.REPEAT_EVERY_MS: "1000",
        names.REPEATS_LEFT: "3",
        names.TIMER_OUT_MS: "5000",
        "x": "y",
    }
    second = again(waits, 5001)
    assert second == waits | {names.REPEATS_LEFT: "2", names.TIMER_OUT_MS: "6000"}
    third = again(second, 9999)
    assert third == waits | {names.REPEATS_LEFT: "1", names.TIMER_OUT_MS: "10000"}
    assert again(third, 10_000) is None
    until_then = waits | {names.EXPIRES_AT_MS: "6000"}
    assert again(until_then, 5000) is None
    assert again(until_then | {names.EXPIRES_AT_MS: "6001"}, 5000) is not None
    assert again({names.TIMER_OUT_MS: "5000"}, 5000) is None
    assert again({names.REPEAT_EVERY_MS: "1000"}, 5000) is None


@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.integers(1, 1 << 20), st.integers(0, 2000))))
def test_repeats_keep_to_their_budget(work: list[tuple[str, int, int]]) -> None:
    """A topic's repeats pay from its share: one in debt comes later."""
    budget, now_ms, free_ms = Budget(), 0, dict[str, int]()
    for topic, size, pause_ms in work:
        now_ms += pause_ms
        budget.settle(now_ms)
        owed = max(free_ms.get(topic, 0), now_ms)
        free_ms[topic] = budget.charge(topic, size, now_ms)
        cost = size + limits.REPEAT_COST_BYTES
        least = cost * 1000 // limits.REPEATED_BYTES_PER_S_TOPIC_MAX
        most = cost * 1000 * len("ABCD") // limits.REPEATED_BYTES_PER_S_MAX + 2
        assert least - 1 <= free_ms[topic] - owed <= max(most, least + 2)
    budget.settle(max([0, *free_ms.values()]) + 1)
    assert len(budget) == 0


@pytest.mark.parametrize(("count", "size"), [(40, 100_000), (400, 10)])
async def test_repeats_beyond_the_budget_come_later_and_none_is_lost(
    tmp_path: Path, autojump_clock: MockClock, count: int, size: int
) -> None:
    """Each goes on for ever at the rate that there is room for; a topic that asks for little
    notices nothing, and what was put off is counted."""
    async with served(tmp_path, clock_ms=virtual_ms) as (broker, peer):
        for topic in ("Orders", "Quiet"):
            await ask(peer, RequestCode.UPDATE_AND_CREATE_TOPIC, **topic_request(topic).ext)
        every = "REPEAT_EVERY_MS\x011000\x02TIMER_DELAY_MS\x01500\x02"
        for number in range(count):
            properties = f"{every}UNIQ_KEY\x01key{number}\x02"
            await peer.request(send_request(b"x" * size, i=properties, e="0"), TIMEOUT_S)
        quiet = send_request(b"tick", b="Quiet", i=every + "UNIQ_KEY\x01quiet\x02", e="0")
        await peer.request(quiet, TIMEOUT_S)
        began = broker.machine.queues.end("Orders", 0)
        ticks = broker.machine.queues.end("Quiet", 0)
        await trio.sleep(8)
        passed = broker.machine.queues.end("Orders", 0) - began
        budget = 8 * limits.REPEATED_BYTES_PER_S_TOPIC_MAX / (size + limits.REPEAT_COST_BYTES)
        assert 0.5 * budget < passed - count < 1.5 * budget
        assert broker.machine.queues.end("Quiet", 0) - ticks in (7, 8, 9)
        assert len(broker.machine.timers) == count + 1
        assert broker.broker.core.rates.repeats_put_off.total > 0


def virtual_ms() -> int:
    """The time of the test's clock."""
    return NOW_MS + int(trio.current_time() * 1000)


def test_a_copy_is_a_message_of_its_own() -> None:
    """A delivered copy has its own key and names the original; sent back, it does not repeat."""
    waits = {names.REPEAT_EVERY_MS: "1000", names.REPEATS_LEFT: "3", names.UNIQ_KEY: "A", "x": "y"}
    copy = delivered(waits, "B")
    assert copy == {names.UNIQ_KEY: "B", names.REPEAT_OF: "A", "x": "y"}


async def send(peer: Peer, properties: str, body: bytes = b"tick") -> tuple[int, str]:
    answer = await peer.request(send_request(body, i=properties, e="0"), TIMEOUT_S)
    return answer.code, str(answer.ext.get("recallHandle") or answer.remark)


async def arrived(peer: Peer) -> list[Record]:
    answer = await peer.request(pull_request(0), TIMEOUT_S)
    return records(answer) if answer.code == ResponseCode.SUCCESS else []


@pytest.mark.parametrize(
    ("properties", "body", "said"),
    [
        ("REPEAT_EVERY_MS\x01999\x02TIMER_DELAY_MS\x015\x02", b"x", "the period is 1000 to"),
        ("REPEAT_EVERY_MS\x01x\x02TIMER_DELAY_MS\x015\x02", b"x", "the period is"),
        ("REPEATS_LEFT\x015\x02TIMER_DELAY_MS\x015\x02", b"x", "the period is"),
        ("REPEAT_EVERY_MS\x011000\x02", b"x", "only a message with a timer"),
        ("REPEAT_EVERY_MS\x011000\x02DELAY\x011\x02", b"x", "only a message with a timer"),
        ("REPEAT_CRON\x0161 * * * *\x02", b"x", "field 1, minute: 61 is not within 0 and 59"),
        ("REPEAT_CRON\x010 0 30 2 *\x02", b"x", "never comes"),
        ("REPEAT_CRON\x01@daily\x02REPEAT_ZONE\x01Mars/Olympus\x02", b"x", "no time zone"),
        ("REPEAT_CRON\x01@daily\x02REPEAT_EVERY_MS\x011000\x02", b"x", "not both"),
        ("REPEAT_ZONE\x01UTC\x02TIMER_DELAY_MS\x015\x02", b"x", "is for a cron expression"),
        ("REPEAT_CRON\x01@daily\x02REPEATS_LEFT\x010\x02", b"x", "a count is 1 to"),
        ("REPEAT_CRON\x01@daily\x02DELAY\x011\x02", b"x", "only a message with a timer"),
        (
            "REPEAT_CRON\x01@daily\x02TRAN_MSG\x01true\x02PGROUP\x01P\x02",
            b"x",
            "only a message with a timer",
        ),
        (
            "REPEAT_EVERY_MS\x011000\x02TRAN_MSG\x01true\x02PGROUP\x01P\x02",
            b"x",
            "only a message with a timer",
        ),
        ("REPEAT_EVERY_MS\x011000\x02TIMER_DELAY_MS\x015\x02", b"x" * (1 << 20) + b"x", "its body"),
        (
            "REPEAT_EVERY_MS\x011000\x02TIMER_DELAY_MS\x015\x02y\x01" + "z" * 9000 + "\x02",
            b"x",
            "its properties are longer",
        ),
    ],
)
async def test_what_can_not_be_repeated_is_refused(
    broker: MemoryBroker, peer: Peer, properties: str, body: bytes, said: str
) -> None:
    """A message that can't be repeated is refused with the reason, before it is stored."""
    code, reason = await send(peer, properties, body)
    assert code == ResponseCode.MESSAGE_ILLEGAL
    assert said in reason
    assert len(broker.machine.timers) == 0


async def test_each_time_is_delivered_once_whoever_leads(tmp_path: Path) -> None:
    """A repetition is delivered once, in one entry with its next wait; missed times are not."""
    now_ms = NOW_MS
    async with served(tmp_path, clock_ms=lambda: now_ms) as (broker, peer):
        timer = f"TIMER_DELIVER_MS\x01{NOW_MS + 5000}\x02REPEAT_EVERY_MS\x0160000\x02"
        code, handle = await send(peer, timer + "UNIQ_KEY\x01A\x02KEYS\x01k\x02")
        assert code == 0
        for count, before_ms, at_ms in (
            (1, 4999, 5000),
            (2, 64_999, 65_000),
            (3, 124_999, 605_001),  # nine more were missed
            (4, 664_999, 665_000),
        ):
            now_ms = NOW_MS + before_ms
            broker.ledger.follow()
            broker.ledger.lead()
            assert len(await arrived(peer)) == count - 1
            now_ms = NOW_MS + at_ms
            await until(partial(_has, broker, count))
            assert len(broker.machine.timers) == 1
        found = [names.properties_decode(each.properties) for each in await arrived(peer)]
        assert [each[names.REPEAT_OF] for each in found] == ["A"] * 4
        assert len({each[names.UNIQ_KEY] for each in found}) == 4
        assert not any(names.REPEAT_EVERY_MS in each for each in found)
        assert [int(each[names.TIMER_OUT_MS]) - NOW_MS for each in found] == [
            *(5000, 65_000, 125_000, 665_000),
        ]
        taken = await ask(peer, RequestCode.RECALL_MESSAGE, topic="Orders", recallHandle=handle)
        assert taken.code == 0
        assert len(broker.machine.timers) == 0


def _has(broker: MemoryBroker, count: int) -> bool:
    queue = broker.machine.queues.get("Orders", 0)
    return queue is not None and queue.end == count


async def test_nothing_waits_after_the_last_time_or_for_a_topic_that_is_gone(
    tmp_path: Path,
) -> None:
    """A message stops waiting after its last delivery, or when its topic is deleted."""
    now_ms = NOW_MS
    async with served(tmp_path, clock_ms=lambda: now_ms) as (broker, peer):
        await send(
            peer, "TIMER_DELAY_MS\x011000\x02REPEAT_EVERY_MS\x011000\x02REPEATS_LEFT\x012\x02"
        )
        for count in (1, 2):
            now_ms += 1000
            await until(partial(_has, broker, count))
        assert len(broker.machine.timers) == 0
        await send(peer, "TIMER_DELAY_MS\x011000\x02REPEAT_EVERY_MS\x011000\x02")
        await ask(peer, RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
        now_ms += 1000
        await until(lambda: len(broker.machine.timers) == 0)
        assert broker.machine.aside.count == 0


NINE_IN_BERLIN: list[int] = [
    int(datetime.fromisoformat(each).timestamp() * 1000)
    for each in (
        *("2026-10-23T09:00:00+02:00", "2026-10-26T09:00:00+01:00", "2026-10-27T09:00:00+01:00"),
    )
]


async def test_it_comes_by_the_calendar_whoever_leads(tmp_path: Path) -> None:
    """A message comes at nine on workdays in Berlin, over a change of clocks and leaders."""
    friday, monday, tuesday = NINE_IN_BERLIN
    now_ms = friday - 1000
    async with served(tmp_path, clock_ms=lambda: now_ms) as (broker, peer):
        cron = "REPEAT_CRON\x010 9 * * MON-FRI\x02REPEAT_ZONE\x01Europe/Berlin\x02"
        code, _ = await send(peer, cron + "REPEATS_LEFT\x013\x02UNIQ_KEY\x01A\x02")
        assert code == 0
        assert broker.machine.timers.next_ms() == friday
        for count, at_ms, then_ms in (
            (1, friday, monday),
            (2, monday + 50_000_000, tuesday),
            (3, tuesday, None),
        ):
            broker.ledger.follow()
            broker.ledger.lead()
            assert len(await arrived(peer)) == count - 1
            now_ms = at_ms
            await until(partial(_has, broker, count))
            assert broker.machine.timers.next_ms() == then_ms
        found = [names.properties_decode(each.properties) for each in await arrived(peer)]
        assert [int(each[names.TIMER_OUT_MS]) for each in found] == NINE_IN_BERLIN
        assert [each[names.REPEAT_OF] for each in found] == ["A"] * 3
        assert len({each[names.UNIQ_KEY] for each in found}) == 3
        assert not any(names.REPEAT_CRON in each or names.REPEAT_ZONE in each for each in found)


def test_the_calendar_begins_when_the_message_may_be_delivered() -> None:
    """The first delivery is the calendar's first moment after now and the timer."""
    daily = repeat_of({names.REPEAT_CRON: "@daily"})
    assert daily is not None
    day = 86_400_000
    midnight = NOW_MS - NOW_MS % day + day
    assert daily.first_ms(0, NOW_MS) == midnight
    assert daily.first_ms(midnight, NOW_MS) == midnight
    assert daily.first_ms(midnight + 1, NOW_MS) == midnight + day
    assert daily.next_ms(midnight, midnight + 1) == midnight + day
    assert daily.next_ms(midnight, midnight + 5 * day + 1) == midnight + 6 * day


def test_a_leader_that_lacks_the_zone_goes_on_by_utc() -> None:
    """A leader without the time zone's data goes on by UTC, so that the message is not lost."""
    waits = {names.REPEAT_CRON: "0 9 * * *", names.REPEAT_ZONE: "Not/Here"}
    later = again(waits | {names.TIMER_OUT_MS: str(NOW_MS)}, NOW_MS)
    assert later is not None
    assert datetime.fromtimestamp(int(later[names.TIMER_OUT_MS]) / 1000, UTC).hour == 9


async def test_a_message_that_only_speaks_of_repeats_is_delivered_as_it_is(tmp_path: Path) -> None:
    """A property value that speaks of repeats means nothing."""
    now_ms = NOW_MS
    async with served(tmp_path, clock_ms=lambda: now_ms) as (broker, peer):
        told = "y\x01REPEAT_CRON and REPEAT_EVERY_MS\x02TIMER_DELAY_MS\x015\x02UNIQ_KEY\x01A\x02"
        assert (await send(peer, told))[0] == 0
        now_ms += 5
        await until(partial(_has, broker, 1))
        (found,) = await arrived(peer)
        assert names.properties_decode(found.properties)[names.UNIQ_KEY] == "A"
        assert len(broker.machine.timers) == 0


def test_a_refusal_says_what_was_asked_for() -> None:
    """A refusal names the properties that were asked for."""
    with pytest.raises(Refused, match="REPEAT_EVERY_MS='5'"):
        check_repeat({names.REPEAT_EVERY_MS: "5"}, 1, timed=True)
