"""Faults that both judges once passed: of leaders and votes, ends of queues, topics and tools."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from mqspark.testing.declaring import Plants
from mqspark.testing.plants.content import acked
from mqspark.testing.plants.group import END
from mqspark.testing.small_runs import (
    NODES,
    OUTPUTS,
    OUTPUTS_QUEUE,
    POPPERS,
    TOPIC,
    Entry,
    SmallRun,
    Stored,
)

PLANTS: Final = Plants[SmallRun]()


@PLANTS.fault(6, "unelected")
def led_against_its_vote(run: SmallRun, draw: random.Random) -> None:
    """A node led in a term in which all had voted for another, itself included."""
    lead = draw.choice(run.of("lead"))
    lead["node"] = draw.choice([node for node in NODES if node != lead["node"]])


@PLANTS.fault(6, "unelected")
def voted_after_it_led(run: SmallRun, draw: random.Random) -> None:
    """A leader's vote for another was read only long after it had led."""
    lead = draw.choice(run.of("lead"))
    (own,) = run.of("vote", node=lead["node"], term=lead["term"])
    own.update(vote="n2", t=END)


@PLANTS.fault(6, "forgotten")
def forgot_its_vote(run: SmallRun, draw: random.Random) -> None:
    """A node had voted in a term, and came back without a vote in it."""
    vote = draw.choice(run.of("vote", term=2))
    run.repeat(vote, t=END, vote=None)


@PLANTS.fault(6, "forgotten")
def forgot_beside_another_disk(run: SmallRun, draw: random.Random) -> None:
    """A node came back without its vote, and the disk of another had been taken away."""
    run.note("fault", END - 1, fault="wipe", node="n2")
    run.repeat(run.of("vote", node="n0", term=2)[0], t=END, vote=None)


@PLANTS.innocent
def forgot_with_its_disk(run: SmallRun, draw: random.Random) -> None:
    """A node came back without its vote, as its disk had been taken away."""
    forgot_beside_another_disk(run, draw)
    run.events[-1]["node"] = "n2"


@PLANTS.innocent
def led_without_a_vote(run: SmallRun, draw: random.Random) -> None:
    """Nobody has read a leader's vote, or only that it had none yet."""
    lead = draw.choice(run.of("lead"))
    (own,) = run.of("vote", node=lead["node"], term=lead["term"])
    own["vote"] = None
    if draw.random() < 0.5:
        run.events.remove(own)


@PLANTS.fault(12, "beyond")
def ends_beyond_its_log(run: SmallRun, draw: random.Random) -> None:
    """A node answered that a queue has a message more than all logs."""
    queue_id = draw.randrange(2)
    run.note_end(queue_id, run.next_offset(queue_id) + 1, END)


@PLANTS.fault(12, "beyond")
def ends_beyond_where_none_is(run: SmallRun, draw: random.Random) -> None:
    """A node answered an end of a queue in which nothing ever was."""
    run.note_end(OUTPUTS_QUEUE + 1, 1, END, topic=OUTPUTS)


@PLANTS.fault(12, "beyond")
def ends_far_beyond(run: SmallRun, draw: random.Random) -> None:
    """A node answered the end of a queue of outputs that is behind every offset."""
    run.note_end(OUTPUTS_QUEUE, 2**61 - 1, END, topic=OUTPUTS)


@PLANTS.innocent
def ends_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """A node answered an end that only its own log has, in a tail."""
    end = run.next_offset(1)
    message = run.another(run.stored(acked(run, draw)["id"]), queue_id=1, offset=end)
    run.logs["n1"].append(Entry(2, (message,)))
    run.note_end(1, end + 1, END)


@PLANTS.innocent
def ends_where_logs_do(run: SmallRun, draw: random.Random) -> None:
    """A node answered at last that a queue ends behind its last message."""
    run.note_end(0, run.next_offset(0), END)


@PLANTS.fault(15, "beyond")
def popped_beyond(run: SmallRun, draw: random.Random) -> None:
    """A group that pops was answered to go on behind a message that was never there."""
    _pops_on(run, draw, 1)


@PLANTS.fault(15, "beyond")
def popped_far_beyond(run: SmallRun, draw: random.Random) -> None:
    """A group that pops was answered to go on behind all offsets."""
    _pops_on(run, draw, 2**40)


@PLANTS.innocent
def popped_to_the_end(run: SmallRun, draw: random.Random) -> None:
    """A group that pops was answered at last that nothing is left."""
    _pops_on(run, draw, 0)


@PLANTS.innocent
def popped_after_a_commit(run: SmallRun, draw: random.Random) -> None:
    """A member has committed an offset behind the end of its queue, and the group pops
    on from there."""
    _pops_on(run, draw, 5)
    answer = run.events[-1]
    run.add(control=("commit_offsets", {"offsets": [[POPPERS, TOPIC, answer["queue_id"], 0]]}))
    run.repeat(answer, kind="commit", began=END - 20, t=END - 10, client="puller", offset=0)


def _pops_on(run: SmallRun, draw: random.Random, behind: int) -> None:
    answer = draw.choice(run.of("group_offset", group=POPPERS))
    end = run.next_offset(answer["queue_id"])
    run.repeat(answer, offset=end + behind, began=END, t=END + 10)


@PLANTS.fault(2, "astray")
def stored_in_another_topic(run: SmallRun, draw: random.Random) -> None:
    """A message of which no client knows is in another topic than it was sent to."""
    _astray(run, draw)


@PLANTS.fault(2, "astray")
def acknowledged_in_another_topic(run: SmallRun, draw: random.Random) -> None:
    """A message was stored, and acknowledged, in another topic than it was sent to."""
    ghost, position = _astray(run, draw)
    place = {"queue_id": OUTPUTS_QUEUE, "offset": ghost.offset, "position": position}
    run.note("ack", END, client="p", id=ghost.id, topic=OUTPUTS, **place)


@PLANTS.fault(2, "astray")
def delivered_from_another_topic(run: SmallRun, draw: random.Random) -> None:
    """A group was given a message as one of another topic."""
    delivery = draw.choice(run.of("deliver"))
    place = {"topic": OUTPUTS, "queue_id": OUTPUTS_QUEUE, "offset": run.count(OUTPUTS)}
    again = run.repeat(delivery, **place, t=END, group="strangers")
    for name in {"asked", "pop_time"} & again.keys():
        del again[name]


@PLANTS.fault(2, "astray")
def copied_to_another_topic(run: SmallRun, draw: random.Random) -> None:
    """All logs have an output in the topic of the inputs, too."""
    found = run.stored(draw.choice(run.of("ack", topic=OUTPUTS))["id"], OUTPUTS)
    run.add(replace(found, topic=TOPIC, queue_id=0, offset=run.next_offset(0)))


def _astray(run: SmallRun, draw: random.Random) -> tuple[Stored, int]:
    """A message that was sent to one topic, and is stored in another: it, and its position."""
    found = run.stored(acked(run, draw)["id"])
    assert found.body
    place = {"topic": OUTPUTS, "queue_id": OUTPUTS_QUEUE, "offset": run.count(OUTPUTS)}
    message = run.another(found, **place)
    return message, run.add(message)[0]


@PLANTS.fault(15, "shared")
def popped_by_two(run: SmallRun, draw: random.Random) -> None:
    """Two members of a group were given a message by one delivery."""
    delivery = draw.choice(run.of("deliver", group=POPPERS))
    run.repeat(delivery, t=delivery["t"] + 1, client="another")


@PLANTS.innocent
def popped_by_one_after_another(run: SmallRun, draw: random.Random) -> None:
    """A member did not settle what it was given, and another one was given it later."""
    deliveries = run.of("deliver", group=POPPERS)
    first = next(d for d in deliveries if len(run.of("deliver", group=POPPERS, id=d["id"])) > 1)
    first["client"] = "another"


@PLANTS.innocent
def noted_by_itself_twice(run: SmallRun, draw: random.Random) -> None:
    """A member has noted a delivery twice."""
    delivery = draw.choice(run.of("deliver", group=POPPERS))
    run.repeat(delivery)
