"""Properties of what groups of consumers are answered, and given: 4, 8, and 14 to 16."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Final

from mqspark.limits import IN_HAND_MAX
from mqspark.testing.reference.inputs import (
    APART,
    Finding,
    Inputs,
    Said,
    queue_of,
)


def read_in_order(run: Inputs) -> Iterator[Finding]:
    """4: a group reads a queue without a gap and in order, not counting repeats, unless it pops."""
    for group, queue_id, first_t in _readings(run):
        offsets = sorted(first_t)
        if run.is_deleted(group):
            continue
        resets = [r for r in run.of("reset") if queue_of(r) == (group, queue_id)]
        for offset, above in zip(offsets, [*offsets[1:], None], strict=True):
            kept_from = run.kept_from(queue_id) if run.begin else 0
            kept = kept_from is not None and above is not None and above - 1 >= kept_from
            is_set = any(reset["offset"] == above for reset in resets)
            if above is not None and above - offset > 1 and kept and not is_set:
                yield 4, "skipped", None, None, queue_id, offset
            elif any(
                first_t[higher] < first_t[offset] for higher in offsets if higher > offset
            ) and not _was_set_back(first_t, offset, resets):
                yield 4, "late", None, None, queue_id, offset


def _was_set_back(first_t: dict[int, int], offset: int, resets: list[Said]) -> bool:
    """Whether tools explain that an offset came first after higher ones."""
    above = min(t for higher, t in first_t.items() if higher > offset)
    begun = any(t < above for lower, t in first_t.items() if lower < offset)
    passed = any(r["offset"] > offset and r["began"] <= above for r in resets)
    back = any(r["offset"] <= offset and r["began"] < first_t[offset] for r in resets)
    return back and (passed or not begun)


def committed(run: Inputs) -> Iterator[Finding]:
    """8: when a commit was answered, all below it had been delivered."""
    readings = {(group, queue_id): first_t for group, queue_id, first_t in _readings(run)}
    commits = sorted(run.of("commit"), key=lambda event: (event["t"], event["offset"]))
    for place in {(event["group"], event["queue_id"]) for event in commits}:
        own = [event for event in commits if (event["group"], event["queue_id"]) == place]
        first_t = dict(readings.get(place, {}))
        resets = [reset for reset in run.of("reset") if queue_of(reset) == place]
        if run.is_deleted(place[0]):
            continue
        begin = min([*first_t, *(event["offset"] for event in own)])
        if resets:
            first = min(reset["began"] for reset in resets)
            earlier = [o for o, t in first_t.items() if t < first]
            earlier += [event["offset"] for event in own if event["t"] < first]
            begin = min(earlier, default=begin)
        for reset in resets:
            before, known = reset["offset"] - 1, first_t.get(reset["offset"] - 1, reset["began"])
            if before >= begin:
                first_t[before] = min(known, reset["began"])
        if run.begin:
            kept_from = run.kept_from(place[1])
            begin = 2**63 if kept_from is None else max(begin, kept_from)
        for commit in own:
            needed = set(range(begin, commit["offset"]))
            for reset in resets:
                below = [o for o in first_t if o < reset["offset"] - 1]
                if reset["offset"] <= commit["offset"] and reset["began"] <= commit["t"]:
                    needed -= set(range(max(below, default=begin - 1) + 1, reset["offset"] - 1))
            if any(o not in first_t or first_t[o] > commit["t"] for o in needed):
                yield 8, "ahead", None, None, place[1], commit["offset"]
                break


def kept_offsets(run: Inputs) -> Iterator[Finding]:
    """8: an offset is never below one that was committed before, unless there was a reset."""
    for said in (*run.of("commit"), *run.of("group_offset")):
        for commit in run.of("commit") if not run.is_deleted(said["group"]) else ():
            resets = [
                reset
                for reset in run.of("reset")
                if queue_of(reset) == queue_of(said)
                and reset["t"] >= commit["began"]
                and reset["began"] <= said["t"]
            ]
            if (
                queue_of(commit) == queue_of(said)
                and commit["t"] < said["began"]
                and commit["offset"] > said["offset"]
                and not resets
                and (said["kind"] != "commit" or said["client"] == commit["client"])
                and not (said["kind"] != "commit" and _stood(run, commit, said["offset"]))
            ):
                yield 8, "back", None, None, said["queue_id"], said["offset"]


def _stood(run: Inputs, higher: Said, at: int) -> bool:
    """Whether a commit that was under way at the same time may have taken the group back to `at`,
    or before that."""
    return any(
        queue_of(lower) == queue_of(higher)
        and lower["client"] != higher["client"]
        and lower["offset"] <= at
        and lower["t"] >= higher["began"]
        and lower["began"] <= higher["t"]
        for lower in run.of("commit")
    )


def stored_commits(run: Inputs) -> Iterator[Finding]:
    """8: a log has that the group went on where it was answered to be: to who commits, and to who
    asks, unless it pops."""
    if run.begin:
        return
    for place in {queue_of(event) for event in run.of("commit")}:
        rows = run.changes("commit_offsets", "offsets")
        numbers = (place[0], place[1] % APART)
        if run.is_deleted(place[0]):
            continue
        own = [event for event in run.of("commit") if queue_of(event) == place]
        topic = own[0]["topic"]
        logged = max(
            [0, *(row[3] for row in rows if (row[0], row[2]) == numbers and row[1] == topic)]
        )
        lost = [
            (event["t"], event["offset"])
            for event in own
            if event["offset"] > logged
            and not run.is_reset(event)
            and not _stood(run, event, logged)
        ]
        popped = [
            event
            for event in run.of("deliver")
            if queue_of(event) == place and event.get("pop_time") is not None
        ]
        lost += [
            (event["t"], event["offset"])
            for event in run.of("group_offset")
            if queue_of(event) == place
            and event["offset"] > logged
            and not run.is_reset(event)
            and not popped
        ]
        if lost:
            yield 8, "unlogged", None, None, place[1], min(lost)[1]


def with_outputs(run: Inputs) -> Iterator[Finding]:
    """14: what the group has passed has its output; what has its output, it has passed."""
    there = {record.message_id for _, record in run.all_records}
    given = [e for e in run.of("deliver") if e["group"] == run.group]
    said = [
        event
        for event in (*run.of("commit"), *run.of("group_offset"))
        if event["group"] == run.group and not run.is_reset(event)
    ]
    for (queue_id, offset), names in run.named.items():
        if queue_id >= APART:
            continue
        own = [event for event in said if event["queue_id"] == queue_id]
        begin = [e["offset"] for e in given if e["queue_id"] == queue_id]
        passed = max((event["offset"] for event in own), default=0)
        if own and begin and min(begin) <= offset < passed:
            for message_id in names:
                kept = run.is_kept(queue_id, offset, message_id)
                if kept and f"{message_id}-output" not in there:
                    yield 14, "missing", message_id, None, queue_id, offset
    for answer in said:
        if answer["kind"] != "group_offset" or answer["queue_id"] >= APART:
            continue
        taken = [
            offset
            for (queue_id, offset), names in run.named.items()
            if queue_id == answer["queue_id"]
            for ack in run.of("ack")
            if ack["t"] < answer["began"] and ack["id"] in {f"{name}-output" for name in names}
        ]
        if taken and max(taken) >= answer["offset"]:
            yield 14, "untaken", None, None, answer["queue_id"], max(taken)


def done_for_ever(run: Inputs) -> Iterator[Finding]:
    """15: what was popped and is done is not handed out again, and is in a log."""
    for settle in run.of("settle"):
        if not settle["counted"]:
            continue
        lasts = not run.is_reset(settle) and not run.is_deleted(settle["group"])
        for event in run.of("deliver"):
            if (
                (*queue_of(event), event["offset"], event["id"])
                == (*queue_of(settle), settle["offset"], settle["id"])
                and event.get("pop_time") is not None
                and event["pop_time"] > settle["pop_time"]
                and lasts
            ):
                yield 15, "again", settle["id"], None, settle["queue_id"], settle["offset"]
        for node in run.logs:
            letters = run.letters(node, settle["id"], settle["group"])
            if settle["how"] == "dead" and not letters and not run.begins[node]:
                yield 15, "unburied", settle["id"], node, None, None
    done = {
        (group, queue_id, pop_time, base + bit)
        for group, _, queue_id, pop_time, base, bits in run.changes("settle_popped", "acks")
        for bit in range(8 * len(bits))
        if bits[bit // 8] >> bit % 8 & 1
    }
    for settle in run.of("settle"):
        if (
            settle["counted"]
            and settle["how"] == "ack"
            and not run.begin
            and not run.is_reset(settle)
            and not run.is_deleted(settle["group"])
        ):
            queue_id = settle["queue_id"] % APART
            named = (settle["group"], queue_id, settle["pop_time"], settle["offset"])
            if named not in done:
                yield 15, "unlogged", settle["id"], None, settle["queue_id"], settle["offset"]


def given_to_one(run: Inputs) -> Iterator[Finding]:
    """15: a delivery of a popped message is one member's."""
    popped = [e for e in run.of("deliver") if e.get("pop_time") is not None and e.get("client")]
    for one, other in combinations(popped, 2):
        if (
            all(one[name] == other[name] for name in ("id", "group", "queue_id", "offset"))
            and one["pop_time"] == other["pop_time"]
            and one["client"] != other["client"]
            and not run.is_reset(one)
            and not run.is_deleted(one["group"])
        ):
            yield 15, "shared", one["id"], None, one["queue_id"], one["offset"]


def rightly_buried(run: Inputs) -> Iterator[Finding]:
    """15: what is stored once and done by an ack is no dead letter of that group; none is more
    often than it is stored, unless a tool had the group go back."""
    for settle in run.of("settle"):
        copies = {r.position for _, r in run.all_records if r.message_id == settle["id"]}
        is_acked = settle["counted"] and settle["how"] == "ack" and len(copies) == 1
        if not is_acked or run.is_reset(settle) or run.is_deleted(settle["group"]):
            continue
        for node in run.logs:
            if run.letters(node, settle["id"], settle["group"]):
                yield 15, "buried", settle["id"], node, None, None
    for node in run.logs:
        buried = Counter((str(m.message_id), m.topic) for m in run.letters(node))
        for (message_id, topic), count in buried.items():
            group = str(topic).removeprefix("%DLQ%")
            copies = {r.position for _, r in run.all_records if r.message_id == message_id}
            given_anew = any(
                run.is_reset(event)
                for event in (*run.of("deliver"), *run.of("settle"))
                if (event["id"], event["group"]) == (message_id, group)
            )
            if count > max(1, len(copies)) and not given_anew and not run.is_deleted(group):
                yield 15, "buried twice", message_id, node, None, None


def passed_when_given(run: Inputs) -> Iterator[Finding]:
    """15: the offset of a group that pops never goes back, nor beyond the queue's end, and all
    below it was given before."""
    popped = {
        queue_of(e)
        for e in run.of("deliver")
        if e.get("pop_time") is not None and not run.is_deleted(e["group"])
    }
    answers = [e for e in run.of("group_offset") if queue_of(e) in popped and not run.is_reset(e)]
    for answer in answers:
        own = [e for e in run.of("deliver") if queue_of(e) == queue_of(answer)]
        earlier = [
            e for e in answers if queue_of(e) == queue_of(answer) and e["t"] < answer["began"]
        ]
        if any(event["offset"] > answer["offset"] for event in earlier):
            yield 15, "back", None, None, answer["queue_id"], answer["offset"]
        committed = any(queue_of(e) == queue_of(answer) for e in run.of("commit"))
        if not run.begin and not committed and answer["offset"] > run.end_of(answer["queue_id"]):
            yield 15, "beyond", None, None, answer["queue_id"], answer["offset"]
        begin = min(event["offset"] for event in own)
        seen = {event["offset"] for event in own if event["t"] <= answer["t"]}
        for (queue_id, offset), names in run.named.items():
            below = queue_id == answer["queue_id"] and begin <= offset < answer["offset"]
            kept = [name for name in names if run.is_kept(queue_id, offset, name)]
            ends = any("expires" in run.sent.get(name, {}) for name in kept)
            if below and kept and offset not in seen and not ends:
                yield 15, "passed", None, None, queue_id, offset


def highest_first(run: Inputs) -> Iterator[Finding]:
    """16: nothing is popped while something of a higher queue waits; priorities are queues."""
    for ack in run.of("ack"):
        priority = run.sent.get(ack["id"], {}).get("priority")
        last = run.levels.get(ack["topic"], 0) - 1
        if (
            ack["queue_id"] < APART
            and last >= 0
            and priority is not None
            and ack["queue_id"] != min(priority, last)
        ):
            yield 16, "misplaced", ack["id"], None, ack["queue_id"], ack["offset"]
    moved = {queue_of(event) for event in (*run.of("reset"), *run.of("commit"))}
    new = [
        event
        for event in run.of("deliver")
        if event["queue_id"] < APART
        and "asked" in event
        and event["topic"] in run.levels
        and queue_of(event) not in moved
    ]
    for high in new:
        place = (*queue_of(high), high["offset"])
        asked = min(e["asked"] for e in new if (*queue_of(e), e["offset"]) == place)
        acks = [ack["t"] for ack in run.of("ack") if (ack["queue_id"], ack["offset"]) == place[1:]]
        for low in new:
            if (
                low["queue_id"] < high["queue_id"]
                and low["group"] == high["group"]
                and acks
                and min(acks) < low["asked"]
                and low["t"] < asked
                and high["offset"] < IN_HAND_MAX
            ):
                yield 16, "passed over", high["id"], None, high["queue_id"], high["offset"]


def _readings(run: Inputs) -> Iterator[tuple[str, int, dict[int, int]]]:
    """Each group and queue, with when each offset was first delivered."""
    pulled = [event for event in run.of("deliver") if event.get("pop_time") is None]
    for group, queue_id in {queue_of(event) for event in pulled}:
        first_t: dict[int, int] = {}
        for event in pulled:
            if queue_of(event) == (group, queue_id):
                known = first_t.get(event["offset"], event["t"])
                first_t[event["offset"]] = min(known, event["t"])
        yield group, queue_id, first_t


JUDGES: Final[tuple[Callable[[Inputs], Iterator[Finding]], ...]] = (
    read_in_order,
    committed,
    kept_offsets,
    stored_commits,
    with_outputs,
    done_for_ever,
    given_to_one,
    rightly_buried,
    passed_when_given,
    highest_first,
)
