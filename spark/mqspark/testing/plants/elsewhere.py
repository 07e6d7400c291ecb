"""Faults of known kinds where the other plants have none: in other topics, queues and properties,
on other nodes, at other distances; and what differs from them in the one thing that explains it.

Each is found by the word in `FOUND`, or is innocent (`NOTHING`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dledger.remoting.message import KEYS, TAGS, UNIQ_KEY
from mqspark.testing.plants.content import acked
from mqspark.testing.plants.group import END
from mqspark.testing.plants.life import GROUP as LIVELY
from mqspark.testing.plants.life import Story
from mqspark.testing.small_runs import (
    DEAD_LETTERS,
    GROUP,
    HALF_TOPIC,
    KEYS_SENT,
    MS,
    NODES,
    OUTPUTS,
    OUTPUTS_QUEUE,
    POPPERS,
    SCHEDULE_TOPIC,
    TOPIC,
    Entry,
    SmallRun,
    Stored,
)


def tagged(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message with a tag that its sender did not give it."""
    message_id = acked(run, draw)["id"]
    _bare(run, message_id, {KEYS: KEYS_SENT, UNIQ_KEY: message_id, TAGS: "red"})


def nameless(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message without the id by which its sender knows it."""
    _bare(run, acked(run, draw)["id"], {KEYS: KEYS_SENT})


def on_one_node_alone(run: SmallRun, draw: random.Random) -> None:
    """Two nodes, the majority, lack an acknowledged message."""
    message_id = acked(run, draw)["id"]
    for node in draw.sample(NODES, 2):
        run.drop(node, message_id)


def half_gone(run: SmallRun, draw: random.Random) -> None:
    """No node has the half of a transaction that was acknowledged, and was rolled back."""
    rolled_back = {send["id"] for send in run.of("send", transaction="rollback")}
    halves = [ack["id"] for ack in run.of("ack", waiting=True) if ack["id"] in rolled_back]
    _drop(run, draw.choice(halves), HALF_TOPIC)


def stored_by_nobody(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message that nobody sent, and that nobody was given."""
    ghost = f"{run.broker}-ghost"
    run.add(Stored(ghost, TOPIC, 1, run.next_offset(1), b"whatever"))


def output_by_nobody(run: SmallRun, draw: random.Random) -> None:
    """All nodes have an output that nobody wrote."""
    ghost = f"{run.broker}-ghost-output"
    run.add(Stored(ghost, OUTPUTS, OUTPUTS_QUEUE, _count(run, OUTPUTS), b"whatever"))


def begins_at_one(run: SmallRun, draw: random.Random) -> None:
    """The first offset of a queue was never anybody's."""
    story = Story(run)
    first = next(m for e in run.logs["n0"] for m in e.messages if (m.topic, m.offset) == (TOPIC, 0))
    _drop(run, first.id, TOPIC)
    run.events = [e for e in run.events if first.id not in {e.get("id"), _input_of(e)}]
    _drop(run, f"{first.id}-output", OUTPUTS)
    story.send(first.queue_id)


def hole_among_dead_letters(run: SmallRun, draw: random.Random) -> None:
    """The dead letters of a group lack an offset."""
    letter = run.stored(_dead(run, draw), DEAD_LETTERS)
    assert letter is not None
    another = replace(letter, topic="%DLQ%others", offset=0)
    run.add(another)
    run.add(replace(another, id=f"{run.broker}-7777", offset=2))


def hole_where_messages_wait(run: SmallRun, draw: random.Random) -> None:
    """Where messages wait for their time an offset is missing."""
    held = run.stored(run.of("ack", waiting=True)[0]["id"], SCHEDULE_TOPIC)
    assert held is not None
    unknown = replace(held, id=f"{run.broker}-7777", offset=_count(run, SCHEDULE_TOPIC) + 1)
    run.add(unknown)


def without_a_majority(run: SmallRun, draw: random.Random) -> None:
    """Each node has another body of a message."""
    message_id = acked(run, draw)["id"]
    for node in NODES[1:]:
        run.change(node, message_id, body=f"only {node}!".encode())


def one_more_in_the_middle(run: SmallRun, draw: random.Random) -> None:
    """A node has one entry more amid its log."""
    log = run.logs["n2"]
    at = draw.randrange(2, len(log) - 2)
    log.insert(at, Entry(log[at - 1].term))


def another_disk_was_lost(run: SmallRun, draw: random.Random) -> None:
    """A node came back with an older term, and the disk of another one was taken away."""
    _comes_back(run, "n1", "n2", "wipe", before=False)


def wiped_too_early(run: SmallRun, draw: random.Random) -> None:
    """A node's disk was taken away, it learned of a term, and came back with an older one."""
    _comes_back(run, "n1", "n1", "wipe", before=True)


def with_a_new_disk(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a node came back with an older term, for it has another disk."""
    _comes_back(run, "n1", "n1", "new-disk", before=False)


def _comes_back(run: SmallRun, node: str, lost: str, fault: str, *, before: bool) -> None:
    """A node is in its first term again; a disk is lost, after all votes or before the last."""
    first, *_, last = run.of("vote", node=node)
    at = last["t"] - 1 if before else END
    run.events.append(
        {"kind": "fault", "fault": fault, "broker": run.broker, "node": lost, "t": at}
    )
    run.events.append({**first, "t": END + 10})


def lacks_an_output(run: SmallRun, draw: random.Random) -> None:
    """A new leader's log ended where an acknowledged output stands."""
    lead = run.of("lead")[1]
    outputs = [a for a in run.of("ack", topic=OUTPUTS) if a["t"] < lead["began"]]
    lead["end_position"] = draw.choice(outputs)["position"]


def committed_over_a_gap(run: SmallRun, draw: random.Random) -> None:
    """A group has committed beyond a message that it was never given."""
    story = Story(run)
    messages = [story.send(0) for _ in range(5)]
    for message in (*messages[:2], *messages[3:]):
        story.read(message)
    story.commit(0, messages[4].offset + 1)


def back_behind_a_reset(run: SmallRun, draw: random.Random) -> None:
    """A tool set a group back, it went on, and then was where the tool had set it again."""
    story = Story(run)
    story.live(4)
    story.reset(0, story.ends[0] - 2)
    for message in story.stored[-2:]:
        story.read(message)
    story.commit(0, story.ends[0])
    story.look(0, offset=story.ends[0] - 2)


def told_before_it_went_on(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a tool set a group back, which was there before it went on."""
    story = Story(run)
    story.live(4)
    story.reset(0, story.ends[0] - 2)
    story.look(0, offset=story.ends[0] - 2)
    for message in story.stored[-2:]:
        story.read(message)
    story.commit(0, story.ends[0])
    story.look(0, offset=story.ends[0])


def duplicate_in_another_queue(run: SmallRun, draw: random.Random) -> None:
    """A message is once in each of two queues."""
    found = run.stored(acked(run, draw)["id"])
    assert found is not None
    queue_id = 1 - found.queue_id
    run.add(replace(found, queue_id=queue_id, offset=run.next_offset(queue_id)))


def duplicate_of_a_large_one(run: SmallRun, draw: random.Random) -> None:
    """A message whose body is in parts names them twice."""
    found = next(m for entry in run.logs["n0"] for m in entry.messages if m.large)
    run.add(replace(found, offset=run.next_offset(0)))


def committed_twice(run: SmallRun, draw: random.Random) -> None:
    """A transaction's message came into its topic twice."""
    send = draw.choice(run.of("send", transaction="commit"))
    found = run.stored(send["id"])
    assert found is not None
    run.add(replace(found, offset=run.next_offset(found.queue_id)))


def hidden_everywhere(run: SmallRun, draw: random.Random) -> None:
    """A transaction was committed, as was answered, and no node has it in its topic."""
    message_id = run.of("resolve", transaction="commit")[0]["id"]
    _drop(run, message_id, TOPIC)
    run.events = [e for e in run.events if (e["kind"], e.get("id")) != ("deliver", message_id)]


def delivered_at_its_end(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a message was noted a second after its end, by a consumer that stood still."""
    delivery = draw.choice(run.of("deliver", group=GROUP))
    last = max(each["t"] for each in run.of("deliver", id=delivery["id"]))
    for send in run.of("send", id=delivery["id"]):
        send["expires"] = last - 1_000 * MS


def stale_for_outputs(run: SmallRun, draw: random.Random) -> None:
    """The end of the queue of outputs was told to be before one that had been acknowledged."""
    _end_of_outputs(run, draw, 0)


def fresh_for_outputs(run: SmallRun, draw: random.Random) -> None:
    """Innocent: the end of the queue of outputs was told to be right behind the last."""
    _end_of_outputs(run, draw, 1)


def _end_of_outputs(run: SmallRun, draw: random.Random, behind: int) -> None:
    ack = max(run.of("ack", topic=OUTPUTS), key=lambda each: int(each["offset"]))
    place = {name: ack[name] for name in ("broker", "topic", "queue_id")}
    told = {"offset": ack["offset"] + behind, "began": END, "t": END + 10}
    run.events.append({"kind": "queue_end", **place, **told})


def nearly_empty(run: SmallRun, draw: random.Random) -> None:
    """A node has nothing but the first leader's own entry."""
    del run.logs["n2"][1:]


def told_to_be_at_the_start(run: SmallRun, draw: random.Random) -> None:
    """A group that pops was told at the end that it had popped nothing."""
    told = draw.choice([e for e in run.of("group_offset", group=POPPERS) if e["offset"]])
    run.events.append({**told, "began": END, "t": END + 10, "offset": 0})


def served_by_a_pop(run: SmallRun, draw: random.Random) -> None:
    """A member of a group that was disabled popped a new message."""
    story = Story(run)
    story.act("put-group", group=LIVELY, enabled=False)
    story.read(story.send(0), asked=story.t + 1, pop_time=9)
    story.act("put-group", group=LIVELY, enabled=True)


def deleted_twice(run: SmallRun, draw: random.Random) -> None:
    """A log deletes a topic twice, and a tool asked for it once."""
    story = Story(run)
    story.delete()
    story.delete()
    run.events.remove(run.of("act", act="delete-topic")[-1])


def deletion_repeated(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a request to delete a topic was repeated, and each of the two deleted it."""
    story = Story(run)
    story.live()
    run.add(control=("delete_topic", {"topic": TOPIC, "now_ms": 1}))
    story.delete()


def shut_for_another(run: SmallRun, draw: random.Random) -> None:
    """Innocent: another topic can't be written or read, another group is disabled."""
    story = Story(run)
    story.act("put-topic", topic=f"{TOPIC}2", perm=0)
    story.act("put-group", group=f"{LIVELY}2", enabled=False)
    story.live()


def _bare(run: SmallRun, message_id: str, properties: dict[str, str]) -> None:
    for node in NODES:
        run.change(node, message_id, bare=properties)


def _drop(run: SmallRun, message_id: str, topic: str) -> None:
    for node in NODES:
        run.drop(node, message_id, topic)


def _count(run: SmallRun, topic: str) -> int:
    """How many messages a topic has."""
    return sum(m.topic == topic for entry in run.logs["n0"] for m in entry.messages)


def _dead(run: SmallRun, draw: random.Random) -> str:
    return str(draw.choice(run.of("settle", how="dead"))["id"])


def _input_of(event: dict[str, object]) -> str:
    return str(event.get("id", "")).removesuffix("-output")


_Plant = Callable[[SmallRun, random.Random], None]
FOUND: Final[tuple[tuple[int, str, _Plant], ...]] = (
    (1, "altered", tagged),
    (1, "lost", nameless),
    (1, "lost", on_one_node_alone),
    (1, "lost", half_gone),
    (2, "phantom", stored_by_nobody),
    (2, "phantom", output_by_nobody),
    (4, "hole", begins_at_one),
    (4, "hole", hole_among_dead_letters),
    (4, "hole", hole_where_messages_wait),
    (5, "changed", without_a_majority),
    (5, "changed", one_more_in_the_middle),
    (6, "forgotten", another_disk_was_lost),
    (6, "forgotten", wiped_too_early),
    (7, "incomplete", lacks_an_output),
    (8, "ahead", committed_over_a_gap),
    (8, "back", back_behind_a_reset),
    (9, "duplicate", duplicate_in_another_queue),
    (9, "duplicate", duplicate_of_a_large_one),
    (9, "duplicate", committed_twice),
    (10, "hidden", hidden_everywhere),
    (12, "stale", stale_for_outputs),
    (13, "incomplete", nearly_empty),
    (15, "back", told_to_be_at_the_start),
    (17, "served", served_by_a_pop),
    (17, "unasked", deleted_twice),
)
NOTHING: Final[tuple[_Plant, ...]] = (
    with_a_new_disk,
    told_before_it_went_on,
    delivered_at_its_end,
    fresh_for_outputs,
    deletion_repeated,
    shut_for_another,
)
