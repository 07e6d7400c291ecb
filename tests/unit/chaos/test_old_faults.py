"""Faults that clients and brokers once had: each mend is undone, and the harness finds it.

A rule that nothing breaks proves nothing, so each workload of ordinary life has its faults here.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from dledger.remoting.allocation import queues_of
from dledger.remoting.bodies import TopicRouteData
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.names import PERM_WRITE
from mqbroker.leader.offset_commits import OffsetCommits
from mqbroker.state.groups.offsets import ConsumerOffsets
from mqchaos.history.events import Act, GroupOffset, HistoryWriter, Reset
from mqchaos.history.reading import read_history
from mqchaos.run.load.producing import FewWork
from mqchaos.run.load.work import ConsumerWork
from mqchaos.run.load.workload import Beginning, Consume, Produce
from mqchaos.run.ordinary.administered import (
    administered,
    against_administering,
    against_moving,
    keys_in,
)
from mqchaos.run.ordinary.given import against_skipping, given
from mqclient import Admin
from mqclient.connection import routing
from mqclient.consuming.assignment import Assignment
from mqlocal import LocalCluster, local_cluster

KEYS = 64


def produce(
    cluster: LocalCluster, folder: Path, client: str, messages: int, rate_per_s: float = 500.0
) -> Produce:
    lines = folder / "lines"
    lines.write_text("\n".join(f"line {number}" for number in range(KEYS)))
    where = (client, cluster.namesrv_addr, "T", str(folder / f"{client}.jsonl"))
    return Produce(*where, str(lines), 0, 1, messages, rate_per_s, "run", send_timeout_s=60.0)


def queues_that_are_there(topic: str, data: TopicRouteData, *_: object) -> tuple[MessageQueue, ...]:
    """The queues of a topic as producers took them once."""
    return queues_of(topic, data, PERM_WRITE)


async def send_all(task: Produce) -> None:
    with HistoryWriter(Path(task.history)) as history:
        await FewWork(task, history).run(trio.Event())


@pytest.mark.parametrize("undone", [False, True])
async def test_keys_that_leave_a_group_that_is_away_are_named(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, undone: bool
) -> None:
    """Keys that leave a group that is away are found, as when producers knew only the others."""
    if undone:
        monkeypatch.setattr(routing, "_every_queue", queues_that_are_there)
    async with local_cluster(groups=2, replicas=1) as cluster, trio.open_nursery() as nursery:
        async with cluster.admin() as admin:
            await admin.topics.update("T", read_queues=2, write_queues=2)
        await send_all(produce(cluster, tmp_path, "p0", KEYS))
        await cluster.kill("broker-b-n0")
        nursery.start_soon(send_all, produce(cluster, tmp_path, "p1", KEYS))
        await trio.sleep(3)
        await cluster.restart("broker-b-n0")
    assert bool(against_moving(keys_in(read_history(tmp_path)))) == undone


async def note_group(admin: Admin, history: HistoryWriter) -> None:
    """Note the group's offsets, as the observer does of a real cluster."""
    for row in (await admin.groups.progress("G", "T")).queues:
        now = time.monotonic_ns()
        place = (row.broker_name, "n0", "G", "T", row.queue_id)
        history.write(GroupOffset(now, now, *place, row.consumer_offset))


@pytest.mark.parametrize("undone", [False, True])
async def test_a_reset_that_a_running_member_does_not_follow_is_named(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, undone: bool
) -> None:
    """A member that ignores a reset, and commits its own place again, is found."""
    if undone:
        monkeypatch.setattr(Assignment, "reset", lambda self, offsets: None)
    path = tmp_path / "c.jsonl"
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=2, write_queues=2)
        await send_all(produce(cluster, tmp_path, "p0", KEYS))
        task, stop = Consume("c", cluster.namesrv_addr, "T", str(path), "G"), trio.Event()
        with HistoryWriter(path) as history, HistoryWriter(tmp_path / "h.jsonl") as tool:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ConsumerWork(task, history).run, stop)
                await trio.sleep(5)
                await note_group(admin, tool)
                began = time.monotonic_ns()
                for row in await admin.groups.reset_offset("G", "T", 0):
                    place = (row.topic, row.broker_name, row.queue_id, row.offset)
                    tool.write(Reset(time.monotonic_ns(), began, "tool", "G", *place))
                await trio.sleep(5)
                stop.set()
    found = administered(lambda: read_history(tmp_path), "G", 0.0)
    assert found.back == 2
    assert bool(against_administering(found)) == undone


async def read_a_while(
    cluster: LocalCluster, folder: Path, client: str, beginning: Beginning = "first"
) -> None:
    """Be a member of the group, and leave it in order."""
    path, stop = folder / f"{client}.jsonl", trio.Event()
    task = Consume(client, cluster.namesrv_addr, "T", str(path), "G", beginning=beginning)
    with HistoryWriter(path) as history:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ConsumerWork(task, history).run, stop)
            await trio.sleep(5)
            stop.set()


@pytest.mark.parametrize("undone", [False, True])
async def test_messages_below_a_position_of_an_earlier_life_are_named(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, undone: bool
) -> None:
    """A group's position ends with the topic's life; once it was kept, and messages skipped."""
    if undone:
        monkeypatch.setattr(ConsumerOffsets, "delete_topic", lambda self, topic: None)
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=2, write_queues=2)
        await send_all(produce(cluster, tmp_path, "p0", KEYS))
        await read_a_while(cluster, tmp_path, "c0")
        began = time.monotonic_ns()
        await admin.topics.delete("T")
        with HistoryWriter(tmp_path / "h.jsonl") as tool:
            now = time.monotonic_ns()
            tool.write(Act(now, began, "tool", "delete-topic", "broker-a", "T", done=True))
        await admin.topics.update("T", read_queues=2, write_queues=2)
        await send_all(produce(cluster, tmp_path, "p1", KEYS))
        await read_a_while(cluster, tmp_path, "c1")
    found = administered(lambda: read_history(tmp_path), "G", 0.0)
    assert found.acknowledged == KEYS
    assert bool(against_administering(found)) == undone


@pytest.mark.parametrize("undone", [False, True])
async def test_messages_of_a_queue_that_is_younger_than_its_group_are_named(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, undone: bool
) -> None:
    """A group that begins at the end reads it from its first message; once it began behind them."""
    if undone:
        monkeypatch.setattr(OffsetCommits, "place", lambda self, key: self.latest(key))
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=2, write_queues=2)
        await read_a_while(cluster, tmp_path, "c0", "last")
        await admin.topics.update("T", read_queues=3, write_queues=3)
        await send_all(produce(cluster, tmp_path, "p0", KEYS))
        await read_a_while(cluster, tmp_path, "c1", "last")
    found = given(read_history(tmp_path), "G", 2)
    assert found.acknowledged
    assert bool(against_skipping(found)) == undone
