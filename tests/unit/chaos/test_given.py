"""The harness's judgement of the messages that a group got in ordinary life, with its excuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mqchaos.history.events import Ack, Deliver, Event, Fault, HistoryWriter, Rebalance
from mqchaos.history.reading import read_history
from mqchaos.limits import AWAY_ROUND_S, NS_PER_S, READING_S
from mqchaos.run.load.priorities import stay_s
from mqchaos.run.load.work import HandlingWork
from mqchaos.run.load.workload import Consume
from mqchaos.run.ordinary.given import (
    against_deploying,
    against_sharing,
    against_skipping,
    given,
    shared,
)
from mqclient import Message
from mqlocal import local_cluster

WAIT_S = 5.0


def ack(offset: int, queue: int = 0, at_s: float = 0, *, waiting: bool = False) -> Ack:
    t = int(at_s * NS_PER_S)
    return Ack(t, "p", f"{queue}-{offset}", "T", "a", queue, offset, 0, waiting)


def deliver(
    offset: int, queue: int = 0, at_s: float = 1, client: str = "c", group: str = "G"
) -> Deliver:
    t = int(at_s * NS_PER_S)
    return Deliver(t, client, group, "T", "a", queue, offset, f"{queue}-{offset}", 0)


def deploying(events: Sequence[Event]) -> list[str]:
    return against_deploying(given(events, "G"))


def test_a_group_that_was_given_each_message_once_is_as_it_should_be() -> None:
    """A group may get its messages in any order; other groups' and waiting ones don't count."""
    events = [ack(0), ack(1), ack(0, 1), ack(7, 9, waiting=True), deliver(0, group="other")]
    events += [deliver(1), deliver(0), deliver(0, 1)]
    assert deploying(events) == []
    assert given(events, "G").acknowledged == 3


def test_a_message_that_nobody_was_given_is_missing_though_those_behind_it_came() -> None:
    """A message that nobody got is missing, also if it is a queue's first one."""
    events = [ack(0), ack(1), ack(2), deliver(2)]
    assert deploying(events) == [
        "2 messages were never given to the group: T/a/0/0, T/a/0/1",
    ]


def test_only_the_queues_that_are_younger_than_the_group_are_asked_about() -> None:
    """Messages before the group's beginning are not its own, but for queues younger than it."""
    events = [ack(0), ack(0, 8), ack(1, 8), deliver(1, 8)]
    found = given(events, "G", 8)
    assert found.acknowledged == 2
    assert against_skipping(found) == ["1 messages were never given to the group: T/a/8/0"]


def test_a_message_that_came_twice_is_a_fault_unless_a_server_had_one() -> None:
    """A message that came twice is a fault, unless a leader died with a commit or an ack."""
    events = [ack(0), deliver(0), deliver(0, client="d")]
    assert deploying(events) == ["1 messages were handled twice: T/a/0/0"]
    assert deploying([*events, Fault(0, "kill", "a", "n0")]) == []


def test_a_place_that_two_sends_were_told_is_a_fault() -> None:
    """Two sends that were told one place are a fault: one of the messages is in no log."""
    events = [ack(0), ack(1), ack(0, 1), ack(1), ack(0, 9, waiting=True), ack(0, 9, waiting=True)]
    assert shared(events, "G").acknowledged == 3
    assert against_sharing(shared(events[:3], "G"), WAIT_S) == []
    assert against_sharing(shared(events, "G"), WAIT_S) == [
        "1 messages were acknowledged at the place of another: T/a/0/1"
    ]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_queue_of_two_members_is_a_fault_once_they_have_heard_of_each_other(
    *, leaves: bool
) -> None:
    """Two members may read a queue for a moment, until they have heard of each other."""

    def holds(client: str, at_s: int, *queues: int, group: str = "G") -> Rebalance:
        return Rebalance(at_s * NS_PER_S, client, group, "T", [("a", queue) for queue in queues])

    events = [holds("c", 0, 0, 1), holds("e", 0, 0, 1, group="other"), holds("d", 1, 1)]
    events += [holds("c", 4, 0)] if leaves else []
    found = shared([*events, holds("d", 9, 1, 2)], "G")
    assert found.held_s == (3 if leaves else 8)
    assert bool(against_sharing(found, WAIT_S)) != leaves


def test_members_read_and_are_away_at_the_same_moments() -> None:
    """Members read and pause at the same moments of a round, and 0 means to pause."""
    for round_s in (0.0, 1000 * AWAY_ROUND_S):
        assert stay_s(round_s) == READING_S
        assert stay_s(round_s + READING_S / 2) == READING_S / 2
        assert stay_s(round_s + READING_S) == stay_s(round_s + READING_S * 1.5) == 0


@pytest.mark.parametrize("members", [0, 1])
async def test_a_member_that_is_told_to_stop_finishes_what_it_has_and_its_successor_goes_on(
    members: int, autojump_clock: MockClock, tmp_path: Path
) -> None:
    """A member that is told to stop finishes its messages, and its successor gets the others."""
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        for number in range(200):
            await producer.send(Message("T", b"x", unique_key=f"k{number}"))
        handled, clients = 0, 0
        while handled < 200:
            name, stop = f"c{clients}", trio.Event()
            path = str(tmp_path / f"{name}.jsonl")
            task = Consume(
                name, cluster.namesrv_addr, "T", path, "G", members=members, handles=True
            )
            with HistoryWriter(Path(path)) as history:
                work = HandlingWork(task, history)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(work.run, stop)
                    await trio.sleep(0.06 + 0.011 * clients)
                    stop.set()
            handled, clients = handled + work.progress.delivered, clients + 1
            assert clients < 100
    found = [each for each in read_history(tmp_path) if isinstance(each, Deliver)]
    assert clients > 1
    assert sorted(each.id for each in found) == sorted(f"k{number}" for number in range(200))
