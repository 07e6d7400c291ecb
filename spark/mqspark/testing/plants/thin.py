"""Faults of leaders, queue ends, replicas, outputs and priorities, which few others are about.

Each is found by the word in `FOUND`, or is innocent (`NOTHING`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

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


def leads_an_empty_log(run: SmallRun, draw: random.Random) -> None:
    """A leader has nothing at all of what had been acknowledged before."""
    lead = run.of("lead")[-1]
    assert any(ack["t"] < lead["began"] for ack in run.of("ack"))
    lead["end_position"] = 0


def lacks_what_waits(run: SmallRun, draw: random.Random) -> None:
    """A new leader's log ended where an acknowledged message waits."""
    lead = run.of("lead")[1]
    waiting = [a for a in run.of("ack", waiting=True) if a["t"] < lead["began"]]
    lead["end_position"] = draw.choice(waiting)["position"]


def stale_long_after(run: SmallRun, draw: random.Random) -> None:
    """At the end of the run a node tells that a queue is empty."""
    ack = acked(run, draw)
    place = {"broker": run.broker, "topic": TOPIC, "queue_id": ack["queue_id"], "node": "n2"}
    run.events.append({"kind": "queue_end", "offset": 0, "began": END, "t": END + 10, **place})


def stale_by_one(run: SmallRun, draw: random.Random) -> None:
    """The end of a queue is told to be at its last message."""
    ack = max(run.of("ack", topic=TOPIC, waiting=None), key=lambda each: int(each["offset"]))
    place = {"broker": run.broker, "topic": TOPIC, "queue_id": ack["queue_id"]}
    told = {"offset": ack["offset"], "began": END, "t": END + 10}
    run.events.append({"kind": "queue_end", **told, **place})


def told_while_it_came(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a queue's end was asked for at the moment of an acknowledgement."""
    ack = acked(run, draw)
    place = {"broker": run.broker, "topic": TOPIC, "queue_id": ack["queue_id"]}
    told = {"offset": ack["offset"], "began": ack["t"], "t": ack["t"] + 20}
    run.events.append({"kind": "queue_end", **told, **place})


def one_of_three(run: SmallRun, draw: random.Random) -> None:
    """Two nodes lack the end of the log, which only the third has, and which was acknowledged."""
    story = Story(run)
    story.send(0)
    for node in NODES[:2]:
        del run.logs[node][-1]


def another_change(run: SmallRun, draw: random.Random) -> None:
    """A node lacks a change of state that was answered, and nothing else."""
    story = Story(run)
    story.act("put-topic", topic="Other", perm=6)
    story.send(0)
    del run.logs["n1"][-2]


def every_output_gone(run: SmallRun, draw: random.Random) -> None:
    """No log has any output, and the group has passed the inputs."""
    outputs = run.of("ack", topic=OUTPUTS)
    assert outputs
    for output in outputs:
        for node in NODES:
            run.drop(node, output["id"], OUTPUTS)
    run.events = [e for e in run.events if e not in outputs]


def output_of_another(run: SmallRun, draw: random.Random) -> None:
    """In the place of an output there is one of an input that nobody sent."""
    output = str(draw.choice(run.of("ack", topic=OUTPUTS))["id"])
    for node in NODES:
        run.change(node, output, of_topic=OUTPUTS, id="z" * len(output))


def passed_over_by_all(run: SmallRun, draw: random.Random) -> None:
    """A message came last of all, though it was there before most."""
    new = [event for event in run.of("deliver", group=POPPERS) if "asked" in event]
    acks = {ack["id"]: ack["t"] for ack in run.of("ack", topic=TOPIC, waiting=None)}
    high = draw.choice([event for event in new if _is_below(event, new, acks)])
    high["asked"], high["t"] = END, END + 10


def misplaced_by_far(run: SmallRun, draw: random.Random) -> None:
    """A message of the highest priority is in the queue of the lowest."""
    ack = draw.choice(run.of("ack", topic=TOPIC, waiting=None, queue_id=0))
    (send,) = run.of("send", id=ack["id"])
    send["priority"] = 2**31 - 1


def of_the_last_queue(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a priority above the last queue is the last one's."""
    ack = draw.choice(run.of("ack", topic=TOPIC, waiting=None, queue_id=1))
    (send,) = run.of("send", id=ack["id"])
    send["priority"] = 2**31 - 1


def popped_by_a_group_that_was_deleted(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a group was deleted, began anew, and was given what it had been through with."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    delivery = run.of("deliver", id=settle["id"], group=POPPERS)[-1]
    story = Story(run)
    story.act("delete-group", group=POPPERS)
    again = {**delivery, "t": story.t + 1, "pop_time": settle["pop_time"] + 1}
    run.events.append({name: value for name, value in again.items() if name != "asked"})


def read_by_nobody_else(run: SmallRun, draw: random.Random) -> None:
    """Innocent: the group was asked where it is, again and again, and did not move."""
    told = draw.choice(run.of("group_offset", group=GROUP))
    own = {"group": GROUP, "queue_id": told["queue_id"]}
    said = [*run.of("commit", **own), *run.of("group_offset", **own)]
    told = {**told, "offset": max(event["offset"] for event in said)}
    for moment in range(3):
        times = {"began": END + 20 * moment, "t": END + 20 * moment + 10}
        run.events.append({**told, **times})


def _is_below(high: Event, new: list[Event], acks: dict[str, int]) -> bool:
    """Whether one of a lower queue was asked for after this one had been acknowledged."""
    acked_t = acks.get(high["id"], END)
    return any(low["queue_id"] < high["queue_id"] and low["asked"] > acked_t for low in new)


_Plant = Callable[[SmallRun, random.Random], None]
FOUND: Final[tuple[tuple[int, str, _Plant], ...]] = (
    (7, "incomplete", leads_an_empty_log),
    (7, "incomplete", lacks_what_waits),
    (12, "stale", stale_long_after),
    (12, "stale", stale_by_one),
    (13, "incomplete", one_of_three),
    (13, "different", another_change),
    (14, "missing", every_output_gone),
    (14, "missing", output_of_another),
    (16, "passed over", passed_over_by_all),
    (16, "misplaced", misplaced_by_far),
)
NOTHING: Final[tuple[_Plant, ...]] = (
    told_while_it_came,
    of_the_last_queue,
    popped_by_a_group_that_was_deleted,
    read_by_nobody_else,
)
