"""Faults planted in what groups of consumers are answered, and given, too late or too often."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from mqspark.testing.declaring import Plants
from mqspark.testing.planting import Event
from mqspark.testing.small_runs import (
    DEAD_LETTERS,
    GROUP,
    MS,
    OUTPUTS,
    POPPERS,
    TOPIC,
    SmallRun,
)

PLANTS: Final = Plants[SmallRun]()

END: Final = 900_000 * MS
"""Behind all that happens in a run, but its end."""


@PLANTS.fault(11, "expired")
def outlived(run: SmallRun, draw: random.Random) -> None:
    """A message was delivered long after its end."""
    delivery = draw.choice(run.of("deliver"))
    for send in run.of("send", id=delivery["id"]):
        send["expires"] = delivery["t"] - 2_001 * MS


@PLANTS.fault(14, "missing")
def without_output(run: SmallRun, draw: random.Random) -> None:
    """The group has passed an input, and no log has its output."""
    run.drop_all(_taken(run, draw), OUTPUTS)


@PLANTS.fault(14, "untaken")
def untaken(run: SmallRun, draw: random.Random) -> None:
    """An output is stored, and the group was at its input still."""
    output = _taken(run, draw)
    (ack,) = run.of("ack", id=output)
    (delivery, *_) = run.of("deliver", id=output.removesuffix("-output"), group=GROUP)
    place = {name: delivery[name] for name in ("topic", "queue_id", "group", "offset")}
    run.note("group_offset", ack["t"] + 20, began=ack["t"] + 10, **place)


@PLANTS.fault(15, "again")
def came_again(run: SmallRun, draw: random.Random) -> None:
    """A message that was done, by an ack or as a dead letter, was handed out once more."""
    settle = draw.choice(run.of("settle", counted=True))
    delivery = run.of("deliver", id=settle["id"], group=POPPERS)[-1]
    run.repeat(delivery, t=END, pop_time=settle["pop_time"] + 1)


@PLANTS.fault(15, "back")
def popped_back(run: SmallRun, draw: random.Random) -> None:
    """A group that pops was further before."""
    answer = draw.choice([e for e in run.of("group_offset", group=POPPERS) if e["offset"]])
    run.repeat(answer, began=answer["t"] + 10, t=answer["t"] + 20, offset=answer["offset"] - 1)


@PLANTS.fault(15, "passed")
def passed_unseen(run: SmallRun, draw: random.Random) -> None:
    """A message is behind the group, and no member was given it."""
    victim = _seen(run, draw)
    run.events = [e for e in run.events if not _is_popped(e, victim)]


@PLANTS.fault(15, "passed")
def passed_first(run: SmallRun, draw: random.Random) -> None:
    """A message was behind the group before a member was given it."""
    victim = _seen(run, draw)
    for event in run.events:
        if _is_popped(event, victim):
            event["t"] = END + event["pop_time"]


@PLANTS.fault(15, "buried twice")
def buried_twice(run: SmallRun, draw: random.Random) -> None:
    """A message is among the dead letters twice."""
    found = run.stored(dead(run, draw), DEAD_LETTERS)
    run.add(replace(found, offset=99))


@PLANTS.fault(15, "unburied")
def unburied(run: SmallRun, draw: random.Random) -> None:
    """A node lacks a dead letter."""
    run.drop("n1", dead(run, draw), DEAD_LETTERS)


@PLANTS.fault(15, "unburied")
def buried_for_others(run: SmallRun, draw: random.Random) -> None:
    """A dead letter is among those of another group."""
    run.change_all(dead(run, draw), of_topic=DEAD_LETTERS, topic="%DLQ%another", offset=0)


@PLANTS.fault(15, "unlogged")
def acked_nowhere(run: SmallRun, draw: random.Random) -> None:
    """An ack counted, and no log has it."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    place = [POPPERS, TOPIC, settle["queue_id"]]
    others = [settle["pop_time"], settle["offset"]]
    run.rewrite_control([*place, *others], [*place, others[0] + 1, others[1]])


@PLANTS.fault(15, "unlogged")
def acked_by_another(run: SmallRun, draw: random.Random) -> None:
    """An ack counted, and the logs have it of another queue."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    queue_id, others = settle["queue_id"], [settle["pop_time"], settle["offset"]]
    place = [POPPERS, TOPIC]
    run.rewrite_control([*place, queue_id, *others], [*place, 1 - queue_id, *others])


@PLANTS.fault(8, "unlogged")
def committed_nowhere(run: SmallRun, draw: random.Random) -> None:
    """A commit was answered, and no log has the group go on there."""
    commit = draw.choice([e for e in run.of("commit", group=GROUP) if e["offset"] > 1])
    place = [GROUP, TOPIC, commit["queue_id"]]
    for offset in range(commit["offset"], 100):
        run.rewrite_control([*place, offset], [*place, 0])


@PLANTS.fault(8, "unlogged")
def committed_by_others(run: SmallRun, draw: random.Random) -> None:
    """The logs have another group go on there."""
    commit = draw.choice(run.of("commit", group=GROUP))
    place = [TOPIC, commit["queue_id"]]
    run.rewrite_control([GROUP, *place], ["strange", *place])


@PLANTS.innocent
def lower_applied_last(run: SmallRun, draw: random.Random) -> None:
    """Two commits were under way at the same time, and the lower one was applied last."""
    commit = draw.choice([e for e in run.of("commit") if e["offset"] > 1])
    at, t = commit["offset"] - 1, commit["t"]
    run.repeat(commit, offset=at, client="another", t=t + 20)
    run.repeat(commit, kind="group_offset", offset=at, began=t + 30, t=t + 40)
    # Another property says that a commit's outputs stay: the history tells of none here.
    run.events = [e for e in run.events if e["kind"] != "ack" or e["topic"] != OUTPUTS]


@PLANTS.fault(8, "back")
def lower_applied_first(run: SmallRun, draw: random.Random) -> None:
    """The lower of two commits had been answered before the other began, and stood in the end."""
    lower_applied_last(run, draw)
    lower = run.events[-2]
    lower["began"], lower["t"] = lower["t"] + 2, lower["t"] + 4


@PLANTS.innocent
def swallowed_commit(run: SmallRun, draw: random.Random) -> None:
    """Two commits were under way at the same time, and logs have the lower one alone."""
    (commit, *_) = sorted(run.of("commit", group=GROUP), key=lambda e: -e["offset"])
    others = run.of("commit", group=GROUP, queue_id=commit["queue_id"])
    place = [GROUP, TOPIC, commit["queue_id"]]
    below = max((e["offset"] for e in others if e["offset"] < commit["offset"]), default=0)
    run.rewrite_control([*place, commit["offset"]], [*place, below])
    run.repeat(commit, client="another", offset=below)


@PLANTS.innocent
def acked_too_late(run: SmallRun, draw: random.Random) -> None:
    """An ack was answered, and did not count: another member had the message by then."""
    settle = draw.choice(run.of("settle", counted=True))
    run.repeat(settle, t=END, pop_time=settle["pop_time"] - 1, counted=False)


@PLANTS.innocent
def noted_late(run: SmallRun, draw: random.Random) -> None:
    """A member noted an earlier delivery long after another was through with the message."""
    settle = draw.choice(run.of("settle", counted=True))
    delivery = run.of("deliver", id=settle["id"], group=POPPERS)[0]
    run.repeat(delivery, t=END)


@PLANTS.innocent
def popped_after_a_reset(run: SmallRun, draw: random.Random) -> None:
    """An operator has set the group back: what was done comes again."""
    came_again(run, draw)
    _is_set(run, "reset", run.events[-1]["queue_id"])


@PLANTS.fault(16, "passed over")
def passed_over(run: SmallRun, draw: random.Random) -> None:
    """A message waited while one of a lower queue was asked for and handed out."""
    high, low, _ = _high_and_low(run, draw)
    high["asked"] = low["t"] + 1


@PLANTS.fault(16, "misplaced")
def misplaced(run: SmallRun, draw: random.Random) -> None:
    """A message is in another queue than that of its priority."""
    ack = draw.choice(run.of("ack", topic=TOPIC, waiting=None))
    (send,) = run.of("send", id=ack["id"])
    send["priority"] = 0 if ack["queue_id"] else draw.randint(1, 9)


@PLANTS.innocent
def asked_meanwhile(run: SmallRun, draw: random.Random) -> None:
    """A message's pop was under way when one of a lower queue was handed out."""
    high, low, _ = _high_and_low(run, draw)
    high["asked"] = low["t"]


@PLANTS.innocent
def acknowledged_meanwhile(run: SmallRun, draw: random.Random) -> None:
    """A pop was asked for before a message of a higher queue was there for certain."""
    high, low, acked = _high_and_low(run, draw)
    for event in run.of("deliver", group=POPPERS):
        if event["queue_id"] < high["queue_id"] and "asked" in event:
            event["asked"] = min(event["asked"], acked["t"])
    high["asked"] = low["t"] + 1


@PLANTS.innocent
def given_back(run: SmallRun, draw: random.Random) -> None:
    """A message that waited had been in somebody's hands before."""
    high, _, _ = _high_and_low(run, draw)
    del high["asked"]


@PLANTS.innocent
def handed_out_again(run: SmallRun, draw: random.Random) -> None:
    """A message that was handed out meanwhile came again."""
    high, _, acked = _high_and_low(run, draw)
    high["asked"] = END
    for event in run.of("deliver", group=POPPERS):
        if event["queue_id"] < high["queue_id"] and event["t"] > acked["t"]:
            event.pop("asked", None)


@PLANTS.innocent
def passed_over_after_a_reset(run: SmallRun, draw: random.Random) -> None:
    """An operator has set the group's offset of a queue."""
    passed_over(run, draw)
    _is_set(run, "reset", draw.randrange(2))


@PLANTS.innocent
def passed_over_after_a_commit(run: SmallRun, draw: random.Random) -> None:
    """A member that pulls has committed an offset of a queue: pops go on from there."""
    passed_over(run, draw)
    _is_set(run, "commit", draw.randrange(2))


def _is_set(run: SmallRun, kind: str, queue_id: int) -> None:
    """The group that pops is set to the beginning of a queue."""
    place = {"topic": TOPIC, "queue_id": queue_id, "offset": 0}
    run.note(kind, END - 10, client="tool", began=END - 20, group=POPPERS, **place)


def _high_and_low(run: SmallRun, draw: random.Random) -> tuple[Event, Event, Event]:
    """A higher message, a lower one popped after the higher one's ack, and that ack."""
    new = [event for event in run.of("deliver", group=POPPERS) if "asked" in event]
    acks = {ack["id"]: ack for ack in run.of("ack", topic=TOPIC, waiting=None)}
    found = []
    for high in new:
        acked = acks.get(high["id"], {"t": END})
        later = [e for e in new if e["queue_id"] < high["queue_id"] and e["asked"] > acked["t"]]
        if later:
            found.append((high, min(later, key=lambda event: event["t"]), acked))
    return draw.choice(found)


def _taken(run: SmallRun, draw: random.Random) -> str:
    """An output whose input the group was given, and has passed."""
    return str(draw.choice(run.of("ack", topic=OUTPUTS))["id"])


def _seen(run: SmallRun, draw: random.Random) -> str:
    """A message that members popped, not the first of its queue, and that lasts."""
    lasting = {send["id"] for send in run.of("send") if "expires" not in send}
    popped = run.of("deliver", group=POPPERS)
    first = {min(e["offset"] for e in popped if e["queue_id"] == queue) for queue in (0, 1)}
    return str(
        draw.choice([e["id"] for e in popped if e["id"] in lasting and e["offset"] not in first])
    )


def _is_popped(event: Event, message_id: str) -> bool:
    named = (event["kind"], event.get("group"), event.get("id"))
    return named == ("deliver", POPPERS, message_id)


def dead(run: SmallRun, draw: random.Random) -> str:
    """A message that a member has given up."""
    return str(draw.choice(run.of("settle", how="dead"))["id"])
