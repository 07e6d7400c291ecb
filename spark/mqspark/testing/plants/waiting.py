"""Faults planted in small runs about messages that wait: for their time, or their transaction."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from mqspark.testing.plants.declaring import Plants
from mqspark.testing.small_runs import (
    GROUP,
    HALF_TOPIC,
    MS,
    NODES,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TOPIC,
    Entry,
    SmallRun,
    Stored,
)

PLANTS: Final = Plants[SmallRun]()

_MINUTES_NS: Final = 300_000 * MS


@PLANTS.fault(10, "visible")
def visible(run: SmallRun, draw: random.Random) -> None:
    """A transaction that was rolled back is in its topic, on one node only."""
    message_id = draw.choice(run.of("send", transaction="rollback"))["id"]
    half = run.stored(message_id, HALF_TOPIC)
    end = run.next_offset(0)
    run.logs["n1"].append(Entry(2, (replace(half, topic=TOPIC, queue_id=0, offset=end),)))


@PLANTS.fault(10, "visible")
def delivered_though_rolled_back(run: SmallRun, draw: random.Random) -> None:
    """A consumer got what was rolled back."""
    send = draw.choice(run.of("send", transaction="rollback"))
    draw.choice(run.of("deliver")).update(id=send["id"], crc=send["crc"])


@PLANTS.fault(10, "hidden")
def hidden(run: SmallRun, draw: random.Random) -> None:
    """A committed transaction is not in its topic on one node."""
    run.drop("n2", run.of("resolve", transaction="commit")[0]["id"])


@PLANTS.fault(10, "open")
def left_open(run: SmallRun, draw: random.Random) -> None:
    """A transaction to be committed never came into its topic."""
    _never(run, run.of("send", transaction="commit")[1]["id"])


@PLANTS.fault(10, "late")
def committed_late(run: SmallRun, draw: random.Random) -> None:
    """A transaction to be committed was seen minutes later."""
    _much_later(run, run.of("send", transaction="commit")[1]["id"])


@PLANTS.fault(11, "early")
def early(run: SmallRun, draw: random.Random) -> None:
    """A delayed message came before its time."""
    send = draw.choice([send for send in run.of("send") if "due" in send])
    (delivery,) = run.of("deliver", id=send["id"], group=GROUP)
    send["due"] = delivery["t"] + 10 * MS


@PLANTS.fault(11, "late")
def delayed_too_long(run: SmallRun, draw: random.Random) -> None:
    """A delayed message came minutes after its time."""
    _much_later(run, draw.choice([send for send in run.of("send") if "due" in send])["id"])


@PLANTS.fault(11, "missing")
def never_came(run: SmallRun, draw: random.Random) -> None:
    """A delayed message never came into its topic."""
    _never(run, draw.choice([send for send in run.of("send") if "due" in send])["id"])


@PLANTS.innocent
def seen_after_faults(run: SmallRun, draw: random.Random) -> None:
    """A delayed message came minutes late, right after a node was healed."""
    message_id = next(send["id"] for send in run.of("send") if "due" in send)
    deliveries = run.of("deliver", id=message_id)
    _much_later(run, message_id)
    healed = min(delivery["t"] for delivery in deliveries) - 1
    run.note("fault", healed, fault="restart", node="n0")


@PLANTS.innocent
def renewed(run: SmallRun, draw: random.Random) -> None:
    """The broker has stored anew what waits, as its part of the log grew old."""
    found = run.stored(run.of("ack", waiting=True)[0]["id"], SCHEDULE_TOPIC)
    note = Stored(f"{run.broker}-note", OP_TOPIC, 0, 0, b"rmq_sys_wheel_timer 0 0-1")
    for node in NODES:
        end = sum(m.topic == SCHEDULE_TOPIC for entry in run.logs[node] for m in entry.messages)
        run.logs[node].append(Entry(2, (note, replace(found, offset=end))))


def _never(run: SmallRun, message_id: str) -> None:
    """The message is in its topic nowhere, and nobody got it: its queue's later ones move up."""
    assert run.stored(message_id)
    run.drop_all(message_id)
    run.events = [e for e in run.events if (e["kind"], e.get("id")) != ("deliver", message_id)]


def _much_later(run: SmallRun, message_id: str) -> None:
    """All that happened from the message's delivery on happened minutes later."""
    since = min(delivery["t"] for delivery in run.of("deliver", id=message_id))
    for event in run.events:
        if event["kind"] != "end" and event["t"] >= since:
            for name in {"t", "began", "asked"} & event.keys():
                event[name] += _MINUTES_NS
