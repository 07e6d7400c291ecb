"""Members of a run that pop: what they do with messages, and what they note."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import trio
from trio.testing import MockClock

from mqchaos.history.events import Deliver, HistoryWriter, Settle
from mqchaos.history.reading import read_history
from mqchaos.run.load.popping import PopWork
from mqchaos.run.load.workload import Consume, fate_of, unique_key
from mqclient import Message
from mqlocal import LocalCluster, local_cluster

COUNT = 100


async def all_done(cluster: LocalCluster) -> None:
    """Wait until the group has passed all messages."""
    async with cluster.admin() as admin:
        passed = 0
        while passed < COUNT:
            await trio.sleep(0.5)
            rows = (await admin.groups.progress("G", "T")).queues
            passed = sum(row.consumer_offset for row in rows)


async def test_each_message_is_done_once_and_the_history_says_by_which_delivery(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """Forgotten and repeated messages come once more, and those given up are dead letters."""
    path, stop = tmp_path / "c0.jsonl", trio.Event()
    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            for number in range(COUNT):
                key = unique_key("run", "p", number)
                await producer.send(Message("T", b"x", unique_key=key), queue_id=0)
        task = Consume("c0", cluster.namesrv_addr, "T", str(path), "G", members=3)
        with HistoryWriter(path) as history:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(PopWork(task, history).run, stop)
                await all_done(cluster)
                stop.set()
        async with cluster.admin() as admin:
            letters = await admin.dead_letters.list("G")

    events = [*read_history(path)]
    settled = {event.id: event for event in events if isinstance(event, Settle)}
    given = Counter(event.id for event in events if isinstance(event, Deliver))
    fates = {unique_key("run", "p", number): fate_of(number, 1) for number in range(COUNT)}
    assert sum(isinstance(event, Settle) for event in events) == len(settled) == COUNT
    assert all(event.counted for event in settled.values())
    assert {each for each, event in settled.items() if event.how == "dead"} == {
        each for each, fate in fates.items() if fate == "dead"
    }
    assert given == {each: 1 + (fate in ("left", "again")) for each, fate in fates.items()}
    seen = set[str]()
    for event in events:
        if isinstance(event, Deliver):
            assert event.pop_time is not None
            assert event.pop_time <= settled[event.id].pop_time
            assert (event.asked is None) == (event.id in seen)
            seen.add(event.id)
    assert len(letters) == sum(fate == "dead" for fate in fates.values()) > 0
    assert len({event.client for event in settled.values()}) > 1
