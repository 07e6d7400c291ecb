"""Lies that somebody who has read the promises alone would try, and that are consistent in
themselves.

Each is found by the word in `FOUND`, or is innocent (`NOTHING`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from mqspark.testing.plants.content import acked
from mqspark.testing.plants.group import END
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
    Stored,
)


def emptied(run: SmallRun, draw: random.Random) -> None:
    """All nodes have an acknowledged message without its body."""
    _change(run, acked(run, draw)["id"], body=b"")


def bodies_traded(run: SmallRun, draw: random.Random) -> None:
    """All nodes have two messages with each other's body."""
    first, second = draw.sample(run.of("ack", topic=TOPIC, waiting=None), 2)
    one, other = run.stored(first["id"]), run.stored(second["id"])
    assert one is not None
    assert other is not None
    assert one.body
    assert other.body
    _change(run, one.id, of_topic=TOPIC, body=other.body)
    _change(run, other.id, of_topic=TOPIC, body=one.body)


def in_another_topic(run: SmallRun, draw: random.Random) -> None:
    """All nodes have an acknowledged message in a topic that nobody sent it to."""
    _change(run, acked(run, draw)["id"], of_topic=TOPIC, topic="Others", offset=0)


def acknowledged_twice(run: SmallRun, draw: random.Random) -> None:
    """A producer was told a second place of its message, which is in no log."""
    ack = acked(run, draw)
    run.events.append({**ack, "t": END, "offset": run.next_offset(ack["queue_id"])})


def delivered_from_elsewhere(run: SmallRun, draw: random.Random) -> None:
    """A group was given a message as the next one of a queue that has no such message."""
    delivery = draw.choice(run.of("deliver", group=GROUP))
    queue_id = 1 - delivery["queue_id"]
    place = {"queue_id": queue_id, "offset": run.next_offset(queue_id)}
    run.events.append({**delivery, **place, "t": END})


def delivered_before_it_was_sent(run: SmallRun, draw: random.Random) -> None:
    """A group was given its first message a moment before anybody sent it."""
    delivery = draw.choice(run.of("deliver", group=GROUP, offset=0))
    delivery["t"] = run.of("send", id=delivery["id"])[0]["t"] - 1


def parts_turned_round(run: SmallRun, draw: random.Random) -> None:
    """A large body's parts are named in another order."""
    fields, places = _named(run)
    _name(run, fields, ",".join(reversed(places.split(","))))


def part_named_twice(run: SmallRun, draw: random.Random) -> None:
    """A large body names one of its parts twice."""
    fields, places = _named(run)
    _name(run, fields, f"{places},{places.split(',')[-1]}")


def of_another_size(run: SmallRun, draw: random.Random) -> None:
    """A large body says that it has more bytes than its parts have."""
    fields, places = _named(run)
    _name(run, [fields[0], str(int(fields[1]) + 1), *fields[2:]], places)


def parts_in_another_queue(run: SmallRun, draw: random.Random) -> None:
    """A large body names parts where there are none."""
    fields, places = _named(run)
    _name(run, [*fields[:5], str(PARTS_QUEUE + 1)], places)


def consistently_another(run: SmallRun, draw: random.Random) -> None:
    """A large body, its parts and its checksum are those of something else."""
    fields, places = _named(run)
    _name(run, [*fields[:2], f"{int(fields[2], 16) ^ 1:08x}", *fields[3:]], places)


def without_keys(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message without the keys that it was sent with."""
    _change(run, acked(run, draw)["id"], keys="")


def keys_in_capitals(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message with its keys in other letters."""
    _change(run, acked(run, draw)["id"], keys="One two")


def more_than_was_said(run: SmallRun, draw: random.Random) -> None:
    """All nodes have a message with a property that its sender did not give it."""
    _change(run, acked(run, draw)["id"], own="red")


def letter_altered(run: SmallRun, draw: random.Random) -> None:
    """A dead letter has another body than the message."""
    _change(run, _dead(run, draw), of_topic=DEAD_LETTERS, body=b"another!")


def letter_altered_on_a_node(run: SmallRun, draw: random.Random) -> None:
    """A dead letter on one node has another body than the message."""
    run.change("n2", _dead(run, draw), of_topic=DEAD_LETTERS, body=b"another!")


def buried_again_after_a_reset(run: SmallRun, draw: random.Random) -> None:
    """A message was given up, its group set back, and it was given up once more."""
    dead = draw.choice(run.of("settle", how="dead"))
    found = run.stored(dead["id"], DEAD_LETTERS)
    assert found is not None
    run.add(replace(found, offset=_letters(run)))
    place = {name: dead[name] for name in ("group", "topic", "broker", "queue_id")}
    run.events.append(
        {**place, "kind": "reset", "client": "tool", "offset": 0, "began": END, "t": END + 10}
    )


def buried_twice_beside_a_reset(run: SmallRun, draw: random.Random) -> None:
    """A message is among the dead letters twice, and another queue of the group was set back."""
    buried_again_after_a_reset(run, draw)
    run.events[-1]["queue_id"] = 1 - run.events[-1]["queue_id"]


def buried_after_an_ack(run: SmallRun, draw: random.Random) -> None:
    """A message is among the dead letters, though an ack of it had counted."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    found = run.stored(settle["id"])
    assert found is not None
    run.add(replace(found, topic=DEAD_LETTERS, queue_id=0, offset=_letters(run)))


def letter_of_another(run: SmallRun, draw: random.Random) -> None:
    """A dead letter has the name of another message."""
    _change(run, _dead(run, draw), of_topic=DEAD_LETTERS, id=f"{run.broker}-8888")


def given_up_by_another_group(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a message that one group has acknowledged is another's dead letter."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    found = run.stored(settle["id"])
    assert found is not None
    run.add(replace(found, topic="%DLQ%strangers", queue_id=0, offset=0))


def index_twice(run: SmallRun, draw: random.Random) -> None:
    """On all nodes the last two entries have one index."""
    for node in NODES:
        run.logs[node].append(Entry(2, left_out=-1))


def index_twice_in_two_terms(run: SmallRun, draw: random.Random) -> None:
    """On all nodes the last two entries have one index, and are of two terms."""
    for node in NODES:
        run.logs[node].append(Entry(3, left_out=-1))


def entries_traded(run: SmallRun, draw: random.Random) -> None:
    """On all nodes two entries stand in each other's place."""
    log = run.logs["n0"]
    at = next(k for k in range(len(log) - 1) if log[k].messages and log[k].size != log[k + 1].size)
    assert any(run.of("ack", id=each.id) for each in log[at].messages)
    for own in run.logs.values():
        own[at], own[at + 1] = own[at + 1], own[at]


def term_falls_and_rises(run: SmallRun, draw: random.Random) -> None:
    """On all nodes one entry amid a term is of the term before."""
    log = run.logs["n0"]
    second = [k for k, entry in enumerate(log) if entry.term == 2]
    at = draw.choice(second[1:-1])
    for own in run.logs.values():
        own[at] = replace(own[at], term=1)


def term_of_nobody(run: SmallRun, draw: random.Random) -> None:
    """All nodes have all entries of the second term as the first one's."""
    for node, own in run.logs.items():
        run.logs[node] = [replace(entry, term=1) for entry in own]


def term_leaps(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a later term left nothing but its first entry, and others left nothing at all."""
    for own in run.logs.values():
        own.append(Entry(9))


def committed_in_another_topic(run: SmallRun, draw: random.Random) -> None:
    """The logs have a group go on in another topic."""
    run.rewrite_control(_packed([GROUP, TOPIC]), _packed([GROUP, "Unheard"]))


def told_beyond_all_commits(run: SmallRun, draw: random.Random) -> None:
    """A node told that a group goes on where nobody has committed."""
    told = draw.choice(run.of("commit", group=GROUP))
    at = max(int(e["offset"]) for e in run.of("commit", group=GROUP, queue_id=told["queue_id"]))
    fields = {"kind": "group_offset", "began": END, "t": END + 10, "offset": at + 1}
    run.events.append({**told, **fields})


def acked_for_another_group(run: SmallRun, draw: random.Random) -> None:
    """The logs have acknowledgements of what was popped, and of another group."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    place = [TOPIC, settle["queue_id"], settle["pop_time"], settle["offset"]]
    run.rewrite_control(_packed([POPPERS, *place]), _packed(["poppets", *place]))


def acked_at_another_offset(run: SmallRun, draw: random.Random) -> None:
    """The logs have an acknowledgement of the message beside the one that was acknowledged."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    place = [POPPERS, TOPIC, settle["queue_id"], settle["pop_time"]]
    beside = settle["offset"] ^ 1
    run.rewrite_control(_packed([*place, settle["offset"]]), _packed([*place, beside]))


def admitted_to_wait(run: SmallRun, draw: random.Random) -> None:
    """A delayed message was taken while its topic could not be written."""
    story = Story(run)
    story.act("put-topic", topic=TOPIC, perm=4)
    story.wait()
    story.act("put-topic", topic=TOPIC, perm=6)


def shown_by_a_pop(run: SmallRun, draw: random.Random) -> None:
    """A message was popped while its topic could not be read."""
    story = Story(run)
    message = story.send(0)
    story.act("put-topic", topic=TOPIC, perm=2)
    story.read(message, "strangers", asked=story.t + 1, pop_time=9)
    story.act("put-topic", topic=TOPIC, perm=6)


def deleted_another(run: SmallRun, draw: random.Random) -> None:
    """A tool was answered that it deleted a topic, and the logs delete another."""
    Story(run).act("delete-topic", topic="Forgets")
    run.rewrite_control(_packed(["Forgets"]), _packed(["Forgery"]))


def enabled_instead(run: SmallRun, draw: random.Random) -> None:
    """A tool was answered that it disabled a group, and the logs have it enabled."""
    Story(run).act("put-group", group="quiet", enabled=False)
    run.rewrite_control(_packed(["consumeEnable", False]), _packed(["consumeEnable", True]))


def reset_to_where_it_stood(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a tool set a group to where it was."""
    story = Story(run)
    story.live()
    story.reset(0, story.ends[0])
    story.live(2)


def _change(
    run: SmallRun, message_id: str, *, of_topic: str | None = None, **fields: object
) -> None:
    for node in NODES:
        run.change(node, message_id, of_topic=of_topic, **fields)


def _large(run: SmallRun) -> Stored:
    return next(m for entry in run.logs["n0"] for m in entry.messages if m.large)


def _named(run: SmallRun) -> tuple[list[str], str]:
    """The fields of a large body about its parts, and their places."""
    *fields, places = _large(run).large.split(" ")
    return fields, places


def _name(run: SmallRun, fields: list[str], places: str) -> None:
    _change(run, _large(run).id, of_topic=TOPIC, large=" ".join([*fields, places]))


def _letters(run: SmallRun) -> int:
    """How many dead letters there are."""
    return sum(m.topic == DEAD_LETTERS for entry in run.logs["n0"] for m in entry.messages)


def _dead(run: SmallRun, draw: random.Random) -> str:
    return str(draw.choice(run.of("settle", how="dead"))["id"])


def _packed(fields: list[object]) -> bytes:
    """The fields as an entry has them, one after the other."""
    return b"".join(map(msgspec.msgpack.encode, fields))


_Plant = Callable[[SmallRun, random.Random], None]
FOUND: Final[tuple[tuple[int, str, _Plant], ...]] = (
    (1, "altered", emptied),
    (1, "altered", bodies_traded),
    (1, "lost", in_another_topic),
    (1, "moved", acknowledged_twice),
    (4, "vanished", delivered_from_elsewhere),
    (2, "phantom", delivered_before_it_was_sent),
    (1, "altered", parts_turned_round),
    (1, "altered", part_named_twice),
    (1, "altered", of_another_size),
    (1, "lost", parts_in_another_queue),
    (1, "altered", consistently_another),
    (1, "altered", without_keys),
    (1, "altered", keys_in_capitals),
    (1, "altered", more_than_was_said),
    (2, "altered", letter_altered),
    (2, "altered", letter_altered_on_a_node),
    (15, "buried", buried_after_an_ack),
    (15, "buried twice", buried_twice_beside_a_reset),
    (15, "unburied", letter_of_another),
    (5, "disordered", index_twice),
    (5, "changed", index_twice_in_two_terms),
    (1, "moved", entries_traded),
    (5, "disordered", term_falls_and_rises),
    (7, "unlogged", term_of_nobody),
    (8, "unlogged", committed_in_another_topic),
    (8, "unlogged", told_beyond_all_commits),
    (15, "unlogged", acked_for_another_group),
    (15, "unlogged", acked_at_another_offset),
    (17, "admitted", admitted_to_wait),
    (17, "shown", shown_by_a_pop),
    (17, "unlogged", deleted_another),
    (17, "unlogged", enabled_instead),
)
NOTHING: Final[tuple[_Plant, ...]] = (
    given_up_by_another_group,
    term_leaps,
    reset_to_where_it_stood,
    buried_again_after_a_reset,
)
