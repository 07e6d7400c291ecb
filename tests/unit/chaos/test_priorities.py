"""Messages with priorities in a run: their order, the members' pauses, and the notes."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import trio
from trio.testing import MockClock

from mqchaos.history.events import Ack, HistoryWriter, Send
from mqchaos.history.reading import read_history
from mqchaos.limits import NS_PER_S, PRIORITIES, PRIORITY_NAP_S, PRIORITY_ROUND_S
from mqchaos.run.load.noting import popped
from mqchaos.run.load.priorities import nap_s, priority_of
from mqchaos.run.load.producing import PRODUCERS
from mqchaos.run.load.workload import Produce, number_of
from mqclient import Message, PopConsumer
from mqlocal import local_cluster

LEVELS = 8


def test_all_priorities_come_in_turn() -> None:
    """Priorities come in turn, some above the last queue, and never twice the same."""
    found = [priority_of(number) for number in range(10 * PRIORITIES)]
    assert Counter(found) == dict.fromkeys(range(PRIORITIES), 10)
    assert max(found) > LEVELS


def test_members_stand_still_at_the_same_moments() -> None:
    """Members pause together for a part of each round, and are told how long it lasts."""
    for round_s in (0.0, 1000 * PRIORITY_ROUND_S):
        assert nap_s(round_s) == PRIORITY_NAP_S
        assert nap_s(round_s + PRIORITY_NAP_S / 2) == PRIORITY_NAP_S / 2
        assert nap_s(round_s + PRIORITY_NAP_S) == 0
        assert nap_s(round_s + (PRIORITY_NAP_S + PRIORITY_ROUND_S) / 2) == 0


async def test_a_producer_notes_the_priority_and_the_queue(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """A producer notes the wanted priority, and the queue that it came to."""
    lines, path = tmp_path / "lines", tmp_path / "p0.jsonl"
    lines.write_text("one\ntwo\n")
    async with local_cluster(replicas=1) as cluster:
        async with cluster.admin() as admin:
            await admin.topics.update("T", attributes="+message.type=PRIORITY")
        named = ("p0", cluster.namesrv_addr, "T", str(path), str(lines))
        task = Produce(*named, 0, 1, 40, 1000.0, "run", keyed=False, sends="priority")
        with HistoryWriter(path) as history:
            await PRODUCERS[task.sends](task, history).run(trio.Event())

    events = [*read_history(path)]
    sent = {event.id: event.priority for event in events if isinstance(event, Send)}
    acked = {event.id: event.queue_id for event in events if isinstance(event, Ack)}
    assert sent == {each: priority_of(number_of(each)) for each in sent}
    assert acked == {each: min(priority or 0, LEVELS - 1) for each, priority in sent.items()}
    assert len(acked) == 40


async def test_a_pop_was_asked_for_when_the_history_says_or_later() -> None:
    """A pop's noted time is between the moments before and after its poll."""
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        await producer.send(Message("T", b"x"))
        async with PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}) as consumer:
            before = time.monotonic_ns()
            (message,) = await consumer.poll()
            after = time.monotonic_ns()
        noted = popped("c0", "G", message)
    assert noted.asked is not None
    assert before - 10 * NS_PER_S < noted.asked < after < noted.t
