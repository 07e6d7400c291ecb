"""Faults of leaders, queue ends, replicas, outputs and priorities, which few others are about."""

from __future__ import annotations

import random
from typing import Final

from mqspark.testing.declaring import Plants
from mqspark.testing.planting import Event
from mqspark.testing.plants.content import acked
from mqspark.testing.plants.group import END
from mqspark.testing.plants.life import Story
from mqspark.testing.small_runs import (
    GROUP,
    NODES,
    OUTPUTS,
    POPPERS,
    TOPIC,
    SmallRun,
)

PLANTS: Final = Plants[SmallRun]()


@PLANTS.fault(7, "incomplete")
def leads_an_empty_log(run: SmallRun, draw: random.Random) -> None:
    """A leader has nothing at all of what had been acknowledged before."""
    lead = run.of("lead")[-1]
    assert any(ack["t"] < lead["began"] for ack in run.of("ack"))
    lead["end_position"] = 0


@PLANTS.fault(7, "incomplete")
def lacks_what_waits(run: SmallRun, draw: random.Random) -> None:
    """A new leader's log ended where an acknowledged message waits."""
    lead = run.of("lead")[1]
    waiting = [a for a in run.of("ack", waiting=True) if a["t"] < lead["began"]]
    lead["end_position"] = draw.choice(waiting)["position"]


@PLANTS.fault(12, "stale")
def stale_long_after(run: SmallRun, draw: random.Random) -> None:
    """At the end of the run a node answers that a queue is empty."""
    ack = acked(run, draw)
    run.note_end(ack["queue_id"], 0, END)


@PLANTS.fault(12, "stale")
def stale_by_one(run: SmallRun, draw: random.Random) -> None:
    """The end of a queue is answered to be at its last message."""
    ack = max(run.of("ack", topic=TOPIC, waiting=None), key=lambda each: int(each["offset"]))
    run.note_end(ack["queue_id"], ack["offset"], END)


@PLANTS.innocent
def told_while_it_came(run: SmallRun, draw: random.Random) -> None:
    """A queue's end was asked for at the moment of an acknowledgement."""
    ack = acked(run, draw)
    run.note_end(ack["queue_id"], ack["offset"], ack["t"])


@PLANTS.fault(13, "incomplete")
def one_of_three(run: SmallRun, draw: random.Random) -> None:
    """Two nodes lack the end of the log, which only the third has, and which was acknowledged."""
    story = Story(run)
    story.send(0)
    for node in NODES[:2]:
        del run.logs[node][-1]


@PLANTS.fault(13, "different")
def another_change(run: SmallRun, draw: random.Random) -> None:
    """A node lacks a change of state that was answered, and nothing else."""
    story = Story(run)
    story.act("put-topic", topic="Other", perm=6)
    story.send(0)
    del run.logs["n1"][-2]


@PLANTS.fault(14, "missing")
def every_output_gone(run: SmallRun, draw: random.Random) -> None:
    """No log has any output, and the group has passed the inputs."""
    outputs = run.of("ack", topic=OUTPUTS)
    assert outputs
    for output in outputs:
        run.drop_all(output["id"], OUTPUTS)
    run.events = [e for e in run.events if e not in outputs]


@PLANTS.fault(14, "missing")
def output_of_another(run: SmallRun, draw: random.Random) -> None:
    """In the place of an output there is one of an input that nobody sent."""
    output = str(draw.choice(run.of("ack", topic=OUTPUTS))["id"])
    run.change_all(output, of_topic=OUTPUTS, id="z" * len(output))


@PLANTS.fault(16, "passed over")
def passed_over_by_all(run: SmallRun, draw: random.Random) -> None:
    """A message came last of all, though it was there before most."""
    new = [event for event in run.of("deliver", group=POPPERS) if "asked" in event]
    acks = {ack["id"]: ack["t"] for ack in run.of("ack", topic=TOPIC, waiting=None)}
    high = draw.choice([event for event in new if _is_below(event, new, acks)])
    high["asked"], high["t"] = END, END + 10


@PLANTS.fault(16, "misplaced")
def misplaced_by_far(run: SmallRun, draw: random.Random) -> None:
    """A message of the highest priority is in the queue of the lowest."""
    ack = draw.choice(run.of("ack", topic=TOPIC, waiting=None, queue_id=0))
    (send,) = run.of("send", id=ack["id"])
    send["priority"] = 2**31 - 1


@PLANTS.innocent
def of_the_last_queue(run: SmallRun, draw: random.Random) -> None:
    """A priority above the last queue is the last one's."""
    ack = draw.choice(run.of("ack", topic=TOPIC, waiting=None, queue_id=1))
    (send,) = run.of("send", id=ack["id"])
    send["priority"] = 2**31 - 1


@PLANTS.innocent
def popped_by_a_group_that_was_deleted(run: SmallRun, draw: random.Random) -> None:
    """A group was deleted, began anew, and was given what it had been through with."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    delivery = run.of("deliver", id=settle["id"], group=POPPERS)[-1]
    story = Story(run)
    story.act("delete-group", group=POPPERS)
    again = run.repeat(delivery, t=story.t + 1, pop_time=settle["pop_time"] + 1)
    again.pop("asked", None)


@PLANTS.innocent
def read_by_nobody_else(run: SmallRun, draw: random.Random) -> None:
    """The group was asked where it is, again and again, and did not move."""
    answer = draw.choice(run.of("group_offset", group=GROUP))
    own = {"group": GROUP, "queue_id": answer["queue_id"]}
    said = [*run.of("commit", **own), *run.of("group_offset", **own)]
    at = max(event["offset"] for event in said)
    for moment in range(END, END + 60, 20):
        run.repeat(answer, offset=at, began=moment, t=moment + 10)


def _is_below(high: Event, new: list[Event], acks: dict[str, int]) -> bool:
    """Whether one of a lower queue was asked for after this one had been acknowledged."""
    acked_t = acks.get(high["id"], END)
    return any(low["queue_id"] < high["queue_id"] and low["asked"] > acked_t for low in new)
