"""Faults at the very edge of what proves something, and what lies just beyond it.

Each has a twin: the same with one thing less is no violation, or with one more is one.
"""

from __future__ import annotations

import random
from dataclasses import replace

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


def contested_by_a_read(run: SmallRun, draw: random.Random) -> None:
    """A group got a message under the offset of another."""
    first, second = draw.sample(run.of("deliver", group=GROUP, queue_id=0), 2)
    run.events.append({**first, "t": END, "offset": second["offset"]})


def contested_on_a_node(run: SmallRun, draw: random.Random) -> None:
    """A node's log has two messages under one offset."""
    first, second = draw.sample(run.of("ack", queue_id=0, topic=TOPIC, waiting=None), 2)
    run.change(draw.choice(NODES), second["id"], offset=first["offset"])


def contested_unacknowledged(run: SmallRun, draw: random.Random) -> None:
    """All logs have two messages under one offset, of which nobody was told."""
    _second_at(run, draw.choice(run.of("ack", queue_id=1, topic=TOPIC, waiting=None)))


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
    """Another message, of which nobody is told, is stored at the place of an acknowledged one."""
    found = run.stored(first["id"])
    assert found is not None
    ghost = f"{run.broker}-ghost"
    run.events.append(run.of("send", id=first["id"])[0] | {"id": ghost})
    run.add(replace(found, id=ghost))


def far_away(run: SmallRun, draw: random.Random) -> None:
    """All logs have a message, of which nobody was told, at the last offset that there is."""
    found = run.stored(acked(run, draw)["id"])
    assert found is not None
    ghost = f"{run.broker}-ghost"
    run.events.append(run.of("send", id=found.id)[0] | {"id": ghost})
    topic = draw.choice([TOPIC, "Others"])
    run.add(replace(found, id=ghost, topic=topic, offset=2**63 - 1))


def led_after_a_restart(run: SmallRun, draw: random.Random) -> None:
    """Another node led in a term that had ended long before."""
    lead = run.of("lead")[0]
    node = draw.choice([each for each in NODES if each != lead["node"]])
    run.events.append({**lead, "node": node, "began": END, "t": END + 10})


def voted_with_a_new_disk(run: SmallRun, draw: random.Random) -> None:
    """A node whose disk was taken away voted in its old term, for another."""
    vote = draw.choice(run.of("vote", term=1))
    lost = {"kind": "fault", "fault": "wipe", "broker": run.broker, "node": vote["node"]}
    run.events.append({**lost, "t": END})
    run.events.append({**vote, "t": END + 10, "vote": "n2"})


def voted_late(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a node was in a term for some time before it voted."""
    for vote in run.of("vote", term=2)[:1]:
        run.events.append({**vote, "t": vote["t"] - 1, "vote": None})


def led_twice(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a leader was asked twice."""
    lead = draw.choice(run.of("lead"))
    run.events.append({**lead, "t": lead["t"] + 1})


def lacks_the_last(run: SmallRun, draw: random.Random) -> None:
    """A new leader's log ended where the last acknowledged message stands."""
    lead = run.of("lead")[1]
    acks = [a for a in run.of("ack") if a["t"] < lead["began"]]
    lead["end_position"] = max(a["position"] for a in acks)


def lacks_what_comes_later(run: SmallRun, draw: random.Random) -> None:
    """Innocent: it ended where a message stands that was acknowledged only afterwards."""
    lead = run.of("lead")[1]
    later = min(a["position"] for a in run.of("ack") if a["t"] > lead["began"])
    before = max(a["position"] for a in run.of("ack") if a["t"] < lead["began"])
    lead["end_position"] = max(before + 1, min(later, lead["end_position"]))


def lacks_what_is_kept(run: SmallRun, draw: random.Random) -> None:
    """A leader's log ended before the oldest segment, which is gone, and what follows it is not."""
    led_after_a_restart(run, draw)
    acks = [a["position"] for a in run.of("ack") if a["t"] < run.of("lead")[1]["began"]]
    assert min(acks) < SEGMENT_BYTES < max(acks)
    run.removed = dict.fromkeys(NODES, 1)


def lacks_what_is_gone(run: SmallRun, draw: random.Random) -> None:
    """Innocent: one that was replaced unawares lacks what the second term stored, and where the
    first term ended nobody knows any more."""
    end = answered_late(run)
    gone = end // SEGMENT_BYTES + 1
    acks = [a["position"] for a in run.of("ack") if a["position"] > end]
    assert min(acks) < gone * SEGMENT_BYTES < max(acks)
    run.removed = dict.fromkeys(NODES, gone)


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
    run.events.append({**first, "began": END, "t": END + 10, "end_position": end})
    return end


def changed_in_what_is_gone(run: SmallRun, draw: random.Random) -> None:
    """A node's oldest segment had another message in it: the chain of what is kept shows it."""
    run.change("n1", _first_messages(run)[0], body=b"another!")
    run.removed = dict.fromkeys(NODES, 1)


def shorter_in_what_is_gone(run: SmallRun, draw: random.Random) -> None:
    """A node's oldest segment lacked messages, so its next one begins with a later entry."""
    for message_id in _first_messages(run)[:3]:
        run.drop("n1", message_id)
    run.removed = dict.fromkeys(NODES, 1)


def _first_messages(run: SmallRun) -> list[str]:
    return [m.id for e in run.logs["n1"] for m in e.messages if m.topic == TOPIC]


def duplicate_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """A node has a second copy in a tail that nobody was told of."""
    found = run.stored(acked(run, draw)["id"])
    assert found is not None
    offset = run.next_offset(found.queue_id, "n1")
    run.logs["n1"].append(Entry(3, (replace(found, offset=offset),)))


def duplicate_output(run: SmallRun, draw: random.Random) -> None:
    """An output was written twice, with the offsets of its input."""
    found = run.stored(draw.choice(run.of("ack", topic=OUTPUTS))["id"], OUTPUTS)
    assert found is not None
    end = sum(m.topic == OUTPUTS for entry in run.logs["n0"] for m in entry.messages)
    run.add(replace(found, offset=end))


def visible_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """A node's tail has a message whose transaction was to be rolled back."""
    held = run.stored(run.of("send", transaction="rollback")[0]["id"], HALF_TOPIC)
    assert held is not None
    offset = run.next_offset(0, "n2")
    run.logs["n2"].append(Entry(3, (replace(held, topic=TOPIC, queue_id=0, offset=offset),)))


def a_little_early(run: SmallRun, draw: random.Random) -> None:
    """A delayed message came 4 ms before its time: more than clocks explain."""
    _due(run, draw, 4 * MS)


def within_clocks(run: SmallRun, draw: random.Random) -> None:
    """Innocent: one came 2 ms before its time."""
    _due(run, draw, 2 * MS)


def _due(run: SmallRun, draw: random.Random, early_ns: int) -> None:
    send = draw.choice([send for send in run.of("send") if "due" in send])
    read = min(delivery["t"] for delivery in run.of("deliver", id=send["id"]))
    send["due"] = read + early_ns
    assert send["due"] - send["t"] < 1.2 * DELAY_NS


def lost_again_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """All nodes have lost where a message waited, though it came into its topic."""
    message_id = draw.choice([send for send in run.of("send") if "due" in send])["id"]
    for node in NODES:
        run.drop(node, message_id, SCHEDULE_TOPIC)


def stale_zero(run: SmallRun, draw: random.Random) -> None:
    """A node without any message told that a queue is empty."""
    _end_of(run, acked(run, draw), 0, 1)


def fresh_to_the_last(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a node told an end that is behind the last acknowledged message by nothing."""
    ack = max(run.of("ack", topic=TOPIC, waiting=None), key=lambda a: (a["queue_id"], a["offset"]))
    _end_of(run, ack, int(ack["offset"]) + 1, 1)


def _end_of(run: SmallRun, ack: Event, offset: int, after_ns: int) -> None:
    place = {"broker": run.broker, "topic": TOPIC, "queue_id": ack["queue_id"], "node": "n2"}
    times = {"began": ack["t"] + after_ns, "t": ack["t"] + after_ns + 10}
    run.events.append({"kind": "queue_end", "offset": offset, **place, **times})


def without_its_last(run: SmallRun, draw: random.Random) -> None:
    """A node lacks the last message of all, which was acknowledged."""
    last = max(run.of("ack"), key=lambda ack: int(ack["position"]))
    index = next(
        number
        for number, entry in enumerate(run.logs["n2"])
        if last["id"] in {message.id for message in entry.messages}
    )
    del run.logs["n2"][index:]


def output_of_nobody(run: SmallRun, draw: random.Random) -> None:
    """An output is stored under the name of another input: its own lacks one."""
    ack = draw.choice(run.of("ack", topic=OUTPUTS))
    other = f"{run.broker}-8888-output"
    for node in NODES:
        run.change(node, ack["id"], id=other)
    for event in (*run.of("send", id=ack["id"]), ack):
        event["id"] = other


def priority_above_the_last(run: SmallRun, draw: random.Random) -> None:
    """A message of a priority above all queues is in the lowest."""
    ack = draw.choice(run.of("ack", topic=TOPIC, waiting=None, queue_id=0))
    run.of("send", id=ack["id"])[0]["priority"] = 9


def settled_by_an_earlier(run: SmallRun, draw: random.Random) -> None:
    """A message came again by the very next delivery after the ack that counted."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    delivery = run.of("deliver", id=settle["id"], group=POPPERS)[-1]
    run.events.append({**delivery, "t": settle["t"] + 1, "pop_time": settle["pop_time"] + 1})
    run.events[-1].pop("asked", None)
