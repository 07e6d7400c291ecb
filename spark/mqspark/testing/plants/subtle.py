"""Faults at the very edge of what proves something, and what lies just beyond it.

Each has a twin: the same with one thing less is no violation, or with one more is one.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from mqspark.testing.declaring import Plants
from mqspark.testing.planting import Event
from mqspark.testing.plants.content import acked
from mqspark.testing.plants.group import END
from mqspark.testing.small_runs import (
    DELAY_NS,
    GROUP,
    HALF_TOPIC,
    MS,
    NODES,
    OUTPUTS,
    POPPERS,
    SCHEDULE_TOPIC,
    SEGMENT_BYTES,
    TOPIC,
    Entry,
    SmallRun,
)

PLANTS: Final = Plants[SmallRun]()


@PLANTS.fault(3, "contested")
def contested_by_a_read(run: SmallRun, draw: random.Random) -> None:
    """A group got a message under the offset of another."""
    first, second = draw.sample(run.of("deliver", group=GROUP, queue_id=0), 2)
    run.repeat(first, t=END, offset=second["offset"])


@PLANTS.fault(3, "contested")
def contested_on_a_node(run: SmallRun, draw: random.Random) -> None:
    """A node's log has two messages under one offset."""
    first, second = draw.sample(run.of("ack", queue_id=0, topic=TOPIC, waiting=None), 2)
    run.change(draw.choice(NODES), second["id"], offset=first["offset"])


@PLANTS.fault(3, "contested")
def contested_unacknowledged(run: SmallRun, draw: random.Random) -> None:
    """All logs have two messages under one offset, of which no client knows."""
    _second_at(run, draw.choice(run.of("ack", queue_id=1, topic=TOPIC, waiting=None)))


@PLANTS.fault(14, "missing")
def contested_with_what_is_gone(run: SmallRun, draw: random.Random) -> None:
    """All logs have a message, without an output, at the offset of one that old segments held."""
    acks = run.of("ack", queue_id=1, topic=TOPIC, waiting=None)
    first = min(acks, key=lambda ack: int(ack["position"]))
    passed = max(int(e["offset"]) for e in run.of("commit", queue_id=1, group=GROUP))
    assert first["position"] < SEGMENT_BYTES < max(ack["position"] for ack in acks)
    assert first["offset"] < passed
    _second_at(run, first)
    run.removed = dict.fromkeys(NODES, 1)


def _second_at(run: SmallRun, first: Event) -> None:
    """Another message, of which no client knows, is stored at the place of an acknowledged one."""
    run.add(run.another(run.stored(first["id"])))


@PLANTS.fault(4, "hole")
def far_away(run: SmallRun, draw: random.Random) -> None:
    """All logs have a message, of which no client knows, at the last offset that there is."""
    found = run.stored(acked(run, draw)["id"])
    topic = draw.choice([TOPIC, "Others"])
    run.add(run.another(found, topic=topic, offset=2**63 - 1))


@PLANTS.fault(6, "two leaders")
def led_after_a_restart(run: SmallRun, draw: random.Random) -> None:
    """Another node led in a term that had ended long before."""
    lead = run.of("lead")[0]
    node = draw.choice([each for each in NODES if each != lead["node"]])
    run.repeat(lead, node=node, began=END, t=END + 10)


@PLANTS.fault(6, "two votes")
def voted_with_a_new_disk(run: SmallRun, draw: random.Random) -> None:
    """A node whose disk was taken away voted in its old term, for another."""
    vote = draw.choice(run.of("vote", term=1))
    run.note("fault", END, fault="wipe", node=vote["node"])
    run.repeat(vote, t=END + 10, vote="n2")


@PLANTS.innocent
def voted_late(run: SmallRun, draw: random.Random) -> None:
    """A node was in a term for some time before it voted."""
    for vote in run.of("vote", term=2)[:1]:
        run.repeat(vote, t=vote["t"] - 1, vote=None)


@PLANTS.innocent
def led_twice(run: SmallRun, draw: random.Random) -> None:
    """A leader was asked twice."""
    lead = draw.choice(run.of("lead"))
    run.repeat(lead, t=lead["t"] + 1)


@PLANTS.fault(7, "incomplete")
def lacks_the_last(run: SmallRun, draw: random.Random) -> None:
    """A new leader's log ended where the last acknowledged message stands."""
    lead = run.of("lead")[1]
    acks = [a for a in run.of("ack") if a["t"] < lead["began"]]
    lead["end_position"] = max(a["position"] for a in acks)


@PLANTS.innocent
def lacks_what_comes_later(run: SmallRun, draw: random.Random) -> None:
    """A new leader's log ended where a message stands that was acknowledged only afterwards."""
    lead = run.of("lead")[1]
    later = min(a["position"] for a in run.of("ack") if a["t"] > lead["began"])
    before = max(a["position"] for a in run.of("ack") if a["t"] < lead["began"])
    lead["end_position"] = max(before + 1, min(later, lead["end_position"]))


@PLANTS.fault(7, "incomplete")
def lacks_what_is_kept(run: SmallRun, draw: random.Random) -> None:
    """A leader's log ended before the oldest segment, which is gone, and what follows it is not."""
    led_after_a_restart(run, draw)
    acks = [a["position"] for a in run.of("ack") if a["t"] < run.of("lead")[1]["began"]]
    assert min(acks) < SEGMENT_BYTES < max(acks)
    run.removed = dict.fromkeys(NODES, 1)


@PLANTS.innocent
def lacks_what_is_gone(run: SmallRun, draw: random.Random) -> None:
    """A leader that was replaced unawares lacks what the second term stored, and where the
    first term ended nobody knows any more."""
    end = answered_late(run)
    gone = end // SEGMENT_BYTES + 1
    acks = [a["position"] for a in run.of("ack") if a["position"] > end]
    assert min(acks) < gone * SEGMENT_BYTES < max(acks)
    run.removed = dict.fromkeys(NODES, gone)


@PLANTS.fault(5, "changed")
def lacks_what_is_doubtful(run: SmallRun, draw: random.Random) -> None:
    """A node has the first entries of the second term as the first one's, whose leader lacks
    them."""
    answered_late(run)
    own = run.logs["n2"]
    first = next(number for number, entry in enumerate(own) if entry.term == 2)
    own[first : first + 5] = [replace(entry, term=1) for entry in own[first : first + 5]]


def answered_late(run: SmallRun) -> int:
    """The first leader answers at last that its log ends where the second term's begins."""
    first, second = run.of("lead")
    end = int(second["end_position"])
    run.repeat(first, began=END, t=END + 10, end_position=end)
    return end


@PLANTS.innocent
def replaced_unawares(run: SmallRun, draw: random.Random) -> None:
    """A leader of the first term answers late; what the second term stored is not in its log."""
    answered_late(run)


@PLANTS.fault(5, "changed")
def changed_in_what_is_gone(run: SmallRun, draw: random.Random) -> None:
    """A node's oldest segment had another message in it: the chain of what is kept shows it."""
    run.change("n1", _first_messages(run)[0], body=b"another!")
    run.removed = dict.fromkeys(NODES, 1)


@PLANTS.fault(13, "incomplete")
def shorter_in_what_is_gone(run: SmallRun, draw: random.Random) -> None:
    """A node's oldest segment lacked messages, so its next one begins with a later entry."""
    for message_id in _first_messages(run)[:3]:
        run.drop("n1", message_id)
    run.removed = dict.fromkeys(NODES, 1)


def _first_messages(run: SmallRun) -> list[str]:
    return [m.id for e in run.logs["n1"] for m in e.messages if m.topic == TOPIC]


@PLANTS.fault(9, "duplicate")
def duplicate_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """A node has a second copy in a tail that no client knows of."""
    found = run.stored(acked(run, draw)["id"])
    offset = run.next_offset(found.queue_id, "n1")
    run.logs["n1"].append(Entry(3, (replace(found, offset=offset),)))


@PLANTS.fault(9, "duplicate")
def duplicate_output(run: SmallRun, draw: random.Random) -> None:
    """An output was written twice, with the offsets of its input."""
    found = run.stored(draw.choice(run.of("ack", topic=OUTPUTS))["id"], OUTPUTS)
    run.add(replace(found, offset=run.count(OUTPUTS)))


@PLANTS.fault(10, "visible")
def visible_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """A node's tail has a message whose transaction was to be rolled back."""
    held = run.stored(run.of("send", transaction="rollback")[0]["id"], HALF_TOPIC)
    offset = run.next_offset(0, "n2")
    run.logs["n2"].append(Entry(3, (replace(held, topic=TOPIC, queue_id=0, offset=offset),)))


@PLANTS.fault(11, "early")
def a_little_early(run: SmallRun, draw: random.Random) -> None:
    """A delayed message came 4 ms before its time: more than clocks explain."""
    _due(run, draw, 4 * MS)


@PLANTS.innocent
def within_clocks(run: SmallRun, draw: random.Random) -> None:
    """A message came 2 ms before its time."""
    _due(run, draw, 2 * MS)


def _due(run: SmallRun, draw: random.Random, early_ns: int) -> None:
    send = draw.choice([send for send in run.of("send") if "due" in send])
    read = min(delivery["t"] for delivery in run.of("deliver", id=send["id"]))
    send["due"] = read + early_ns
    assert send["due"] - send["t"] < 1.2 * DELAY_NS


@PLANTS.fault(1, "lost")
def lost_again_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """All nodes have lost where a message waited, though it came into its topic."""
    message_id = draw.choice([send for send in run.of("send") if "due" in send])["id"]
    run.drop_all(message_id, SCHEDULE_TOPIC)


@PLANTS.fault(12, "stale")
def stale_zero(run: SmallRun, draw: random.Random) -> None:
    """A node without any message answered that a queue is empty."""
    ack = acked(run, draw)
    run.note_end(ack["queue_id"], 0, ack["t"] + 1)


@PLANTS.innocent
def fresh_to_the_last(run: SmallRun, draw: random.Random) -> None:
    """A node answered an end that is behind the last acknowledged message by nothing."""
    ack = max(run.of("ack", topic=TOPIC, waiting=None), key=lambda a: (a["queue_id"], a["offset"]))
    run.note_end(ack["queue_id"], ack["offset"] + 1, ack["t"] + 1)


@PLANTS.fault(13, "incomplete")
def without_its_last(run: SmallRun, draw: random.Random) -> None:
    """A node lacks the last message of all, which was acknowledged."""
    last = max(run.of("ack"), key=lambda ack: int(ack["position"]))
    index = next(
        number
        for number, entry in enumerate(run.logs["n2"])
        if last["id"] in {message.id for message in entry.messages}
    )
    del run.logs["n2"][index:]


@PLANTS.fault(14, "missing")
def output_of_nobody(run: SmallRun, draw: random.Random) -> None:
    """An output is stored under the name of another input: its own lacks one."""
    ack = draw.choice(run.of("ack", topic=OUTPUTS))
    other = f"{run.broker}-8888-output"
    run.change_all(ack["id"], id=other)
    for event in (*run.of("send", id=ack["id"]), ack):
        event["id"] = other


@PLANTS.fault(16, "misplaced")
def priority_above_the_last(run: SmallRun, draw: random.Random) -> None:
    """A message of a priority above all queues is in the lowest."""
    ack = draw.choice(run.of("ack", topic=TOPIC, waiting=None, queue_id=0))
    run.of("send", id=ack["id"])[0]["priority"] = 9


@PLANTS.fault(15, "again")
def settled_by_an_earlier(run: SmallRun, draw: random.Random) -> None:
    """A message came again by the very next delivery after the ack that counted."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    delivery = run.of("deliver", id=settle["id"], group=POPPERS)[-1]
    again = run.repeat(delivery, t=settle["t"] + 1, pop_time=settle["pop_time"] + 1)
    again.pop("asked", None)
