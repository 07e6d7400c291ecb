"""Property 17: what tools have set holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mqspark.testing.reference.inputs import Finding, Inputs, Said
from mqspark.testing.reference.lives import changes, deletions

_FOR_EVER: Final = 2**62


def obeyed(run: Inputs) -> Iterator[Finding]:
    """17: what a topic or a group may not do, it does not."""
    for act in run.of("act"):
        if not act.get("done"):
            continue
        until = _until(run, act)
        closed = act["act"] == "put-topic" and act.get("perm") is not None and not act["perm"] & 2
        unread = act["act"] == "put-topic" and act.get("perm") is not None and not act["perm"] & 4
        disabled = act["act"] == "put-group" and act.get("enabled") is False
        for ack in (*run.of("ack"), *run.of("waiting")):
            sent = run.sent.get(ack["id"], {}).get("t", 0)
            if closed and ack["topic"] == act["topic"] and act["t"] < sent and ack["t"] < until:
                yield 17, "admitted", ack["id"], None, None, None
        for read in run.of("deliver"):
            asked = max(run.sent.get(read["id"], {}).get("t", 0), read.get("asked", 0))
            within = act["t"] < asked and read["t"] < until
            if unread and read["topic"] == act["topic"] and within:
                yield 17, "shown", read["id"], None, None, None
            if disabled and read["group"] == act["group"] and within:
                yield 17, "served", read["id"], None, None, None


def _until(run: Inputs, act: Said) -> int:
    """When another act on the same begins, that was not over when this one began."""
    name = "topic" if "topic" in act else "group"
    return min(
        [
            _FOR_EVER,
            *(
                int(other["began"])
                for other in run.of("act")
                if other is not act
                and other.get(name) == act[name]
                and (other["t"] > act["began"] or not other.get("done"))
            ),
        ]
    )


def gone(run: Inputs) -> Iterator[Finding]:
    """17: what was deleted with its topic is not popped any more; who deletes was asked to."""
    for topic, ends in deletions(run).items():
        acts = [a for a in run.of("act") if a["act"] == "delete-topic" and a["topic"] == topic]
        if not acts or len(acts) < _times_deleted(run, topic):
            yield 17, "unasked", None, None, None, None
        if len(acts) != len(ends) or not all(a.get("done") for a in acts):
            continue
        for read in run.of("deliver"):
            places = [ack["position"] for ack in run.of("ack") if ack["id"] == read["id"]]
            if (
                read["topic"] == topic
                and places
                and max(places) < ends[-1]
                and read.get("asked", 0) > max(a["t"] for a in acts)
            ):
                yield 17, "revived", read["id"], None, None, None


def _times_deleted(run: Inputs, topic: str) -> int:
    """How often logs delete a topic that is there, as far as they are alike: a deletion that is
    repeated counts once."""
    is_there, times = True, 0
    split = run.first_difference
    until = _FOR_EVER if split is None else run.position_at(split)
    alike = [change for change in changes(run.logs) if change[2] < until]
    for name, arguments, _ in sorted(alike, key=lambda change: change[2]):
        if name == "delete_topic" and arguments["topic"] == topic:
            times += is_there
            is_there = False
        if name == "put_topics":
            is_there |= topic in {each["topicName"] for each in arguments["topics"]}
    return times


def asked_for(run: Inputs) -> Iterator[Finding]:
    """17: logs forbid nothing, and delete no group, that no tool has asked for."""
    acts, readers = run.of("act"), (*run.of("deliver"), *run.of("commit"))
    groups = {event["group"] for event in readers}
    topics = {event["topic"] for event in readers} | {*run.topics}
    for name, arguments, _ in changes(run.logs):
        deleted = arguments["group"] if name == "delete_group" else None
        if deleted in groups and not any(
            a["act"] == "delete-group" and a["group"] == deleted for a in acts
        ):
            yield 17, "unasked", None, None, None, None
        for config in arguments.get("topics", ()):
            own = [a for a in acts if a["act"] == "put-topic" and a["topic"] == config["topicName"]]
            is_closed = config["topicName"] in topics and config["perm"] & 6 != 6
            if is_closed and not {config["perm"], None} & {a.get("perm") for a in own}:
                yield 17, "unasked", None, None, None, None
        for config in arguments.get("groups", ()):
            own = [a for a in acts if a["act"] == "put-group" and a["group"] == config["groupName"]]
            is_closed = config["groupName"] in groups and not config["consumeEnable"]
            if is_closed and not {False, None} & {a.get("enabled") for a in own}:
                yield 17, "unasked", None, None, None, None


def in_a_log(run: Inputs) -> Iterator[Finding]:
    """17: an act that was answered is in a log, with what it set."""
    if run.begin:
        return
    rows: set[tuple[str, str, int | None]] = set()
    for name, arguments, _ in changes(run.logs):
        for topic in arguments.get("topics", ()):
            rows |= {("put-topic", topic["topicName"], p) for p in (topic["perm"], None)}
        for group in arguments.get("groups", ()):
            rows |= {("put-group", group["groupName"], p) for p in (group["consumeEnable"], None)}
        if name == "delete_topic":
            rows.add(("delete-topic", arguments["topic"], None))
        if name == "delete_group":
            rows.add(("delete-group", arguments["group"], None))
    for act in run.of("act"):
        whom = act.get("topic") or act["group"]
        if act.get("done") and (act["act"], whom, act.get("perm", act.get("enabled"))) not in rows:
            yield 17, "unlogged", None, None, None, None


JUDGES: Final[tuple[Callable[[Inputs], Iterator[Finding]], ...]] = (
    obeyed,
    gone,
    asked_for,
    in_a_log,
)
