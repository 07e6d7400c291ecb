"""Faults in what tools set: forbidden in other ways, done differently or unasked.

All of it happens behind the run.
"""

from __future__ import annotations

import random
from typing import Final

from mqspark.testing.declaring import Plants
from mqspark.testing.plants.life import GROUP, READ, WRITE, Story, change_by
from mqspark.testing.small_runs import GROUP as READERS
from mqspark.testing.small_runs import TOPIC, SmallRun

PLANTS: Final = Plants[SmallRun]()


@PLANTS.fault(17, "unasked")
def group_deleted_unasked(run: SmallRun, draw: random.Random) -> None:
    """The logs delete a group, and nobody asked for that."""
    run.add(control=change_by("delete-group", group=READERS))


@PLANTS.fault(17, "unasked")
def group_deleted_for_another(run: SmallRun, draw: random.Random) -> None:
    """The logs delete a group, and a tool asked to delete another."""
    group_deleted_unasked(run, draw)
    Story(run).act("delete-group", group=f"{READERS}2")


@PLANTS.fault(17, "unasked")
def group_deleted_elsewhere(run: SmallRun, draw: random.Random) -> None:
    """The logs delete a group, which a tool asked of another broker group."""
    group_deleted_unasked(run, draw)
    Story(run).act("delete-group", logged=False, group=READERS)["broker"] = "another"


@PLANTS.fault(17, "unasked")
def closed_unasked(run: SmallRun, draw: random.Random) -> None:
    """The logs make a topic read-only, and nobody asked for that."""
    _put_topic(run, READ)


@PLANTS.fault(17, "unasked")
def unreadable_unasked(run: SmallRun, draw: random.Random) -> None:
    """The logs make a topic unreadable, and a tool asked to make it read-only."""
    Story(run).act("put-topic", topic=TOPIC, perm=READ)
    _put_topic(run, WRITE)


@PLANTS.fault(17, "unasked")
def shut_unasked(run: SmallRun, draw: random.Random) -> None:
    """The logs forbid all with a topic, of which a tool asked for each half."""
    story = Story(run)
    story.act("put-topic", topic=TOPIC, perm=READ)
    story.act("put-topic", topic=TOPIC, perm=WRITE)
    _put_topic(run, 0)


@PLANTS.fault(17, "unasked")
def disabled_unasked(run: SmallRun, draw: random.Random) -> None:
    """The logs disable a group that a tool asked to enable."""
    story = Story(run)
    story.act("put-group", group=READERS, enabled=True)
    run.add(control=change_by("put-group", group=READERS, enabled=False))


@PLANTS.innocent
def others_closed_unasked(run: SmallRun, draw: random.Random) -> None:
    """The logs close a topic, and disable and delete groups, that no client tells of."""
    run.add(control=change_by("put-topic", topic="Others", perm=0))
    run.add(control=change_by("put-group", group="silent", enabled=False))
    run.add(control=change_by("delete-group", group="silent"))


@PLANTS.innocent
def closed_by_a_lost_act(run: SmallRun, draw: random.Random) -> None:
    """A tool got no answer, and what it asked for came about: a topic is read-only, a
    group deleted."""
    story = Story(run)
    del story.act("put-topic", topic=TOPIC, perm=READ)["done"]
    del story.act("delete-group", group=GROUP)["done"]


@PLANTS.innocent
def opened_unasked(run: SmallRun, draw: random.Random) -> None:
    """A broker made a topic anew as it is, and one that may inherit."""
    _put_topic(run, READ | WRITE)
    _put_topic(run, READ | WRITE | 1)


def _put_topic(run: SmallRun, perm: int) -> None:
    run.add(control=change_by("put-topic", topic=TOPIC, perm=perm))


@PLANTS.fault(17, "admitted")
def admitted_after_a_second_closing(run: SmallRun, draw: random.Random) -> None:
    """A topic was closed twice, and a send between the two was acknowledged."""
    story = Story(run)
    story.act("put-topic", topic=TOPIC, perm=READ)
    story.send(0)
    story.act("put-topic", topic=TOPIC, perm=READ)


@PLANTS.fault(17, "admitted")
def admitted_beside_another_topic(run: SmallRun, draw: random.Random) -> None:
    """A send to a closed topic was acknowledged, after another topic had been opened."""
    story = Story(run)
    story.act("put-topic", topic=TOPIC, perm=READ)
    story.act("put-topic", topic=f"{TOPIC}2", perm=READ | WRITE)
    story.send(1)


@PLANTS.fault(17, "admitted")
def admitted_where_all_is_forbidden(run: SmallRun, draw: random.Random) -> None:
    """A send was acknowledged by a topic that could be neither written nor read."""
    story = Story(run)
    story.act("put-topic", topic=TOPIC, perm=0)
    story.send(1)


@PLANTS.fault(17, "shown")
def shown_where_all_is_forbidden(run: SmallRun, draw: random.Random) -> None:
    """A message was delivered by a topic that could be neither written nor read."""
    story = Story(run)
    story.act("put-topic", topic=TOPIC, perm=0)
    story.read(story.send(1))


@PLANTS.fault(17, "shown")
def shown_to_another_group(run: SmallRun, draw: random.Random) -> None:
    """A message of an unreadable topic was delivered, to a group that had just been enabled."""
    story = Story(run)
    story.act("put-topic", topic=TOPIC, perm=WRITE)
    story.act("put-group", group="strangers", enabled=True)
    story.read(story.send(1), "strangers")


@PLANTS.fault(17, "served")
def served_beside_another_group(run: SmallRun, draw: random.Random) -> None:
    """A disabled group got a message, after another one had been enabled."""
    story = Story(run)
    story.act("put-group", group=GROUP, enabled=False)
    story.act("put-group", group="strangers", enabled=True)
    story.read(story.send(0))


@PLANTS.fault(17, "served")
def served_after_a_second_disabling(run: SmallRun, draw: random.Random) -> None:
    """A group was disabled twice, and got a message between the two."""
    story = Story(run)
    story.act("put-group", group=GROUP, enabled=False)
    story.read(story.send(0))
    story.act("put-group", group=GROUP, enabled=False)


@PLANTS.fault(17, "revived")
def revived_after_two_lives(run: SmallRun, draw: random.Random) -> None:
    """A member popped in a topic's third life what its first had."""
    story = Story(run)
    message = story.send(0)
    story.delete()
    story.live(2)
    story.delete()
    story.read(message, "revivers", asked=story.t + 1, pop_time=9)


@PLANTS.fault(17, "unlogged")
def deletion_nowhere(run: SmallRun, draw: random.Random) -> None:
    """A topic's deletion was answered, and no log has it."""
    Story(run).act("delete-topic", logged=False, topic="Others")


@PLANTS.fault(17, "unlogged")
def deleted_another_group(run: SmallRun, draw: random.Random) -> None:
    """A tool was answered that it deleted a group, and the logs delete another."""
    story = Story(run)
    story.act("delete-group", group="strangers")
    run.rewrite_control(["strangers"], ["strongers"])


@PLANTS.fault(17, "unlogged")
def disabled_instead(run: SmallRun, draw: random.Random) -> None:
    """A tool was answered that it enabled a group, and the logs have it disabled."""
    story = Story(run)
    story.act("put-group", group="quiet", enabled=False)
    story.act("put-group", logged=False, group="quiet", enabled=True)


@PLANTS.fault(17, "unlogged")
def put_another(run: SmallRun, draw: random.Random) -> None:
    """A tool was answered that it made a topic, and the logs have another."""
    Story(run).act("put-topic", topic="Wanted", perm=READ | WRITE)
    run.rewrite_control(["Wanted"], ["Wasted"])


@PLANTS.fault(17, "unasked")
def deleted_a_third_time(run: SmallRun, draw: random.Random) -> None:
    """The logs delete a topic three times, which is made again each time, and a tool asked for two
    deletions."""
    story = Story(run)
    for _ in range(3):
        story.delete()
        story.live(2)
    run.events.remove(run.of("act", act="delete-topic")[-1])


@PLANTS.fault(17, "unasked")
def deleted_elsewhere(run: SmallRun, draw: random.Random) -> None:
    """The logs delete a topic, which a tool asked of another broker group."""
    story = Story(run)
    story.delete()
    story.live(2)
    run.of("act", act="delete-topic")[-1]["broker"] = "another"
