"""Pauses of queues when their readers change: how they are measured, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Sized
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from mqchaos.history.events import Ack, Deliver, HistoryWriter, Rebalance
from mqchaos.history.reading import read_history
from mqchaos.limits import HANDED_OVER_WITHIN_S, NS_PER_S
from mqchaos.run.load import noting, work
from mqchaos.run.load.noting import acknowledged
from mqchaos.run.load.work import HandlingWork
from mqchaos.run.load.workload import Consume
from mqchaos.run.ordinary.handing_over import HandedOver, against_pausing, handed_over, longest_of
from mqclient import Message, Producer
from mqclient.consuming.popping.taking import Taking
from mqclient.consuming.sharing.locks import Locks
from mqlocal import local_cluster

pytestmark = pytest.mark.usefixtures("autojump_clock")

PLACE = ("T", "a", 0)


def ack(offset: int, at_s: float, queue: int = 0) -> Ack:
    return Ack(int(at_s * NS_PER_S), "p", f"{queue}-{offset}", "T", "a", queue, offset, 0)


def deliver(offset: int, at_s: float, client: str, queue: int = 0) -> Deliver:
    t = int(at_s * NS_PER_S)
    return Deliver(t, client, "G", "T", "a", queue, offset, f"{queue}-{offset}", 0)


def up(client: str, at_s: float) -> Rebalance:
    return Rebalance(int(at_s * NS_PER_S), client, "G", "T", [])


def test_a_pause_is_from_the_last_message_of_the_old_reader_to_the_first_of_the_new_one() -> None:
    """A pause begins with the old reader's last message, or a later acknowledgement."""
    events = [ack(0, 0), ack(1, 0), deliver(0, 1, "c"), up("d", 1.5), deliver(1, 4, "d")]
    assert handed_over([*events, up("c", 6)], "G") == HandedOver(1, 3.0, (*PLACE, 1))
    events[1] = ack(1, 3.5)
    assert handed_over([*events, up("c", 6)], "G") == HandedOver(1, 0.5, (*PLACE, 1))


def test_a_backlog_that_one_reader_is_slow_with_is_not_a_pause() -> None:
    """A backlog of a slow reader is no pause: each message came soon after the one before it."""
    events = [ack(each, 0) for each in range(10)]
    events += [deliver(each, 5 + each, "c") for each in range(5)]
    events += [
        up("d", 8),
        deliver(5, 9.5, "d"),
        *(deliver(each, 5 + each, "d") for each in range(6, 10)),
    ]
    assert handed_over(events, "G") == HandedOver(1, 0.5, (*PLACE, 5))


def test_a_message_that_stays_hidden_is_a_pause_though_its_queue_is_read() -> None:
    """A hidden message, as of a pop that nobody gave back, is a pause, though others come."""
    events = [ack(0, 0), ack(1, 0), ack(2, 0), up("d", 0), deliver(0, 1, "c")]
    events += [deliver(2, 1.1, "d")]
    assert handed_over([*events, deliver(1, 61, "d")], "G") == HandedOver(1, 60.0, (*PLACE, 1))


def test_a_message_that_is_passed_over_is_a_pause_whoever_had_its_neighbours() -> None:
    """The member that popped it, and gave it back to nobody, had no other of its queue."""
    events = [ack(0, 0), ack(1, 0), ack(2, 0), up("c", 0), up("c", 99), deliver(0, 1, "d")]
    events += [deliver(2, 1.5, "d"), deliver(1, 61.5, "d")]
    assert handed_over(events, "G") == HandedOver(0, 60.0, (*PLACE, 1))


def test_time_in_which_no_reader_is_up_does_not_count() -> None:
    """A file's next reader has to start first; from then on it does."""
    events = [ack(0, 0), ack(1, 0), deliver(0, 1, "c"), up("c", 1.25), up("d", 4)]
    assert handed_over([*events, deliver(1, 4.5, "d")], "G") == HandedOver(1, 0.75, (*PLACE, 1))


def test_what_others_were_given_and_what_nobody_acknowledged_are_no_pause() -> None:
    """Each queue is looked at by itself, and each group."""
    events = [ack(0, 0), ack(0, 0, 1), deliver(0, 1, "c"), deliver(0, 9, "d", 1)]
    events += [deliver(1, 9, "d")]
    assert handed_over(events, "G") == HandedOver(1, 0.0, None)
    assert handed_over(events, "H") == HandedOver()


def test_the_longest_pause_of_all_readers_is_what_is_judged() -> None:
    """The longest pause is judged, and the sentence names its message."""
    found = longest_of([HandedOver(2, 0.5, (*PLACE, 3)), HandedOver(1, 1.5, (*PLACE, 7))])
    assert found.times == 3
    assert against_pausing(found, 2.0) == against_pausing(longest_of([]), 0) == []
    assert against_pausing(found, 1.0) == [
        "a queue was read by nobody for 1.5 s when its reader changed, above 1.0 s: T/a/0/7"
    ]


BURST, BURSTS = 40, 4
EVERY_S = 5
#: By handlers of which a member has 8 at once. They all are in the middle when it is stopped, and 8
#: messages more wait for them, since two members take fewer than a burst between them. The burst
#: after that passes over what nobody gave back.
HANDLED_S = 0.2


async def send_bursts(producer: Producer, history: HistoryWriter) -> None:
    """Send bursts, so that members have messages in flight at each of these seconds."""
    began_s = trio.current_time()
    for burst in range(1, BURSTS + 1):
        for number in range(BURST):
            message = Message("T", b"x", unique_key=f"k{burst}-{number}")
            history.write(acknowledged("p", await producer.send(message)))
        await trio.sleep_until(began_s + burst * EVERY_S - 0.05)


async def deployed_once(folder: Path, *, ordered: bool = False, members: int = 0) -> HandedOver:
    """Pauses when one member replaces another under load."""
    names = ("p", "c", "d")
    async with local_cluster(replicas=1) as cluster, cluster.producer("P") as producer:
        with ExitStack() as files:
            sent, *histories = [
                files.enter_context(HistoryWriter(folder / f"{name}.jsonl")) for name in names
            ]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_bursts, producer, sent)
                stops = [trio.Event(), trio.Event()]
                for name, history, stop in zip(names[1:], histories, stops, strict=True):
                    task = Consume(
                        *(name, cluster.namesrv_addr, "T", "", "G"),
                        ordered=ordered,
                        members=members,
                        handles=True,
                    )
                    nursery.start_soon(HandlingWork(task, history).run, stop)
                    await trio.sleep(EVERY_S)
                stops[0].set()
                await trio.sleep(65)
                nursery.cancel_scope.cancel()
    return handed_over(read_history(folder), "G")


FORGOTTEN: dict[str, tuple[dict[str, Any], type, str, Callable[[Any], Sized]]] = {
    "locks": ({"ordered": True}, Locks, "leave", lambda locks: locks.leases.queues()),
    "pops": ({"members": 1}, Taking, "give_back", lambda taking: taking.ready),
}


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("what", FORGOTTEN)
async def test_locks_and_pops_that_are_left_behind_are_found(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, forgets: bool
) -> None:
    """Locks and pops that are left behind pause queues for their time, else a bound holds."""
    clock = SimpleNamespace(
        monotonic_ns=lambda: int(trio.current_time() * NS_PER_S), sleep=None, monotonic=None
    )
    monkeypatch.setattr(work, "time", clock)
    monkeypatch.setattr(noting, "time", clock)
    monkeypatch.setattr(work.limits, "HANDLING_S", (HANDLED_S,))
    member, owner, method, held_by = FORGOTTEN[what]
    gives_up, held = getattr(owner, method), list[int]()

    async def leave(leaving: Any) -> None:
        held.append(len(held_by(leaving)))
        if not forgets:
            await gives_up(leaving)

    monkeypatch.setattr(owner, method, leave)
    found = await deployed_once(tmp_path, **member)
    assert found.times
    assert held[0], "it was in the middle"
    assert bool(against_pausing(found, HANDED_OVER_WITHIN_S)) == forgets, found
