"""Faults that both judges once passed: of leaders and votes, ends of queues, topics and tools.

Each is found by the word in `FOUND`, or is innocent (`NOTHING`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from mqspark.testing.planting import Event
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


def led_against_its_vote(run: SmallRun, draw: random.Random) -> None:
    """A node led in a term in which all had voted for another, itself included."""
    lead = draw.choice(run.of("lead"))
    lead["node"] = draw.choice([node for node in NODES if node != lead["node"]])


def voted_after_it_led(run: SmallRun, draw: random.Random) -> None:
    """A leader's vote for another was read only long after it had led."""
    lead = draw.choice(run.of("lead"))
    (own,) = run.of("vote", node=lead["node"], term=lead["term"])
    own.update(vote="n2", t=END)


def forgot_its_vote(run: SmallRun, draw: random.Random) -> None:
    """A node had voted in a term, and came back without a vote in it."""
    vote = draw.choice(run.of("vote", term=2))
    run.events.append({**vote, "t": END, "vote": None})


def forgot_beside_another_disk(run: SmallRun, draw: random.Random) -> None:
    """A node came back without its vote, and the disk of another had been taken away."""
    lost = {"kind": "fault", "fault": "wipe", "broker": run.broker, "node": "n2", "t": END - 1}
    run.events.append(lost)
    run.events.append({**run.of("vote", node="n0", term=2)[0], "t": END, "vote": None})


def forgot_with_its_disk(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a node came back without its vote, as its disk had been taken away."""
    forgot_beside_another_disk(run, draw)
    run.events[-1]["node"] = "n2"


def led_without_a_vote(run: SmallRun, draw: random.Random) -> None:
    """Innocent: nobody has read a leader's vote, or only that it had none yet."""
    lead = draw.choice(run.of("lead"))
    (own,) = run.of("vote", node=lead["node"], term=lead["term"])
    own["vote"] = None
    if draw.random() < 0.5:
        run.events.remove(own)


def ends_beyond_its_log(run: SmallRun, draw: random.Random) -> None:
    """A node told that a queue has a message more than all logs."""
    queue_id = draw.randrange(2)
    _told(run, TOPIC, queue_id, run.next_offset(queue_id) + 1)


def ends_beyond_where_none_is(run: SmallRun, draw: random.Random) -> None:
    """A node told an end of a queue in which nothing ever was."""
    _told(run, OUTPUTS, OUTPUTS_QUEUE + 1, 1)


def ends_far_beyond(run: SmallRun, draw: random.Random) -> None:
    """A node told the end of a queue of outputs that is behind every offset."""
    _told(run, OUTPUTS, OUTPUTS_QUEUE, 2**61 - 1)


def ends_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a node told an end that only its own log has, in a tail."""
    end = run.next_offset(1)
    found = run.stored(acked(run, draw)["id"])
    assert found is not None
    ghost = f"{run.broker}-tail"
    run.events.append(run.of("send", id=found.id)[0] | {"id": ghost})
    message = replace(found, id=ghost, queue_id=1, offset=end)
    run.logs["n1"].append(Entry(2, (message,)))
    _told(run, TOPIC, 1, end + 1)


def ends_where_logs_do(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a node told at last that a queue ends behind its last message."""
    _told(run, TOPIC, 0, run.next_offset(0))


def _told(run: SmallRun, topic: str, queue_id: int, end: int) -> None:
    place = {"broker": run.broker, "topic": topic, "queue_id": queue_id, "node": "n0"}
    run.events.append({"kind": "queue_end", **place, "offset": end, "began": END, "t": END + 10})


def popped_beyond(run: SmallRun, draw: random.Random) -> None:
    """A group that pops was told to go on behind a message that was never there."""
    _pops_on(run, draw, 1)


def popped_far_beyond(run: SmallRun, draw: random.Random) -> None:
    """A group that pops was told to go on behind all offsets."""
    _pops_on(run, draw, 2**40)


def popped_to_the_end(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a group that pops was told at last that nothing is left."""
    _pops_on(run, draw, 0)


def popped_after_a_commit(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a member has committed an offset behind the end of its queue, and the group pops
    on from there."""
    _pops_on(run, draw, 5)
    told = run.events[-1]
    run.add(control=("commit_offsets", {"offsets": [[POPPERS, TOPIC, told["queue_id"], 0]]}))
    times = {"began": END - 20, "t": END - 10}
    run.events.append({**told, **times, "kind": "commit", "client": "puller", "offset": 0})


def _pops_on(run: SmallRun, draw: random.Random, behind: int) -> None:
    told = draw.choice(run.of("group_offset", group=POPPERS))
    end = run.next_offset(told["queue_id"])
    run.events.append({**told, "offset": end + behind, "began": END, "t": END + 10})


def stored_in_another_topic(run: SmallRun, draw: random.Random) -> None:
    """A message of which nobody was told is in another topic than it was sent to."""
    _astray(run, draw)


def acknowledged_in_another_topic(run: SmallRun, draw: random.Random) -> None:
    """A message was stored, and acknowledged, in another topic than it was sent to."""
    ghost, position = _astray(run, draw)
    place = {"queue_id": OUTPUTS_QUEUE, "offset": ghost.offset, "position": position}
    named = {"client": "p", "broker": run.broker, "id": ghost.id, "topic": OUTPUTS}
    run.events.append({"kind": "ack", "t": END, **named, **place})


def delivered_from_another_topic(run: SmallRun, draw: random.Random) -> None:
    """A group was given a message as one of another topic."""
    delivery = draw.choice(run.of("deliver"))
    place = {"topic": OUTPUTS, "queue_id": OUTPUTS_QUEUE, "offset": _count(run, OUTPUTS)}
    again: Event = {**delivery, **place, "t": END, "group": "strangers"}
    run.events.append({name: again[name] for name in again if name not in {"asked", "pop_time"}})


def copied_to_another_topic(run: SmallRun, draw: random.Random) -> None:
    """All logs have an output in the topic of the inputs, too."""
    found = run.stored(draw.choice(run.of("ack", topic=OUTPUTS))["id"], OUTPUTS)
    assert found is not None
    run.add(replace(found, topic=TOPIC, queue_id=0, offset=run.next_offset(0)))


def _astray(run: SmallRun, draw: random.Random) -> tuple[Stored, int]:
    """A message that was sent to one topic, and is stored in another: it, and its position."""
    found = run.stored(acked(run, draw)["id"])
    assert found is not None
    assert found.body
    ghost = f"{run.broker}-ghost"
    run.events.append(run.of("send", id=found.id)[0] | {"id": ghost})
    place = {"topic": OUTPUTS, "queue_id": OUTPUTS_QUEUE, "offset": _count(run, OUTPUTS)}
    message = replace(found, id=ghost, **place)  # type: ignore[arg-type]
    return message, run.add(message)[0]


def _count(run: SmallRun, topic: str) -> int:
    """How many messages a topic has."""
    return sum(m.topic == topic for entry in run.logs["n0"] for m in entry.messages)


def popped_by_two(run: SmallRun, draw: random.Random) -> None:
    """Two members of a group were given a message by one delivery."""
    delivery = draw.choice(run.of("deliver", group=POPPERS))
    run.events.append({**delivery, "t": delivery["t"] + 1, "client": "another"})


def popped_by_one_after_another(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a member did not settle what it was given, and another one was given it later."""
    deliveries = run.of("deliver", group=POPPERS)
    first = next(d for d in deliveries if len(run.of("deliver", group=POPPERS, id=d["id"])) > 1)
    first["client"] = "another"


def noted_by_itself_twice(run: SmallRun, draw: random.Random) -> None:
    """Innocent: a member has noted a delivery twice."""
    delivery = draw.choice(run.of("deliver", group=POPPERS))
    run.events.append({**delivery})


_Plant = Callable[[SmallRun, random.Random], None]
FOUND: Final[tuple[tuple[int, str, _Plant], ...]] = (
    (6, "unelected", led_against_its_vote),
    (6, "unelected", voted_after_it_led),
    (6, "forgotten", forgot_its_vote),
    (6, "forgotten", forgot_beside_another_disk),
    (12, "beyond", ends_beyond_its_log),
    (12, "beyond", ends_beyond_where_none_is),
    (12, "beyond", ends_far_beyond),
    (15, "beyond", popped_beyond),
    (15, "beyond", popped_far_beyond),
    (2, "astray", stored_in_another_topic),
    (2, "astray", acknowledged_in_another_topic),
    (2, "astray", delivered_from_another_topic),
    (2, "astray", copied_to_another_topic),
    (15, "shared", popped_by_two),
)
NOTHING: Final[tuple[_Plant, ...]] = (
    forgot_with_its_disk,
    led_without_a_vote,
    ends_in_a_tail,
    ends_where_logs_do,
    popped_to_the_end,
    popped_after_a_commit,
    popped_by_one_after_another,
    noted_by_itself_twice,
)
