"""Each life of a topic as queues of its own: in later lives their numbers are so much higher."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from mqspark.testing.reference.inputs import APART, CONTROL, Inputs, Said
from mqspark.testing.rewriting import StoredEntry, StoredMessage

_FOR_EVER: Final = 2**62


def changes(logs: Mapping[str, Sequence[StoredEntry]]) -> Iterator[tuple[str, dict[str, Any], int]]:
    """The changes of state in any log: name, arguments, position."""
    for log in logs.values():
        for entry in log:
            if entry.kind == CONTROL:
                name, arguments = msgspec.msgpack.decode(entry.body)
                yield name, arguments, entry.position


def deletions(run: Inputs) -> dict[str, list[int]]:
    """Where logs delete each of the topics."""
    found = defaultdict(set)
    for name, arguments, position in changes(run.logs):
        if name == "delete_topic" and arguments["topic"] in run.topics:
            found[arguments["topic"]].add(position)
    return {topic: sorted(positions) for topic, positions in found.items()}


def in_lives(run: Inputs) -> Inputs:
    """The run with numbers of queues for each life; without events that are of no life for
    certain."""
    gone = deletions(run)
    if not gone:
        return run
    lived: dict[tuple[str, str, int, int], int] = {}
    for node in run.logs:
        for record in run.records(node):
            _note(lived, gone, record.topic, record.message_id, record.queue_id, record)
    for ack in run.of("ack"):
        key = (ack["topic"], ack["id"], ack["queue_id"], ack["offset"])
        lived[key] = max(lived.get(key, 0), _life(gone, ack["topic"], ack["position"]))
    windows = {topic: _windows(run, topic, ends) for topic, ends in gone.items()}
    events = []
    for event in run.events:
        life = _life_of(event, gone, lived, windows)
        if life is None:
            continue
        moved = {"queue_id": event["queue_id"] + APART * life} if life else {}
        events.append({**event, **moved})
    logs = {
        node: [replace(e, messages=tuple(_moved(m, gone) for m in e.messages)) for e in log]
        for node, log in run.logs.items()
    }
    return replace(run, events=events, logs=logs)


def _note(lived: Any, gone: Any, topic: Any, message_id: Any, queue_id: int, record: Any) -> None:
    key = (topic, message_id, queue_id, record.queue_offset)
    lived[key] = max(lived.get(key, 0), _life(gone, topic, record.position))


def _life(gone: Mapping[str, Sequence[int]], topic: str | None, position: int) -> int:
    return sum(end <= position for end in gone.get(topic or "", ()))


def _moved(message: StoredMessage, gone: Mapping[str, Sequence[int]]) -> StoredMessage:
    life = _life(gone, message.topic, message.position)
    return (
        message.moved_to(message.queue_id + APART * life, message.queue_offset) if life else message
    )


def _windows(run: Inputs, topic: str, ends: Sequence[int]) -> list[tuple[int, int]]:
    """Between which moments each deletion came about. Of several places of a message the lowest
    counts."""
    spans = []
    lowest = {message_id: min(positions) for message_id, positions in _positions(run).items()}
    for end in ends:
        low = [0]
        high = [_FOR_EVER]
        for message_id, position in lowest.items():
            sent = run.sent.get(message_id)
            if sent is not None and position < end:
                low.append(sent["t"])
        high += [ack["t"] for ack in run.of("ack") if lowest[ack["id"]] > end]
        spans.append((max(low), min(high)))
    acts = sorted(
        (a["began"], a["t"])
        for a in run.of("act")
        if a["act"] == "delete-topic" and a["topic"] == topic and a.get("done")
    )
    every = [a for a in run.of("act") if a["act"] == "delete-topic" and a["topic"] == topic]
    if len(every) == len(acts) == len(ends):
        spans = [
            (max(low, began), min(high, t))
            for (low, high), (began, t) in zip(spans, acts, strict=True)
        ]
    return spans


def _positions(run: Inputs) -> dict[str, list[int]]:
    found = defaultdict(list)
    for _, record in run.all_records:
        found[str(record.message_id)].append(record.position)
    for ack in run.of("ack"):
        found[ack["id"]].append(ack["position"])
    return found


def _life_of(event: Said, gone: Any, lived: Any, windows: Any) -> int | None:
    topic, kind = event.get("topic"), event["kind"]
    if topic not in gone:
        return 0
    if kind == "ack" and not event.get("waiting"):
        return _life(gone, topic, event["position"])
    if kind == "deliver":
        key = (topic, event["id"], event["queue_id"], event["offset"])
        anywhere = [life for (t, i, *_), life in lived.items() if (t, i) == (topic, event["id"])]
        return int(lived.get(key, max(anywhere, default=0)))
    if kind not in ("commit", "group_offset", "reset", "queue_end"):
        return 0
    for life in range(len(windows[topic]) + 1):
        after = max(windows[topic][life - 1]) if life else -1
        before = windows[topic][life][0] if life < len(windows[topic]) else _FOR_EVER
        if event.get("began", 0) > after and event["t"] < before:
            return life
    return None
