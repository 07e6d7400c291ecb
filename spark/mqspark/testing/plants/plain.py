"""Faults of each property as one thinks of them first, and what only looks like them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from dledger.checksum import crc32
from mqspark.testing.declaring import Plants
from mqspark.testing.planting import Event
from mqspark.testing.plants.content import acked, waiting_ack
from mqspark.testing.plants.group import END
from mqspark.testing.small_runs import (
    END_T,
    GROUP,
    HALF_TOPIC,
    MS,
    NODES,
    OUTPUTS,
    SCHEDULE_TOPIC,
    TOPIC,
    Entry,
    SmallRun,
    Stored,
)

PLANTS: Final = Plants[SmallRun]()

_SOON_NS: Final = 100


@PLANTS.fault(1, "lost")
def lost(run: SmallRun, draw: random.Random) -> None:
    """An acknowledged message is in no log of one node."""
    run.drop(draw.choice(NODES), acked(run, draw)["id"])


@PLANTS.fault(1, "lost")
def lost_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """A node has not what was acknowledged to wait."""
    run.drop("n2", waiting_ack(run, draw)["id"], topic=draw.choice([SCHEDULE_TOPIC, HALF_TOPIC]))
    run.drop("n2", run.of("ack", waiting=True)[0]["id"], topic=SCHEDULE_TOPIC)


@PLANTS.fault(1, "moved")
def moved(run: SmallRun, draw: random.Random) -> None:
    """An acknowledgement names another position."""
    acked(run, draw)["position"] += 8


@PLANTS.fault(1, "moved")
def moved_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """An acknowledgement of a message that waits names another position."""
    waiting_ack(run, draw)["position"] += 8


@PLANTS.fault(4, "hole")
def hole_in_another_topic(run: SmallRun, draw: random.Random) -> None:
    """A topic that no client tells of has lost a message, on all nodes."""
    _others(run, 0, 2)


@PLANTS.innocent
def made_again(run: SmallRun, draw: random.Random) -> None:
    """A topic that no client tells of was deleted and made again."""
    _others(run, 0, 1)
    run.add(control=("delete_topic", {"topic": "Others", "now_ms": 1}))
    _others(run, 0, 1, 2)


@PLANTS.fault(4, "misplaced")
def begun_anew(run: SmallRun, draw: random.Random) -> None:
    """A topic that no client tells of has a queue that begins at 0 again, and another topic was
    deleted."""
    _others(run, 0, 1)
    run.add(control=("delete_topic", {"topic": "Other", "now_ms": 1}))
    _others(run, 0, 1)


def _others(run: SmallRun, *offsets: int) -> None:
    found = run.stored(run.of("ack", waiting=True)[0]["id"], SCHEDULE_TOPIC)
    for offset in offsets:
        run.add(replace(found, topic="Others", id=f"{run.broker}-{offset}", offset=offset))


@PLANTS.fault(2, "phantom")
def phantom(run: SmallRun, draw: random.Random) -> None:
    """A consumer got what nobody sent."""
    draw.choice(run.of("deliver"))["id"] = f"{run.broker}-ghost"


@PLANTS.fault(2, "refused")
def refused(run: SmallRun, draw: random.Random) -> None:
    """A send that was refused is stored and read."""
    ack = acked(run, draw)
    fail = {"kind": "fail", "t": ack["t"], "id": ack["id"], "definite": True, "client": "p"}
    run.events[run.events.index(ack)] = {**fail, "error": "refused"}


@PLANTS.fault(3, "contested")
def contested(run: SmallRun, draw: random.Random) -> None:
    """Two messages were acknowledged at one offset."""
    first, second = run.of("ack", waiting=None, topic=TOPIC)[:2]
    second.update(queue_id=first["queue_id"], offset=first["offset"])


@PLANTS.fault(4, "overtaken")
def overtaken(run: SmallRun, draw: random.Random) -> None:
    """A message was sent after a higher offset had been acknowledged."""
    acks = run.of("ack", waiting=None, topic=TOPIC)
    low = next(a for a in acks if any(_above(a, other) for other in acks))
    (send,) = run.of("send", id=low["id"])
    send["t"] = max(a["t"] for a in acks if _above(low, a)) + _SOON_NS


@PLANTS.fault(4, "skipped")
def skipped(run: SmallRun, draw: random.Random) -> None:
    """A group never got what is between two others."""
    place = _long_queue(run)
    deliveries = run.of("deliver", queue_id=place, group=GROUP)
    run.events.remove(draw.choice(deliveries[1:-1]))


@PLANTS.fault(4, "late")
def late(run: SmallRun, draw: random.Random) -> None:
    """A group got a message for the first time after a higher offset."""
    deliveries = run.of("deliver", queue_id=_long_queue(run), group=GROUP)
    draw.choice(deliveries[:-1])["t"] = deliveries[-1]["t"] + _SOON_NS


@PLANTS.fault(4, "vanished")
def vanished(run: SmallRun, draw: random.Random) -> None:
    """A message that was delivered is in no log."""
    message_id = draw.choice(run.of("deliver"))["id"]
    run.drop_all(message_id)


@PLANTS.fault(4, "hole")
def hole(run: SmallRun, draw: random.Random) -> None:
    """A queue's last message is an offset too far on."""
    run_end = run.next_offset(0)
    for node in NODES:
        entry = Entry(2, (Stored(_sent(run), TOPIC, 0, run_end + 1, b"x" * 8),))
        run.logs[node].append(entry)


@PLANTS.fault(4, "misplaced")
def misplaced(run: SmallRun, draw: random.Random) -> None:
    """Two messages of a queue lie in the log against the order of their offsets."""
    end = run.next_offset(1)
    for node in NODES:
        pair = [Stored(_sent(run, k), TOPIC, 1, end + 1 - k, b"x" * 8) for k in range(2)]
        run.logs[node] += [Entry(2, (pair[0],)), Entry(2, (pair[1],))]


@PLANTS.fault(8, "ahead")
def committed_ahead(run: SmallRun, draw: random.Random) -> None:
    """A commit says more than what was delivered."""
    commit = draw.choice(run.of("commit", group=GROUP))
    commit["offset"] += 50


@PLANTS.fault(8, "ahead")
def committed_too_early(run: SmallRun, draw: random.Random) -> None:
    """A delivery came after the commit that covers it."""
    commit = run.of("commit")[-1]
    place = {name: commit[name] for name in ("group", "queue_id")}
    for delivery in run.of("deliver", offset=commit["offset"] - 1, **place):
        delivery["t"] = commit["t"] + _SOON_NS


@PLANTS.fault(8, "back")
def went_back(run: SmallRun, draw: random.Random) -> None:
    """A member's commit is lower than one of its own that had been answered before it began."""
    commit = draw.choice(run.of("commit"))
    t = commit["t"]
    run.repeat(commit, offset=commit["offset"] - 1, began=t + 10, t=t + 20)


@PLANTS.fault(8, "back")
def rewound(run: SmallRun, draw: random.Random) -> None:
    """A group's offset, read after a commit, is lower."""
    went_back(run, draw)
    run.events[-1]["kind"] = "group_offset"


@PLANTS.fault(9, "duplicate")
def duplicate(run: SmallRun, draw: random.Random) -> None:
    """A message is in a log twice."""
    ack = acked(run, draw)
    found = run.stored(ack["id"])
    for node in NODES:
        copy = replace(found, offset=run.next_offset(found.queue_id, node))
        run.logs[node].append(Entry(2, (copy,)))


@PLANTS.innocent
def sent_again(run: SmallRun, draw: random.Random) -> None:
    """An application has sent an output once more, and it is in the logs twice."""
    found = run.stored(draw.choice(run.of("ack", topic=OUTPUTS))["id"], OUTPUTS)
    run.add(replace(found, offset=run.count(OUTPUTS)))
    run.events.append({"kind": "again", "t": END_T - 1, "client": "w", "id": found.id})


@PLANTS.fault(9, "duplicate")
def duplicate_of_a_repeat(run: SmallRun, draw: random.Random) -> None:
    """A message that was sent once more is in the logs three times."""
    sent_again(run, draw)
    found = run.logs["n0"][-1].messages[0]
    run.add(replace(found, offset=found.offset + 1))


@PLANTS.fault(9, "duplicate")
def duplicate_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """A delayed message waits in the log twice."""
    found = run.stored(run.of("ack", waiting=True)[0]["id"], SCHEDULE_TOPIC)
    run.add(replace(found, offset=9))


@PLANTS.fault(12, "stale")
def stale_end(run: SmallRun, draw: random.Random) -> None:
    """A queue's end was answered to be where a message had been acknowledged before."""
    ack = acked(run, draw)
    run.note_end(ack["queue_id"], ack["offset"], ack["t"] + 10)


@PLANTS.innocent
def concurrent_commits(run: SmallRun, draw: random.Random) -> None:
    """Two members' commits were under way at the same time: either may be applied last."""
    commit = draw.choice(run.of("commit"))
    lower = {"t": commit["t"] + 20, "offset": commit["offset"] - 1, "client": "another"}
    run.repeat(commit, **lower)


@PLANTS.innocent
def reset_by_a_tool(run: SmallRun, draw: random.Random) -> None:
    """An operator set the group back; it goes on from there."""
    commit = run.of("commit")[-1]
    back = {"offset": commit["offset"] - 1, "client": "tool"}
    run.repeat(commit, **back, kind="reset", began=END, t=END + 10)
    run.repeat(commit, **back, began=END + 20, t=END + 30)


@PLANTS.innocent
def overtaken_commit(run: SmallRun, draw: random.Random) -> None:
    """A member that had lost its queue committed what it had; the group was further already."""
    went_back(run, draw)
    run.events[-1]["client"] = "another"


@PLANTS.innocent
def asked_meanwhile(run: SmallRun, draw: random.Random) -> None:
    """An end was asked for while the acknowledgement was on its way."""
    ack = acked(run, draw)
    run.note_end(ack["queue_id"], ack["offset"], ack["t"])


@PLANTS.innocent
def unanswered(run: SmallRun, draw: random.Random) -> None:
    """No answer came for some stored messages, as it was lost."""
    for ack in draw.sample(run.of("ack", waiting=None, topic=TOPIC), 2):
        run.events.remove(ack)


@PLANTS.innocent
def delivered_again(run: SmallRun, draw: random.Random) -> None:
    """Members got messages again, and a group began late."""
    delivery = draw.choice(run.of("deliver"))
    run.repeat(delivery, t=END)


@PLANTS.innocent
def one_more_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """A node's log has more at its end than the others', which no client knows of."""
    run.logs["n1"] = [*run.logs["n1"], Entry(3)]


@PLANTS.innocent
def retained(run: SmallRun, draw: random.Random) -> None:
    """Old segments were removed, from all nodes."""
    run.removed = dict.fromkeys(NODES, draw.randint(1, 3))


@PLANTS.innocent
def retained_unlike(run: SmallRun, draw: random.Random) -> None:
    """Old segments were removed, from some nodes sooner."""
    run.removed = {node: draw.randint(0, 2) for node in NODES}


def _above(low: Event, high: Event) -> bool:
    """Whether the second acknowledgement is of a higher offset of the same queue."""
    same = (low["queue_id"], low["topic"]) == (high["queue_id"], high["topic"])
    return same and high["offset"] > low["offset"]


def _long_queue(run: SmallRun) -> int:
    """The queue of which the group read most."""
    return max((0, 1), key=lambda queue: len(run.of("deliver", queue_id=queue, group=GROUP)))


def _sent(run: SmallRun, number: int = 0) -> str:
    """Send another message, and nobody hears of it."""
    message_id = f"{run.broker}-extra{number}"
    if not run.of("send", id=message_id):
        crc = crc32(b"x" * 8)
        event = {"kind": "send", "t": MS, "client": "p", "id": message_id, "topic": TOPIC}
        run.repeat(event, crc=crc, size=8)
    return message_id
