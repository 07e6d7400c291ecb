"""Operators see messages that wait for their time, on a cluster in the test."""

from __future__ import annotations

import json
import re

import pytest
from trio.testing import MockClock

from dledger.errors import BadInput
from mqclient import Message
from mqclient.commands.mqadmin import main
from mqclient.producing.waiting.delays import (
    delay_properties,
    expiry_properties,
)
from mqclient.user_properties import check_properties
from mqlocal import local_cluster, local_cluster_in_thread

NOW_MS = 1_790_000_000_000


async def test_the_next_delayed_messages_are_listed(autojump_clock: MockClock) -> None:
    """Waiting messages of timers and levels are listed from all groups, the earliest first."""
    async with (
        local_cluster(replicas=1, groups=2) as cluster,
        cluster.producer("P") as producer,
        cluster.consumer("C", {"T": "*"}) as consumer,
        cluster.admin() as admin,
    ):
        await admin.topics.update("T", read_queues=2, write_queues=2)
        now_ms = int(cluster.now().timestamp() * 1000)
        unneeded = await producer.send(Message("T", b"unneeded", delay_s=5))
        await producer.send(Message("T", b"in a month", delay_s=30 * 86_400))
        for number in range(4):
            await producer.send(Message("T", b"%d" % number, delay_s=100 - number))
        await producer.send(Message("T", b"level", delay_level=4))
        await producer.send(Message("T", b"soon", delay_s=1))
        await producer.recall(unneeded)
        assert [message.body for message in await consumer.poll(timeout_s=60)] == [b"soon"]

        found = await admin.messages.scheduled()
        assert [each.text for each in found] == ["level", "3", "2", "1", "0", "in a month"]
        waits_s = [(each.due_ms - now_ms) / 1000 for each in found]
        assert waits_s == pytest.approx([30, 97, 98, 99, 100, 30 * 86_400], abs=1)
        assert {each.to_topic for each in found} == {"T"}
        assert {each.broker_name for each in found} == {"broker-a", "broker-b"}
        later = await admin.messages.scheduled(begin_ms=now_ms + 98_500, count=2)
        assert [each.text for each in later] == ["1", "0"]


async def test_a_new_leader_shows_them(autojump_clock: MockClock) -> None:
    """The leader of the moment lists them."""
    async with (
        local_cluster() as cluster,
        cluster.producer("P") as producer,
        cluster.admin() as admin,
    ):
        await producer.send(Message("T", b"later", delay_s=100))
        await cluster.kill()

        assert [each.text for each in await admin.messages.scheduled()] == ["later"]
        assert await admin.messages.scheduled(begin_ms=2**62) == ()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Standard output of a command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_mqadmin_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    """listScheduled prints a table, or JSON for programs."""
    with local_cluster_in_thread(replicas=1) as cluster, cluster.producer("P") as producer:
        producer.send(Message("T", b"in an hour", delay_s=3600, keys="k"))
        shown = run(capsys, "listScheduled", "-n", cluster.namesrv_addr)
        printed = run(capsys, "listScheduled", "-n", cluster.namesrv_addr, "-o", "json")
        (told,) = json.loads(printed)["result"]

    assert "1 delayed message" in shown
    assert "in an hour" in shown
    assert (told["to_topic"], told["keys"]) == ("T", "k")
    assert told["due_ms"] - told["store_timestamp_ms"] == pytest.approx(3_600_000, abs=1000)


def test_mqadmin_tells_how_they_come_again(capsys: pytest.CaptureFixture[str]) -> None:
    """listScheduled tells a message's period, or its calendar with the zone."""
    with local_cluster_in_thread(replicas=1) as cluster, cluster.producer("P") as producer:
        nine, zone = "0 9 * * MON-FRI", "Europe/Berlin"
        producer.send(Message("T", b"by date", repeat_cron=nine, repeat_zone=zone, repeats=3))
        producer.send(Message("T", b"by period", repeat_s=3600))
        capsys.readouterr()  # what servers have said
        shown = run(capsys, "listScheduled", "-n", cluster.namesrv_addr, "-o", "json")
        told = {each["text"]: each["repeats"] for each in json.loads(shown)["result"]}

    assert told == {"by date": "0 9 * * MON-FRI Europe/Berlin, 3 left", "by period": "every 3600 s"}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (Message("T", b"", repeat_cron="* * * *"), "has 4 fields"),
        (Message("T", b"", repeat_cron="0 25 * * *"), "field 2, hour: 25"),
        (Message("T", b"", repeat_cron="@daily", repeat_zone="Nowhere"), "no time zone"),
        (Message("T", b"", repeat_cron="@daily", repeat_s=5), "set one"),
        (Message("T", b"", repeat_cron="@daily", delay_level=1), "with delay_level"),
        (Message("T", b"", repeat_cron="@daily", repeats=0), "repeats=0"),
        (Message("T", b"", repeat_cron="0 0 1 1 *", ttl_s=60), "is over before"),
    ],
)
def test_a_wrong_calendar_is_refused_before_anything_is_sent(message: Message, said: str) -> None:
    """A wrong calendar is refused with the field's name before anything is sent."""
    with pytest.raises(BadInput, match=re.escape(said)):
        properties_of(message)


def properties_of(message: Message) -> dict[str, str]:
    """Properties that say when a message is due, and when it expires."""
    return delay_properties(message) | expiry_properties(message, NOW_MS)


def test_a_property_of_the_calendar_has_its_own_field() -> None:
    """A property of the calendar is refused with the name of its field."""
    with pytest.raises(BadInput, match="set the message's repeat_cron"):
        check_properties({"REPEAT_CRON": "@daily"})
