"""Faults planted in what groups of consumers are told, and given, too late or too often."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

import msgspec

from mqspark.testing.planting import Event
from mqspark.testing.small_runs import (
    DEAD_LETTERS,
    GROUP,
    MS,
    NODES,
    OUTPUTS,
    POPPERS,
    TOPIC,
    Entry,
    SmallRun,
)

END: Final = 900_000 * MS
"""Behind all that happens in a run, but its end."""


def outlived(run: SmallRun, draw: random.Random) -> None:
    """A message was delivered long after its end."""
    delivery = draw.choice(run.of("deliver"))
    for send in run.of("send", id=delivery["id"]):
        send["expires"] = delivery["t"] - 2_001 * MS


def without_output(run: SmallRun, draw: random.Random) -> None:
    """The group has passed an input, and no log has its output."""
    output = _taken(run, draw)
    for node in NODES:
        run.drop(node, output, OUTPUTS)


def untaken(run: SmallRun, draw: random.Random) -> None:
    """An output is stored, and the group was at its input still."""
    output = _taken(run, draw)
    (ack,) = run.of("ack", id=output)
    (delivery, *_) = run.of("deliver", id=output.removesuffix("-output"), group=GROUP)
    place = {name: delivery[name] for name in ("broker", "topic", "queue_id", "group", "offset")}
    times = {"began": ack["t"] + 10, "t": ack["t"] + 20}
    run.events.append({"kind": "group_offset", **place, **times})


def came_again(run: SmallRun, draw: random.Random) -> None:
    """A message that was done, by an ack or as a dead letter, was handed out once more."""
    settle = draw.choice(run.of("settle", counted=True))
    delivery = run.of("deliver", id=settle["id"], group=POPPERS)[-1]
    run.events.append({**delivery, "t": END, "pop_time": settle["pop_time"] + 1})


def popped_back(run: SmallRun, draw: random.Random) -> None:
    """A group that pops was further before."""
    told = draw.choice([e for e in run.of("group_offset", group=POPPERS) if e["offset"]])
    later = {"began": told["t"] + 10, "t": told["t"] + 20, "offset": told["offset"] - 1}
    run.events.append({**told, **later})


def passed_unseen(run: SmallRun, draw: random.Random) -> None:
    """A message is behind the group, and no member was given it."""
    victim = _seen(run, draw)
    run.events = [e for e in run.events if not _is_popped(e, victim)]


def passed_first(run: SmallRun, draw: random.Random) -> None:
    """A message was behind the group before a member was given it."""
    victim = _seen(run, draw)
    for event in run.events:
        if _is_popped(event, victim):
            event["t"] = END + event["pop_time"]


def buried_twice(run: SmallRun, draw: random.Random) -> None:
    """A message is among the dead letters twice."""
    found = run.stored(_dead(run, draw), DEAD_LETTERS)
    assert found is not None
    for node in NODES:
        run.logs[node].append(Entry(2, (replace(found, offset=99),)))


def unburied(run: SmallRun, draw: random.Random) -> None:
    """A node lacks a dead letter."""
    run.drop("n1", _dead(run, draw), DEAD_LETTERS)


def buried_for_others(run: SmallRun, draw: random.Random) -> None:
    """A dead letter is among those of another group."""
    message_id = _dead(run, draw)
    for node in NODES:
        run.change(node, message_id, of_topic=DEAD_LETTERS, topic="%DLQ%another", offset=0)


def acked_nowhere(run: SmallRun, draw: random.Random) -> None:
    """An ack counted, and no log has it."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    _forget(run, settle, settle["pop_time"] + 1)


def acked_by_another(run: SmallRun, draw: random.Random) -> None:
    """An ack counted, and the logs have it of another queue."""
    settle = draw.choice(run.of("settle", counted=True, how="ack"))
    place = [POPPERS, TOPIC, settle["queue_id"], settle["pop_time"], settle["offset"]]
    other = [*place[:2], 1 - settle["queue_id"], *place[3:]]
    run.rewrite_control(_packed(place), _packed(other))


def _forget(run: SmallRun, settle: Event, pop_time: int) -> None:
    place = [POPPERS, TOPIC, settle["queue_id"], settle["pop_time"], settle["offset"]]
    run.rewrite_control(_packed(place), _packed([*place[:3], pop_time, *place[4:]]))


def _packed(row: list[object]) -> bytes:
    """The fields of a row as an entry has them, without what says how many they are."""
    return b"".join(map(msgspec.msgpack.encode, row))


def committed_nowhere(run: SmallRun, draw: random.Random) -> None:
    """A commit was answered, and no log has the group go on there."""
    commit = draw.choice([e for e in run.of("commit", group=GROUP) if e["offset"] > 1])
    place = [GROUP, TOPIC, commit["queue_id"]]
    for offset in range(commit["offset"], 100):
        run.rewrite_control(_packed([*place, offset]), _packed([*place, 0]))


def committed_by_others(run: SmallRun, draw: random.Random) -> None:
    """The logs have another group go on there."""
    commit = draw.choice(run.of("commit", group=GROUP))
    run.rewrite_control(
        _packed([GROUP, TOPIC, commit["queue_id"]]), _packed(["strange", TOPIC, commit["queue_id"]])
    )


def lower_applied_last(run: SmallRun, draw: random.Random) -> None:
    """Two commits were under way at the same time, and the lower one was applied last."""
    commit = draw.choice([e for e in run.of("commit") if e["offset"] > 1])
    lower = {"offset": commit["offset"] - 1, "client": "another"}
    run.events.append({**commit, **lower, "t": commit["t"] + 20})
    answer = {"began": commit["t"] + 30, "t": commit["t"] + 40, "offset": commit["offset"] - 1}
    run.events.append({**commit, **answer, "kind": "group_offset"})
    # That what comes with an output stays is another property.
    run.events = [e for e in run.events if e["kind"] != "ack" or e["topic"] != OUTPUTS]


def lower_applied_first(run: SmallRun, draw: random.Random) -> None:
    """The lower of two commits had been answered before the other began, and stood in the end."""
    lower_applied_last(run, draw)
    lower = run.events[-2]
    lower["began"], lower["t"] = lower["t"] + 2, lower["t"] + 4


def swallowed_commit(run: SmallRun, draw: random.Random) -> None:
    """Two commits were under way at the same time, and logs have the lower one alone."""
    (commit, *_) = sorted(run.of("commit", group=GROUP), key=lambda e: -e["offset"])
    others = run.of("commit", group=GROUP, queue_id=commit["queue_id"])
    place = [GROUP, TOPIC, commit["queue_id"]]
    below = max((e["offset"] for e in others if e["offset"] < commit["offset"]), default=0)
    run.rewrite_control(_packed([*place, commit["offset"]]), _packed([*place, below]))
    run.events.append({**commit, "client": "another", "offset": below})


def acked_too_late(run: SmallRun, draw: random.Random) -> None:
    """An ack was answered, and did not count: another member had the message by then."""
    settle = draw.choice(run.of("settle", counted=True))
    times = {"t": END, "pop_time": settle["pop_time"] - 1, "counted": False}
    run.events.append({**settle, **times})


def noted_late(run: SmallRun, draw: random.Random) -> None:
    """A member noted an earlier delivery long after another was through with the message."""
    settle = draw.choice(run.of("settle", counted=True))
    delivery = run.of("deliver", id=settle["id"], group=POPPERS)[0]
    run.events.append({**delivery, "t": END})


def popped_after_a_reset(run: SmallRun, draw: random.Random) -> None:
    """An operator has set the group back: what was done comes again."""
    came_again(run, draw)
    place = {name: run.events[-1][name] for name in ("broker", "topic", "queue_id", "group")}
    reset = {"kind": "reset", "client": "tool", "began": END - 20, "t": END - 10, "offset": 0}
    run.events.append({**reset, **place})


def passed_over(run: SmallRun, draw: random.Random) -> None:
    """A message waited while one of a lower queue was asked for and handed out."""
    high, low, _ = _high_and_low(run, draw)
    high["asked"] = low["t"] + 1


def misplaced(run: SmallRun, draw: random.Random) -> None:
    """A message is in another queue than that of its priority."""
    ack = draw.choice(run.of("ack", topic=TOPIC, waiting=None))
    (send,) = run.of("send", id=ack["id"])
    send["priority"] = 0 if ack["queue_id"] else draw.randint(1, 9)


def asked_meanwhile(run: SmallRun, draw: random.Random) -> None:
    """A message's pop was under way when one of a lower queue was handed out."""
    high, low, _ = _high_and_low(run, draw)
    high["asked"] = low["t"]


def acknowledged_meanwhile(run: SmallRun, draw: random.Random) -> None:
    """A pop was asked for before a message of a higher queue was there for certain."""
    high, low, acked = _high_and_low(run, draw)
    for event in run.of("deliver", group=POPPERS):
        if event["queue_id"] < high["queue_id"] and "asked" in event:
            event["asked"] = min(event["asked"], acked["t"])
    high["asked"] = low["t"] + 1


def given_back(run: SmallRun, draw: random.Random) -> None:
    """A message that waited had been in somebody's hands before."""
    high, _, _ = _high_and_low(run, draw)
    del high["asked"]


def handed_out_again(run: SmallRun, draw: random.Random) -> None:
    """A message that was handed out meanwhile came again."""
    high, _, acked = _high_and_low(run, draw)
    high["asked"] = END
    for event in run.of("deliver", group=POPPERS):
        if event["queue_id"] < high["queue_id"] and event["t"] > acked["t"]:
            event.pop("asked", None)


def passed_over_after_a_reset(run: SmallRun, draw: random.Random) -> None:
    """An operator has set the group's offset of a queue."""
    passed_over(run, draw)
    reset = {"kind": "reset", "client": "tool", "began": END - 20, "t": END - 10, "offset": 0}
    queue = {"broker": run.broker, "topic": TOPIC, "queue_id": draw.randrange(2)}
    run.events.append({**reset, **queue, "group": POPPERS})


def passed_over_after_a_commit(run: SmallRun, draw: random.Random) -> None:
    """A member that pulls has committed an offset of a queue: pops go on from there."""
    passed_over(run, draw)
    commit = {"kind": "commit", "client": "puller", "began": END - 20, "t": END - 10, "offset": 0}
    queue = {"broker": run.broker, "topic": TOPIC, "queue_id": draw.randrange(2)}
    run.events.append({**commit, **queue, "group": POPPERS})


def _high_and_low(run: SmallRun, draw: random.Random) -> tuple[Event, Event, Event]:
    """A message that was handed out, the first of a lower queue whose pop was asked for after the
    acknowledgement of the other, and that acknowledgement."""
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


def _dead(run: SmallRun, draw: random.Random) -> str:
    return str(draw.choice(run.of("settle", how="dead"))["id"])
