"""Faults in what tools do to topics and groups: deleted, made again, read-only, disabled, reset.

All of it happens behind the run, to groups of its own.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from dledger.checksum import crc32
from mqspark.testing.declaring import Plants
from mqspark.testing.planting import Event
from mqspark.testing.plants.group import END
from mqspark.testing.small_runs import SAID, SCHEDULE_TOPIC, TOPIC, SmallRun, Stored

PLANTS: Final = Plants[SmallRun]()

GROUP: Final = "lively"
BODY: Final = b"waiting!"
_STEP: Final = 1_000
READ, WRITE = 4, 2


class Story:
    """Events behind a run, one after the other."""

    def __init__(self, run: SmallRun) -> None:
        self.run = run
        self.t = (
            max(END, *(e["t"] for e in run.events if e["kind"] not in {"end", "reset"})) + _STEP
        )
        self.number = sum(e["kind"] == "send" for e in run.events)
        self.ends = {queue_id: run.next_offset(queue_id) for queue_id in range(2)}
        self.stored: list[Stored] = []

    def note(self, kind: str, **fields: object) -> Event:
        """An event, which takes a moment; `began` is before it."""
        began, self.t = self.t + _STEP, self.t + 2 * _STEP
        event = {"kind": kind, "t": self.t, **({"began": began} if kind not in _AT_ONCE else {})}
        self.run.events.append(event | {"broker": self.run.broker} | fields)
        return self.run.events[-1]

    def act(self, act: str, *, logged: bool = True, **fields: object) -> Event:
        """A tool's act, which is answered, and an entry of the logs."""
        if logged:
            self.run.add(control=change_by(act, **fields))
        return self.note("act", client="tool", act=act, done=True, **fields)

    def delete(self) -> None:
        """The topic is deleted, and made again."""
        self.act("delete-topic", topic=TOPIC)
        self.act("put-topic", topic=TOPIC, perm=READ | WRITE)
        self.ends = dict.fromkeys(self.ends, 0)
        self.stored.clear()

    def begin(self, body: bytes, **fields: object) -> str:
        """A message is sent; its id."""
        message_id = f"{self.run.broker}-later{self.number:03}"
        self.number += 1
        said = {"crc": crc32(body), "size": 8, "properties": SAID, "id": message_id}
        del self.note("send", client="p", topic=TOPIC, **said, **fields)["broker"]
        return message_id

    def store(self, message: Stored, **fields: object) -> None:
        """A message that was sent is stored, and acknowledged."""
        (position,) = self.run.add(message)
        named = {"id": message.id, "topic": TOPIC, "position": position}
        self.note("ack", client="p", **named, **self._place(message), **fields)

    def send(self, queue_id: int) -> Stored:
        """A message is sent, stored and acknowledged."""
        body = f"later{self.number:03}".encode()
        message = Stored(self.begin(body), TOPIC, queue_id, self.ends[queue_id], body)
        self.ends[queue_id] += 1
        self.store(message)
        self.stored.append(message)
        return message

    def wait(self) -> None:
        """A message is sent that waits for its time, and acknowledged."""
        message_id, offset = self.begin(BODY, due=self.t + _STEP), self.run.count(SCHEDULE_TOPIC)
        self.store(Stored(message_id, SCHEDULE_TOPIC, 0, offset, BODY), waiting=True)

    def read(self, message: Stored, group: str = GROUP, **fields: object) -> Event:
        """A group gets a message."""
        said = {"crc": message.crc, "properties": SAID, "id": message.id, "topic": TOPIC}
        return self.note(
            "deliver", client=f"c-{group}", group=group, **said, **self._place(message), **fields
        )

    def commit(self, queue_id: int, offset: int, group: str = GROUP) -> Event:
        """A group goes on at an offset."""
        self.run.add(control=("commit_offsets", {"offsets": [[group, TOPIC, queue_id, offset]]}))
        where = {"topic": TOPIC, "queue_id": queue_id, "offset": offset}
        return self.note("commit", client=f"c-{group}", group=group, **where)

    def look(self, queue_id: int, group: str = GROUP, **fields: object) -> Event:
        """The end of a queue is asked for, and where the group is."""
        where = {"topic": TOPIC, "queue_id": queue_id, "node": "n1"}
        self.note("queue_end", offset=self.ends[queue_id], **where)
        return self.note("group_offset", group=group, **where, **fields)

    def reset(self, queue_id: int, offset: int, group: str = GROUP) -> Event:
        """A tool has a group go on at an offset."""
        self.run.add(control=("commit_offsets", {"offsets": [[group, TOPIC, queue_id, offset]]}))
        where = {"topic": TOPIC, "queue_id": queue_id, "offset": offset}
        return self.note("reset", client="tool", group=group, **where)

    def _place(self, message: Stored) -> dict[str, object]:
        return {"queue_id": message.queue_id, "offset": message.offset}

    def live(self, count: int = 4) -> None:
        """Messages are sent to queue 0, read and committed."""
        for message in [self.send(0) for _ in range(count)]:
            self.read(message)
        self.commit(0, self.ends[0])
        self.look(0, offset=self.ends[0])


_AT_ONCE: Final = {"send", "ack", "deliver"}


def change_by(act: str, **fields: object) -> tuple[str, dict[str, object]]:
    """The change of state that a tool's act is."""
    match act:
        case "put-topic":
            config = {"topicName": fields["topic"], "perm": fields.get("perm", 6)}
            return "put_topics", {"topics": [config], "now_ms": 1}
        case "delete-topic":
            return "delete_topic", {"topic": fields["topic"], "now_ms": 1}
        case "put-group":
            config = {"groupName": fields["group"], "consumeEnable": fields.get("enabled", True)}
            return "put_groups", {"groups": [config], "now_ms": 1}
        case _:
            return "delete_group", {"group": fields["group"], "with_offsets": True, "now_ms": 1}


@PLANTS.innocent
def lives(run: SmallRun, draw: random.Random) -> None:
    """A topic lives two or three times, and each life is read, committed, looked at."""
    story = Story(run)
    story.live(draw.randint(1, 5))
    for _ in range(draw.randint(1, 2)):
        story.delete()
        story.live(draw.randint(1, 5))


@PLANTS.fault(4, "vanished")
def vanished_before_lives(run: SmallRun, draw: random.Random) -> None:
    """A group was given what no log has, and no answer gave a place of, before a deletion."""
    story = Story(run)
    message = story.send(0)
    story.read(message)
    run.events.remove(run.of("ack", id=message.id)[0])
    run.drop_all(message.id)
    story.delete()
    story.live()


@PLANTS.innocent
def unnoted_lives(run: SmallRun, draw: random.Random) -> None:
    """The answer to a deletion was lost."""
    lives(run, draw)
    for act in run.of("act", act="delete-topic"):
        del act["done"]


@PLANTS.innocent
def stored_in_both_lives(run: SmallRun, draw: random.Random) -> None:
    """A send whose answer was lost was repeated, and is stored in the next life, too."""
    story = Story(run)
    message = story.send(0)
    run.events.remove(run.of("ack", id=message.id)[0])
    story.delete()
    story.ends[0] = 1
    run.add(replace(message, offset=0))
    story.live()


@PLANTS.innocent
def dropped_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """A topic was deleted, and so what waited for its time comes to nothing."""
    story = Story(run)
    story.wait()
    story.delete()
    story.live()


@PLANTS.fault(11, "missing")
def forgotten_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """A message that waits in the second life never comes."""
    story = Story(run)
    story.live()
    story.delete()
    story.wait()


@PLANTS.fault(3, "contested")
def contested_in_a_life(run: SmallRun, draw: random.Random) -> None:
    """Two messages have one offset of the same, second life."""
    story = Story(run)
    story.live()
    story.delete()
    story.live()
    story.ends[0] -= 1
    story.send(0)


@PLANTS.fault(4, "hole")
def hole_in_a_life(run: SmallRun, draw: random.Random) -> None:
    """A second life has no first message."""
    story = Story(run)
    story.live()
    story.delete()
    story.ends[0] = 1
    story.live()


@PLANTS.fault(4, "skipped")
def skipped_in_a_life(run: SmallRun, draw: random.Random) -> None:
    """A group was given what was at this offset in the first life, and not in the second."""
    story = Story(run)
    story.live(5)
    story.delete()
    story.live(5)
    run.events.remove(run.of("deliver", id=story.stored[draw.randint(1, 3)].id)[0])


@PLANTS.fault(8, "back")
def back_in_a_life(run: SmallRun, draw: random.Random) -> None:
    """A group went back within the second life."""
    story = Story(run)
    story.live()
    story.delete()
    story.live()
    story.look(0, offset=story.ends[0] - 1)


@PLANTS.fault(12, "stale")
def stale_in_a_life(run: SmallRun, draw: random.Random) -> None:
    """The end of a queue was answered too low in the second life."""
    story = Story(run)
    story.live(2)
    story.delete()
    story.live(3)
    story.ends[0] -= 1
    story.look(0, offset=3)


@PLANTS.fault(1, "lost")
def lost_in_a_life(run: SmallRun, draw: random.Random) -> None:
    """A node lacks a message that was acknowledged in the first life."""
    story = Story(run)
    victim = story.send(0)
    story.live()
    story.delete()
    story.live()
    run.drop("n1", victim.id)


@PLANTS.fault(3, "contested")
def begun_anew(run: SmallRun, draw: random.Random) -> None:
    """A topic's queue begins at 0 again, and nobody has deleted the topic."""
    story = Story(run)
    story.live()
    story.ends[0] = 0
    story.live(2)


@PLANTS.fault(17, "admitted")
def admitted(run: SmallRun, draw: random.Random) -> None:
    """A send to a topic that could not be written was acknowledged."""
    story = Story(run)
    story.live()
    story.act("put-topic", topic=TOPIC, perm=READ)
    story.send(0)
    story.act("put-topic", topic=TOPIC, perm=READ | WRITE)


@PLANTS.fault(17, "shown")
def shown(run: SmallRun, draw: random.Random) -> None:
    """A message was delivered that had been sent to a topic that could not be read."""
    story = Story(run)
    story.live()
    story.act("put-topic", topic=TOPIC, perm=WRITE)
    story.read(story.send(0))


@PLANTS.fault(17, "served")
def served(run: SmallRun, draw: random.Random) -> None:
    """A group that was disabled got a new message."""
    story = Story(run)
    story.live()
    story.act("put-group", group=GROUP, enabled=False)
    story.read(story.send(0))
    story.act("put-group", group=GROUP, enabled=True)


@PLANTS.fault(17, "revived")
def revived(run: SmallRun, draw: random.Random) -> None:
    """A member popped what had been deleted with its topic."""
    story = Story(run)
    message = story.send(0)
    story.delete()
    story.read(message, "revivers", asked=story.t + 1, pop_time=9)


@PLANTS.fault(17, "unlogged")
def act_nowhere(run: SmallRun, draw: random.Random) -> None:
    """An act was answered, and no log has it."""
    story = Story(run)
    if draw.random() < 0.5:
        story.act("put-group", logged=False, group=GROUP, enabled=False)
    else:
        story.act("delete-group", logged=False, group=GROUP)
    story.act("put-topic", topic=TOPIC, perm=READ | WRITE)


@PLANTS.fault(17, "unlogged")
def another_permission(run: SmallRun, draw: random.Random) -> None:
    """A topic was made read-only, as was answered, and a log has another permission."""
    story = Story(run)
    story.act("put-topic", topic=TOPIC, perm=READ | WRITE)
    story.act("put-topic", logged=False, topic=TOPIC, perm=READ)


@PLANTS.fault(17, "unasked")
def unasked(run: SmallRun, draw: random.Random) -> None:
    """A log deletes a topic, and nobody asked for that."""
    story = Story(run)
    story.delete()
    run.events.remove(run.of("act", act="delete-topic")[-1])


@PLANTS.fault(4, "skipped")
def skipped_beside_a_reset(run: SmallRun, draw: random.Random) -> None:
    """A tool has a group go on at one offset, and it goes on behind that."""
    story = Story(run)
    messages = [story.send(0) for _ in range(6)]
    story.read(messages[0])
    story.reset(0, messages[3].offset)
    for message in messages[4:]:
        story.read(message)


@PLANTS.fault(8, "ahead")
def committed_beside_a_reset(run: SmallRun, draw: random.Random) -> None:
    """A group commits beyond what a reset and its deliveries allow."""
    story = Story(run)
    messages = [story.send(0) for _ in range(6)]
    story.read(messages[0])
    story.reset(0, messages[3].offset)
    story.read(messages[3])
    story.commit(0, messages[5].offset)


@PLANTS.innocent
def set_forward(run: SmallRun, draw: random.Random) -> None:
    """A tool has a group skip messages, which it reads when it was set back later."""
    story = Story(run)
    messages = [story.send(0) for _ in range(6)]
    story.read(messages[0])
    story.commit(0, messages[1].offset)
    story.reset(0, messages[3].offset)
    story.commit(0, messages[3].offset)
    for message in messages[3:]:
        story.read(message)
    story.commit(0, messages[5].offset + 1)
    if draw.random() < 0.5:
        story.reset(0, messages[1].offset)
        for message in messages[1:]:
            story.read(message)
        story.commit(0, messages[5].offset + 1)


@PLANTS.innocent
def closed_and_opened(run: SmallRun, draw: random.Random) -> None:
    """Sends are refused while a topic can't be written, and taken before and after."""
    story = Story(run)
    message = story.send(0)
    closing = story.act("put-topic", topic=TOPIC, perm=READ)
    run.of("ack", id=message.id)[0]["t"] = closing["t"] + 1
    story.t += _STEP
    opening = story.act("put-topic", topic=TOPIC, perm=READ | WRITE)
    message = story.send(0)
    if draw.random() < 0.5:
        run.of("send", id=message.id)[0]["t"] = opening["began"] - 1
    for event in run.of("act", act="put-topic"):
        if draw.random() < 0.2:
            event.pop("done", None)


@PLANTS.innocent
def disabled_on_the_way(run: SmallRun, draw: random.Random) -> None:
    """A group got what had been sent before it was disabled."""
    story = Story(run)
    message = story.send(0)
    story.act("put-group", group=GROUP, enabled=False)
    story.read(message)
    later = story.send(0)
    story.act("put-group", group=GROUP, enabled=True)
    story.read(later)


@PLANTS.innocent
def group_made_again(run: SmallRun, draw: random.Random) -> None:
    """A group was deleted, and began anew somewhere."""
    story = Story(run)
    story.live(5)
    story.act("delete-group", group=GROUP)
    for message in [story.send(0) for _ in range(4)][2:]:
        story.read(message)
    story.look(0, offset=0)
