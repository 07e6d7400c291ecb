"""Lies that somebody who has read the promises alone would try, and that are consistent in
themselves.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from mqspark.testing.declaring import Plants
from mqspark.testing.plants.content import acked
from mqspark.testing.plants.group import END, dead
from mqspark.testing.plants.life import Story
from mqspark.testing.small_runs import (
    DEAD_LETTERS,
    GROUP,
    NODES,
    PARTS_QUEUE,
    POPPERS,
    TOPIC,
    Entry,
    SmallRun,
)

PLANTS: Final = Plants[SmallRun]()


@PLANTS.fault(1, "altered")
def emptied(run: SmallRun, draw: random.Random) -> None:
    """All nodes have an acknowledged message without its body."""
    run.change_all(acked(run, draw)["id"], body=b"")


@PLANTS.fault(1, "altered")
def bodies_traded(run: SmallRun, draw: random.Random) -> None:
    """All nodes have two messages with each other's body."""
    first, second = draw.sample(run.of("ack", topic=TOPIC, waiting=None), 2)
    one, other = run.stored(first["id"]), run.stored(second["id"])
    assert one.body
    assert other.body
    run.change_all(one.id, of_topic=TOPIC, body=other.body)
    run.change_all(other.id, of_topic=TOPIC, body=one.body)


@PLANTS.fault(1, "lost")
def in_another_topic(run: SmallRun, draw: random.Random) -> None:
    """All nodes have an acknowledged message in a topic that nobody sent it to."""
    run.change_all(acked(run, draw)["id"], of_topic=TOPIC, topic="Others", offset=0)


@PLANTS.fault(1, "moved")
def acknowledged_twice(run: SmallRun, draw: random.Random) -> None:
    """A producer was answered a second place of its message, which is in no log."""
    ack = acked(run, draw)
    run.repeat(ack, t=END, offset=run.next_offset(ack["queue_id"]))


@PLANTS.fault(4, "vanished")
def delivered_from_elsewhere(run: SmallRun, draw: random.Random) -> None:
    """A group was given a message as the next one of a queue that has no such message."""
    delivery = draw.choice(run.of("deliver", group=GROUP))
    queue_id = 1 - delivery["queue_id"]
    run.repeat(delivery, queue_id=queue_id, offset=run.next_offset(queue_id), t=END)


@PLANTS.fault(2, "phantom")
def delivered_before_it_was_sent(run: SmallRun, draw: random.Random) -> None:
    """A group was given its first message a moment before anybody sent it."""
    delivery = draw.choice(run.of("deliver", group=GROUP, offset=0))
    delivery["t"] = run.of("send", id=delivery["id"])[0]["t"] - 1


@PLANTS.fault(1, "altered")
def parts_turned_round(run: SmallRun, draw: random.Random) -> None:
    """A large body's parts are named in another order."""
    fields, places = _named(run)
    _name(run, fields, ",".join(reversed(places.split(","))))


@PLANTS.fault(1, "altered")
def part_named_twice(run: SmallRun, draw: random.Random) -> None:
    """A large body names one of its parts twice."""
    fields, places = _named(run)
    _name(run, fields, f"{places},{places.split(',')[-1]}")


@PLANTS.fault(1, "altered")
def of_another_size(run: SmallRun, draw: random.Random) -> None:
    """A large body says that it has more bytes than its parts have."""
    fields, places = _named(run)
    _name(run, [fields[0], str(int(fields[1]) + 1), *fields[2:]], places)


@PLANTS.fault(1, "lost")
def parts_in_another_queue(run: SmallRun, draw: random.Random) -> None:
    """A large body names parts where there are none."""
    fields, places = _named(run)
    _name(run, [*fields[:5], str(PARTS_QUEUE + 1)], places)


@PLANTS.fault(1, "altered")
def consistently_another(run: SmallRun, draw: random.Random) -> None:
    """A large body, its parts and its checksum are those of something else."""
    fields, places = _named(run)
    _name(run, [*fields[:2], f"{int(fields[2], 16) ^ 1:08x}", *fields[3:]], places)


@PLANTS.fault(1, "altered")
def without_keys(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message without the keys that it was sent with."""
    run.change_all(acked(run, draw)["id"], keys="")


@PLANTS.fault(1, "altered")
def keys_in_capitals(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message with its keys in other letters."""
    run.change_all(acked(run, draw)["id"], keys="One two")


@PLANTS.fault(1, "altered")
def more_than_was_said(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message with a property that its sender did not give it."""
    run.change_all(acked(run, draw)["id"], own="red")


@PLANTS.fault(2, "altered")
def letter_altered(run: SmallRun, draw: random.Random) -> None:
    """A dead letter has another body than the message."""
    run.change_all(dead(run, draw), of_topic=DEAD_LETTERS, body=b"another!")


@PLANTS.fault(2, "altered")
def letter_altered_on_a_node(run: SmallRun, draw: random.Random) -> None:
    """A dead letter on one node has another body than the message."""
    run.change("n2", dead(run, draw), of_topic=DEAD_LETTERS, body=b"another!")


@PLANTS.innocent
def buried_again_after_a_reset(run: SmallRun, draw: random.Random) -> None:
    """A message was given up, its group set back, and it was given up once more."""
    settle = draw.choice(run.of("settle", how="dead"))
    found = run.stored(settle["id"], DEAD_LETTERS)
    run.add(replace(found, offset=run.count(DEAD_LETTERS)))
    place = {name: settle[name] for name in ("group", "topic", "queue_id")}
    run.note("reset", END + 10, client="tool", offset=0, began=END, **place)


@PLANTS.fault(15, "buried twice")
def buried_twice_beside_a_reset(run: SmallRun, draw: random.Random) -> None:
    """A message is among the dead letters twice, and another queue of the group was set back."""
    buried_again_after_a_reset(run, draw)
    run.events[-1]["queue_id"] = 1 - run.events[-1]["queue_id"]


@PLANTS.fault(15, "buried")
def buried_after_an_ack(run: SmallRun, draw: random.Random) -> None:
    """A message is among the dead letters, though an ack of it had counted."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    found = run.stored(settle["id"])
    run.add(replace(found, topic=DEAD_LETTERS, queue_id=0, offset=run.count(DEAD_LETTERS)))


@PLANTS.fault(15, "unburied")
def letter_of_another(run: SmallRun, draw: random.Random) -> None:
    """A dead letter has the name of another message."""
    run.change_all(dead(run, draw), of_topic=DEAD_LETTERS, id=f"{run.broker}-8888")


@PLANTS.innocent
def given_up_by_another_group(run: SmallRun, draw: random.Random) -> None:
    """A message that one group has acknowledged is another's dead letter."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    found = run.stored(settle["id"])
    run.add(replace(found, topic="%DLQ%strangers", queue_id=0, offset=0))


@PLANTS.fault(5, "disordered")
def index_twice(run: SmallRun, draw: random.Random) -> None:
    """On all nodes the last two entries have one index."""
    for node in NODES:
        run.logs[node].append(Entry(2, left_out=-1))


@PLANTS.fault(5, "changed")
def index_twice_in_two_terms(run: SmallRun, draw: random.Random) -> None:
    """On all nodes the last two entries have one index, and are of two terms."""
    for node in NODES:
        run.logs[node].append(Entry(3, left_out=-1))


@PLANTS.fault(1, "moved")
def entries_traded(run: SmallRun, draw: random.Random) -> None:
    """On all nodes two entries stand in each other's place."""
    log = run.logs["n0"]
    at = next(k for k in range(len(log) - 1) if log[k].messages and log[k].size != log[k + 1].size)
    assert any(run.of("ack", id=each.id) for each in log[at].messages)
    for own in run.logs.values():
        own[at], own[at + 1] = own[at + 1], own[at]


@PLANTS.fault(5, "disordered")
def term_falls_and_rises(run: SmallRun, draw: random.Random) -> None:
    """On all nodes one entry amid a term is of the term before."""
    log = run.logs["n0"]
    second = [k for k, entry in enumerate(log) if entry.term == 2]
    at = draw.choice(second[1:-1])
    for own in run.logs.values():
        own[at] = replace(own[at], term=1)


@PLANTS.fault(7, "unlogged")
def term_of_nobody(run: SmallRun, draw: random.Random) -> None:
    """All nodes have all entries of the second term as the first one's."""
    for node, own in run.logs.items():
        run.logs[node] = [replace(entry, term=1) for entry in own]


@PLANTS.innocent
def term_leaps(run: SmallRun, draw: random.Random) -> None:
    """A later term left nothing but its first entry, and others left nothing at all."""
    for own in run.logs.values():
        own.append(Entry(9))


@PLANTS.fault(8, "unlogged")
def committed_in_another_topic(run: SmallRun, draw: random.Random) -> None:
    """The logs have a group go on in another topic."""
    run.rewrite_control([GROUP, TOPIC], [GROUP, "Unheard"])


@PLANTS.fault(8, "unlogged")
def told_beyond_all_commits(run: SmallRun, draw: random.Random) -> None:
    """A node answered that a group goes on where nobody has committed."""
    commit = draw.choice(run.of("commit", group=GROUP))
    at = max(int(e["offset"]) for e in run.of("commit", group=GROUP, queue_id=commit["queue_id"]))
    run.repeat(commit, kind="group_offset", began=END, t=END + 10, offset=at + 1)


@PLANTS.fault(15, "unlogged")
def acked_for_another_group(run: SmallRun, draw: random.Random) -> None:
    """The logs have acknowledgements of what was popped, and of another group."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    place = [TOPIC, settle["queue_id"], settle["pop_time"], settle["offset"]]
    run.rewrite_control([POPPERS, *place], ["poppets", *place])


@PLANTS.fault(15, "unlogged")
def acked_at_another_offset(run: SmallRun, draw: random.Random) -> None:
    """The logs have an acknowledgement of the message beside the one that was acknowledged."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    place = [POPPERS, TOPIC, settle["queue_id"], settle["pop_time"]]
    beside = settle["offset"] ^ 1
    run.rewrite_control([*place, settle["offset"]], [*place, beside])


@PLANTS.fault(17, "admitted")
def admitted_to_wait(run: SmallRun, draw: random.Random) -> None:
    """A delayed message was taken while its topic could not be written."""
    story = Story(run)
    story.act("put-topic", topic=TOPIC, perm=4)
    story.wait()
    story.act("put-topic", topic=TOPIC, perm=6)


@PLANTS.fault(17, "shown")
def shown_by_a_pop(run: SmallRun, draw: random.Random) -> None:
    """A message was popped while its topic could not be read."""
    story = Story(run)
    message = story.send(0)
    story.act("put-topic", topic=TOPIC, perm=2)
    story.read(message, "strangers", asked=story.t + 1, pop_time=9)
    story.act("put-topic", topic=TOPIC, perm=6)


@PLANTS.fault(17, "unlogged")
def deleted_another(run: SmallRun, draw: random.Random) -> None:
    """A tool was answered that it deleted a topic, and the logs delete another."""
    Story(run).act("delete-topic", topic="Forgets")
    run.rewrite_control(["Forgets"], ["Forgery"])


@PLANTS.fault(17, "unlogged")
def enabled_instead(run: SmallRun, draw: random.Random) -> None:
    """A tool was answered that it disabled a group, and the logs have it enabled."""
    Story(run).act("put-group", group="quiet", enabled=False)
    run.rewrite_control(["consumeEnable", False], ["consumeEnable", True])


@PLANTS.innocent
def reset_to_where_it_stood(run: SmallRun, draw: random.Random) -> None:
    """A tool set a group to where it was."""
    story = Story(run)
    story.live()
    story.reset(0, story.ends[0])
    story.live(2)


def _named(run: SmallRun) -> tuple[list[str], str]:
    """The fields of a large body about its parts, and their places."""
    *fields, places = run.large().large.split(" ")
    return fields, places


def _name(run: SmallRun, fields: list[str], places: str) -> None:
    run.change_all(run.large().id, of_topic=TOPIC, large=" ".join([*fields, places]))
