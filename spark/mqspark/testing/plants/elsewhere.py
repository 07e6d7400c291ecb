"""Faults of known kinds in other topics, queues, properties and nodes, at other distances.

Beside them stands what differs from them in the one thing that explains it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from dledger.remoting.message import KEYS, TAGS, UNIQ_KEY
from mqspark.testing.declaring import Plants
from mqspark.testing.plants.content import acked
from mqspark.testing.plants.group import END, dead
from mqspark.testing.plants.life import GROUP as LIVELY
from mqspark.testing.plants.life import Story, change_by
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

PLANTS: Final = Plants[SmallRun]()


@PLANTS.fault(1, "altered")
def tagged(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message with a tag that its sender did not give it."""
    message_id = acked(run, draw)["id"]
    bare = {KEYS: KEYS_SENT, UNIQ_KEY: message_id, TAGS: "red"}
    run.change_all(message_id, bare=bare)


@PLANTS.fault(1, "lost")
def nameless(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message without the id by which its sender knows it."""
    run.change_all(acked(run, draw)["id"], bare={KEYS: KEYS_SENT})


@PLANTS.fault(1, "lost")
def on_one_node_alone(run: SmallRun, draw: random.Random) -> None:
    """Two nodes, the majority, lack an acknowledged message."""
    message_id = acked(run, draw)["id"]
    for node in draw.sample(NODES, 2):
        run.drop(node, message_id)


@PLANTS.fault(1, "lost")
def half_gone(run: SmallRun, draw: random.Random) -> None:
    """No node has the half of a transaction that was acknowledged, and was rolled back."""
    rolled_back = {send["id"] for send in run.of("send", transaction="rollback")}
    halves = [ack["id"] for ack in run.of("ack", waiting=True) if ack["id"] in rolled_back]
    run.drop_all(draw.choice(halves), HALF_TOPIC)


@PLANTS.fault(2, "phantom")
def stored_by_nobody(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message that nobody sent, and that nobody was given."""
    ghost = f"{run.broker}-ghost"
    run.add(Stored(ghost, TOPIC, 1, run.next_offset(1), b"whatever"))


@PLANTS.fault(2, "phantom")
def output_by_nobody(run: SmallRun, draw: random.Random) -> None:
    """All nodes have an output that nobody wrote."""
    ghost = f"{run.broker}-ghost-output"
    run.add(Stored(ghost, OUTPUTS, OUTPUTS_QUEUE, run.count(OUTPUTS), b"whatever"))


@PLANTS.fault(4, "hole")
def begins_at_one(run: SmallRun, draw: random.Random) -> None:
    """The first offset of a queue was never anybody's."""
    story = Story(run)
    first = next(m for m in run.messages if (m.topic, m.offset) == (TOPIC, 0))
    run.drop_all(first.id, TOPIC)
    run.events = [e for e in run.events if first.id not in {e.get("id"), _input_of(e)}]
    run.drop_all(f"{first.id}-output", OUTPUTS)
    story.send(first.queue_id)


@PLANTS.fault(4, "hole")
def hole_among_dead_letters(run: SmallRun, draw: random.Random) -> None:
    """The dead letters of a group lack an offset."""
    letter = run.stored(dead(run, draw), DEAD_LETTERS)
    another = replace(letter, topic="%DLQ%others", offset=0)
    run.add(another)
    run.add(replace(another, id=f"{run.broker}-7777", offset=2))


@PLANTS.fault(4, "hole")
def hole_where_messages_wait(run: SmallRun, draw: random.Random) -> None:
    """Where messages wait for their time an offset is missing."""
    held = run.stored(run.of("ack", waiting=True)[0]["id"], SCHEDULE_TOPIC)
    run.add(replace(held, id=f"{run.broker}-7777", offset=run.count(SCHEDULE_TOPIC) + 1))


@PLANTS.fault(5, "changed")
def without_a_majority(run: SmallRun, draw: random.Random) -> None:
    """Each node has another body of a message."""
    message_id = acked(run, draw)["id"]
    for node in NODES[1:]:
        run.change(node, message_id, body=f"only {node}!".encode())


@PLANTS.fault(5, "changed")
def one_more_in_the_middle(run: SmallRun, draw: random.Random) -> None:
    """A node has one entry more amid its log."""
    log = run.logs["n2"]
    at = draw.randrange(2, len(log) - 2)
    log.insert(at, Entry(log[at - 1].term))


@PLANTS.fault(6, "forgotten")
def another_disk_was_lost(run: SmallRun, draw: random.Random) -> None:
    """A node came back with an older term, and the disk of another one was taken away."""
    _comes_back(run, "n1", "n2", "wipe", before=False)


@PLANTS.fault(6, "forgotten")
def wiped_too_early(run: SmallRun, draw: random.Random) -> None:
    """A node's disk was taken away, it learned of a term, and came back with an older one."""
    _comes_back(run, "n1", "n1", "wipe", before=True)


@PLANTS.innocent
def with_a_new_disk(run: SmallRun, draw: random.Random) -> None:
    """A node came back with an older term, for it has another disk."""
    _comes_back(run, "n1", "n1", "new-disk", before=False)


def _comes_back(run: SmallRun, node: str, lost: str, fault: str, *, before: bool) -> None:
    """A node is in its first term again; a disk is lost, after all votes or before the last."""
    first, *_, last = run.of("vote", node=node)
    at = last["t"] - 1 if before else END
    run.note("fault", at, fault=fault, node=lost)
    run.repeat(first, t=END + 10)


@PLANTS.fault(7, "incomplete")
def lacks_an_output(run: SmallRun, draw: random.Random) -> None:
    """A new leader's log ended where an acknowledged output stands."""
    lead = run.of("lead")[1]
    outputs = [a for a in run.of("ack", topic=OUTPUTS) if a["t"] < lead["began"]]
    lead["end_position"] = draw.choice(outputs)["position"]


@PLANTS.fault(8, "ahead")
def committed_over_a_gap(run: SmallRun, draw: random.Random) -> None:
    """A group has committed beyond a message that it was never given."""
    story = Story(run)
    messages = [story.send(0) for _ in range(5)]
    for message in (*messages[:2], *messages[3:]):
        story.read(message)
    story.commit(0, messages[4].offset + 1)


@PLANTS.fault(8, "back")
def back_behind_a_reset(run: SmallRun, draw: random.Random) -> None:
    """A tool set a group back, it went on, and then was where the tool had set it again."""
    story = Story(run)
    story.live(4)
    story.reset(0, story.ends[0] - 2)
    for message in story.stored[-2:]:
        story.read(message)
    story.commit(0, story.ends[0])
    story.look(0, offset=story.ends[0] - 2)


@PLANTS.innocent
def told_before_it_went_on(run: SmallRun, draw: random.Random) -> None:
    """A tool set a group back, which was there before it went on."""
    story = Story(run)
    story.live(4)
    story.reset(0, story.ends[0] - 2)
    story.look(0, offset=story.ends[0] - 2)
    for message in story.stored[-2:]:
        story.read(message)
    story.commit(0, story.ends[0])
    story.look(0, offset=story.ends[0])


@PLANTS.fault(9, "duplicate")
def duplicate_in_another_queue(run: SmallRun, draw: random.Random) -> None:
    """A message is once in each of two queues."""
    found = run.stored(acked(run, draw)["id"])
    queue_id = 1 - found.queue_id
    run.add(replace(found, queue_id=queue_id, offset=run.next_offset(queue_id)))


@PLANTS.fault(9, "duplicate")
def duplicate_of_a_large_one(run: SmallRun, draw: random.Random) -> None:
    """A message whose body is in parts names them twice."""
    run.add(replace(run.large(), offset=run.next_offset(0)))


@PLANTS.fault(9, "duplicate")
def committed_twice(run: SmallRun, draw: random.Random) -> None:
    """A transaction's message came into its topic twice."""
    send = draw.choice(run.of("send", transaction="commit"))
    found = run.stored(send["id"])
    run.add(replace(found, offset=run.next_offset(found.queue_id)))


@PLANTS.fault(10, "hidden")
def hidden_everywhere(run: SmallRun, draw: random.Random) -> None:
    """A transaction was committed, as was answered, and no node has it in its topic."""
    message_id = run.of("resolve", transaction="commit")[0]["id"]
    run.drop_all(message_id, TOPIC)
    run.events = [e for e in run.events if (e["kind"], e.get("id")) != ("deliver", message_id)]


@PLANTS.innocent
def delivered_at_its_end(run: SmallRun, draw: random.Random) -> None:
    """A message was noted a second after its end, by a consumer that stood still."""
    delivery = draw.choice(run.of("deliver", group=GROUP))
    last = max(each["t"] for each in run.of("deliver", id=delivery["id"]))
    for send in run.of("send", id=delivery["id"]):
        send["expires"] = last - 1_000 * MS


@PLANTS.fault(12, "stale")
def stale_for_outputs(run: SmallRun, draw: random.Random) -> None:
    """The end of the queue of outputs was answered to be before one that had been acknowledged."""
    _end_of_outputs(run, 0)


@PLANTS.innocent
def fresh_for_outputs(run: SmallRun, draw: random.Random) -> None:
    """The end of the queue of outputs was answered to be right behind the last."""
    _end_of_outputs(run, 1)


def _end_of_outputs(run: SmallRun, behind: int) -> None:
    ack = max(run.of("ack", topic=OUTPUTS), key=lambda each: int(each["offset"]))
    run.note_end(ack["queue_id"], ack["offset"] + behind, END, topic=OUTPUTS)


@PLANTS.fault(13, "incomplete")
def nearly_empty(run: SmallRun, draw: random.Random) -> None:
    """A node has nothing but the first leader's own entry."""
    del run.logs["n2"][1:]


@PLANTS.fault(15, "back")
def told_to_be_at_the_start(run: SmallRun, draw: random.Random) -> None:
    """A group that pops was answered at the end that it had popped nothing."""
    answer = draw.choice([e for e in run.of("group_offset", group=POPPERS) if e["offset"]])
    run.repeat(answer, began=END, t=END + 10, offset=0)


@PLANTS.fault(17, "served")
def served_by_a_pop(run: SmallRun, draw: random.Random) -> None:
    """A member of a group that was disabled popped a new message."""
    story = Story(run)
    story.act("put-group", group=LIVELY, enabled=False)
    story.read(story.send(0), asked=story.t + 1, pop_time=9)
    story.act("put-group", group=LIVELY, enabled=True)


@PLANTS.fault(17, "unasked")
def deleted_twice(run: SmallRun, draw: random.Random) -> None:
    """A log deletes a topic twice, and a tool asked for it once."""
    story = Story(run)
    story.delete()
    story.delete()
    run.events.remove(run.of("act", act="delete-topic")[-1])


@PLANTS.innocent
def deletion_repeated(run: SmallRun, draw: random.Random) -> None:
    """A request to delete a topic was repeated, and each of the two deleted it."""
    story = Story(run)
    story.live()
    run.add(control=change_by("delete-topic", topic=TOPIC))
    story.delete()


@PLANTS.innocent
def shut_for_another(run: SmallRun, draw: random.Random) -> None:
    """Another topic can't be written or read, another group is disabled."""
    story = Story(run)
    story.act("put-topic", topic=f"{TOPIC}2", perm=0)
    story.act("put-group", group=f"{LIVELY}2", enabled=False)
    story.live()


def _input_of(event: dict[str, object]) -> str:
    return str(event.get("id", "")).removesuffix("-output")
