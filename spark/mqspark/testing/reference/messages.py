"""Properties of what is stored, and where: 1 to 7 and 9 to 13, and what of 4 is about logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from typing import Final

from dledger.checksum import crc32
from dledger.remoting.message import LARGE_BODY, LARGE_PART, properties_decode, sender_crc
from mqspark.limits import (
    CLOCK_SLACK_MS,
    CLOCK_SLACK_SHARE,
    DELAY_LATE_S_MAX,
    EXPIRED_S_MAX,
    TRANSACTION_S_MAX,
)
from mqspark.testing.reference.inputs import (
    APART,
    MS,
    Finding,
    Inputs,
    S,
    Said,
    kind_of,
)
from mqspark.testing.rewriting import StoredMessage


def durable(run: Inputs) -> Iterator[Finding]:
    """1: every acknowledged message is on every replica, as it was sent, where it was said."""
    for ack in (*run.of("ack"), *run.of("waiting")):
        waits = kind_of(ack) == "waiting"
        place = (ack["queue_id"], ack["offset"], ack["position"])
        for node in run.logs:
            if ack["position"] < run.begins[node]:
                continue
            copies = [r for r in run.records(node, waiting=waits) if r.message_id == ack["id"]]
            whole = [r for r in copies if not _altered(run, ack["id"], _crc(r), _said(r))]
            if waits:
                right = [r for r in whole if r.position == ack["position"]]
            else:
                right = [r for r in whole if (r.queue_id, r.queue_offset, r.position) == place]
            if not copies:
                yield 1, "lost", ack["id"], node, None, None
            elif not whole:
                yield 1, "altered", ack["id"], node, None, None
            elif not right:
                yield 1, "moved", ack["id"], node, None, None


def authentic(run: Inputs) -> Iterator[Finding]:
    """2: nothing is read that was not sent, or was refused, or is not what was sent."""
    acked = {event["id"] for event in run.of("ack")}
    refused = {event["id"] for event in run.of("fail") if event["definite"]} - acked
    reads: list[tuple[str | None, str, int, int | None, bool]] = [
        (None, event["id"], event["crc"], event.get("properties"), True)
        for event in run.of("deliver")
    ]
    for node, record in run.all_records:
        settled = record.position < run.settled_end
        reads.append((node, str(record.message_id), _crc(record), _said(record), settled))
    for reader, message_id, crc, said, final in reads:
        if message_id not in run.sent:
            yield 2, "phantom", message_id, reader, None, None
        if message_id in refused and final:
            yield 2, "refused", message_id, reader, None, None
        if _altered(run, message_id, crc, said):
            yield 2, "altered", message_id, reader, None, None
    for event in run.of("deliver"):
        if event["t"] < run.sent.get(event["id"], event)["t"]:
            yield 2, "phantom", event["id"], None, None, None
    for holder in run.logs:
        for record in run.records(holder, waiting=True):
            if _altered(run, str(record.message_id), _crc(record), _said(record)):
                yield 2, "altered", record.message_id, holder, None, None
        for letter in run.letters(holder):
            if _altered(run, str(letter.message_id), _crc(letter), None):
                yield 2, "altered", letter.message_id, holder, None, None


def in_its_topic(run: Inputs) -> Iterator[Finding]:
    """2: what is read is in the topic to which it was sent."""
    reads: list[tuple[str | None, str, str | None]] = [
        (None, event["id"], event["topic"]) for event in run.of("deliver")
    ]
    reads += [(node, str(record.message_id), record.topic) for node, record in run.all_records]
    for reader, message_id, topic in reads:
        if message_id in run.sent and run.sent[message_id]["topic"] != topic:
            yield 2, "astray", message_id, reader, None, None


def identical_names(run: Inputs) -> Iterator[Finding]:
    """3: an offset of a queue names one message."""
    for (queue_id, offset), names in run.named.items():
        if len(names) > 1:
            yield 3, "contested", None, None, queue_id, offset


def ordered(run: Inputs) -> Iterator[Finding]:
    """4: acknowledgements and log keep the order of offsets, and there are no holes."""
    for queue_id in {queue_id for queue_id, _ in run.named}:
        slots = sorted((o, names) for (q, o), names in run.named.items() if q == queue_id)
        if any(len(names) > 1 for _, names in slots):
            continue  # contested: which of the two is out of order is the audit's choice
        rows = [_slot(run, queue_id, offset, min(names)) for offset, names in slots]
        for number, (offset, message_id, position, sent_t, _) in enumerate(rows):
            above = rows[number + 1 :]
            acks_above = [ack_t for *_, ack_t in above if ack_t is not None]
            position_above = above[0][2] if above else None
            below = rows[number - 1][0] if number else -1
            if sent_t is not None and acks_above and min(acks_above) < sent_t:
                yield 4, "overtaken", message_id, None, queue_id, offset
            elif position is not None and position_above is not None and position_above < position:
                yield 4, "misplaced", message_id, None, queue_id, offset
            elif offset - below > 1 and (number or not run.begin):
                yield 4, "hole", message_id, None, queue_id, offset


def others_in_order(run: Inputs) -> Iterator[Finding]:
    """4: in each log the offsets of other topics' queues go up by one, from 0 on in each life."""
    for node, log in run.logs.items():
        last: dict[tuple[str, int], int] = {}
        gone: set[str] = set()
        for entry in log:
            if (topic := run.deleted_by(entry)) is not None:
                last = {queue: offset for queue, offset in last.items() if queue[0] != topic}
                gone.add(topic)
            for record in entry.messages:
                topic, queue = str(record.topic), (str(record.topic), record.queue_id)
                if topic in run.topics or record.position >= run.settled_end:
                    continue
                from_start = topic in gone or not run.begins[node]
                expected = last.get(queue, -1 if from_start else record.queue_offset - 1) + 1
                last[queue] = record.queue_offset
                if record.queue_offset != expected:
                    what = "hole" if expected < record.queue_offset else "misplaced"
                    yield 4, what, record.message_id, None, record.queue_id, record.queue_offset


def kept(run: Inputs) -> Iterator[Finding]:
    """4: what was delivered is in some replica's log, at that place."""
    there = {(r.message_id, r.queue_id, r.queue_offset) for _, r in run.all_records}
    for event in run.of("deliver"):
        kept_from = run.kept_from(event["queue_id"]) if run.begin else 0
        removed = kept_from is None or event["offset"] < kept_from
        if (event["id"], event["queue_id"], event["offset"]) not in there and not removed:
            yield 4, "vanished", event["id"], None, None, None


def unchanged(run: Inputs) -> Iterator[Finding]:
    """5 and 13: the logs say the same, as far as they are settled. An entry's chain CRC stands for
    all before it too, what was removed included."""
    first: dict[tuple[int, str], str] = {}
    for index, held in run.held.items():
        settled = run.position_at(index) < run.settled_end
        votes = Counter(entry.chain_crc for entry in held.values())
        best = [chain for chain, count in votes.items() if count == max(votes.values())]
        for node in run.logs:
            if node not in held:
                if settled:
                    first.setdefault((13, node), "incomplete")
                continue
            own = held[node]
            if len(votes) == 1 or best == [own.chain_crc]:
                continue
            of_term = {each.chain_crc for each in held.values() if each.term == own.term}
            if settled or len(of_term) > 1:
                first.setdefault((5, node), "changed")
            if settled:
                first.setdefault((13, node), "different")
    for node, log in run.logs.items():
        entries = [entry for entry in log if entry.position >= run.begin]
        for one, other in combinations(entries, 2):
            settled = max(one.position, other.position) < run.settled_end
            if one.index == other.index and (settled or one.term == other.term):
                first.setdefault((5, node), "changed")
    for (number, node), what in first.items():
        yield number, what, None, node, None, None


def in_log_order(run: Inputs) -> Iterator[Finding]:
    """5: in each log indexes go up by one, and terms don't fall."""
    for node, log in run.logs.items():
        for before, after in pairwise(log):
            if after.index != before.index + 1 or after.term < before.term:
                yield 5, "disordered", None, node, None, None


def elected(run: Inputs) -> Iterator[Finding]:
    """6: a term has one leader, a node one vote in it, and terms are not forgotten."""
    leads, votes = run.of("lead"), run.of("vote")
    for term in {event["term"] for event in leads}:
        nodes = sorted({event["node"] for event in leads if event["term"] == term})
        if len(nodes) > 1:
            yield 6, "two leaders", None, ", ".join(nodes), None, None
    for node in {event["node"] for event in (*leads, *votes)}:
        own = [event for event in votes if event["node"] == node]
        for lead in leads:
            chosen = {v["vote"] for v in own if v["term"] == lead["term"]} - {None}
            if lead["node"] == node and chosen and node not in chosen:
                yield 6, "unelected", None, node, None, None
        for vote in own:
            chosen = {v["vote"] for v in own if v["term"] == vote["term"]} - {None}
            if len(chosen) > 1:
                yield 6, "two votes", None, node, None, None
            if any(
                (v["term"] > vote["term"] or _is_taken_back(v, vote))
                and v["t"] < vote["t"]
                and not lost_disk(run, v, vote)
                for v in own
            ):
                yield 6, "forgotten", None, node, None, None


def _is_taken_back(before: Said, after: Said) -> bool:
    """Whether of two notes of a node in one term the first has a vote, and the other has none."""
    return before["term"] == after["term"] and before["vote"] is not None and after["vote"] is None


def lost_disk(run: Inputs, before: Said, after: Said) -> bool:
    """Whether a node's disk was taken away between two of its votes."""
    return any(
        fault["fault"] in ("wipe", "new-disk")
        and fault["node"] == after["node"]
        and before["t"] <= fault["t"] <= after["t"]
        for fault in run.of("fault")
    )


def complete(run: Inputs) -> Iterator[Finding]:
    """7: a leader's log has what was acknowledged before, of its term and earlier ones, from where
    all logs reach back to: of which term the entries before that were nobody knows."""
    terms = [
        (entry.term, entry.position)
        for log in run.common.values()
        for entry in log.values()
        if entry.position < run.settled_end
    ]
    every = {entry.term for log in run.logs.values() for entry in log}
    for lead in run.of("lead"):
        if lead.get("end_position") is None:
            continue
        if lead["term"] not in every and not run.begin:
            yield 7, "unlogged", None, lead["node"], None, None
        later = [position for term, position in terms if term > lead["term"]]
        lacking = [
            (ack["position"], ack["id"])
            for ack in (*run.of("ack"), *run.of("waiting"))
            if ack["t"] < lead["began"]
            and ack["position"] >= max(lead["end_position"], run.begin)
            and (not later or ack["position"] < min(later))
        ]
        if lacking:
            yield 7, "incomplete", min(lacking)[1], lead["node"], None, None


def single(run: Inputs) -> Iterator[Finding]:
    """9: no log has a message too often."""
    again = Counter(event["id"] for event in run.of("again"))
    for node in run.logs:
        for waiting in (False, True):
            counts = Counter(
                (record.message_id, record.queue_id // APART)
                for record in run.records(node, waiting=waiting)
            )
            for (message_id, _), count in counts.items():
                if count > run.copies_max + again[message_id]:
                    yield 9, "duplicate", message_id, node, None, None


def transacted(run: Inputs) -> Iterator[Finding]:
    """10: what is committed is seen, what is rolled back never, and in time."""
    resolved = {e["id"]: e["t"] for e in run.of("resolve") if e["transaction"] == "commit"}
    for message_id, send in run.sent.items():
        where = {node for node, record in run.all_records if record.message_id == message_id}
        if send.get("transaction") and (
            run.came_before_it_waited(message_id)
            or any(ack["id"] == message_id for ack in run.of("ack"))
        ):
            yield 10, "visible", message_id, None, None, None
        read = [e["t"] for e in run.of("deliver") if e["id"] == message_id]
        acks = [e["t"] for e in run.of("waiting") if e["id"] == message_id]
        if send.get("transaction") == "rollback" and (where or read):
            yield 10, "visible", message_id, None, None, None
        if send.get("transaction") != "commit":
            continue
        held = run.held_at(message_id)
        if message_id in resolved:
            for node in set(run.logs) - where:
                if not run.begins[node] or held >= run.begins[node]:
                    yield 10, "hidden", message_id, node, None, None
        removable = run.begin > held
        since = max(
            [*acks[:1], *([resolved[message_id]] if message_id in resolved else [])], default=0
        )
        if acks and read and run.overdue(since, min(read), TRANSACTION_S_MAX):
            yield 10, "late", message_id, None, None, None
        if removable and run.begin:
            continue
        if run.is_gone(send["topic"], held):
            continue
        if acks and not read and not where and run.overdue(since, None, TRANSACTION_S_MAX):
            yield 10, "open", message_id, None, None, None


def in_time(run: Inputs) -> Iterator[Finding]:
    """11: a delayed message does not come before its time, and not long after it."""
    for message_id, send in run.sent.items():
        if send.get("due") is None:
            continue
        read = [e["t"] for e in run.of("deliver") if e["id"] == message_id]
        acks = [e["t"] for e in run.of("waiting") if e["id"] == message_id]
        there = any(record.message_id == message_id for _, record in run.all_records)
        slack = CLOCK_SLACK_MS * MS + CLOCK_SLACK_SHARE * (send["due"] - send["t"])
        acked = [e["t"] for e in run.of("ack") if e["id"] == message_id]
        if (read or acked) and min([*read, *acked]) < send["due"] - slack:
            yield 11, "early", message_id, None, None, None
        if run.came_before_it_waited(message_id):
            yield 11, "early", message_id, None, None, None
        since = max(send["due"], *acks, 0)
        if acks and read and run.overdue(since, min(read), DELAY_LATE_S_MAX):
            yield 11, "late", message_id, None, None, None
        held = run.held_at(message_id)
        if run.begin and held < run.begin:
            continue
        if run.is_gone(send["topic"], held):
            continue
        if acks and not read and not there and run.overdue(since, None, DELAY_LATE_S_MAX):
            yield 11, "missing", message_id, None, None, None


def in_life(run: Inputs) -> Iterator[Finding]:
    """11: a message is not delivered after its end."""
    for event in run.of("deliver"):
        expires = run.sent.get(event["id"], {}).get("expires")
        if expires is not None and event["t"] > expires + EXPIRED_S_MAX * S:
            yield 11, "expired", event["id"], None, None, None


def fresh(run: Inputs) -> Iterator[Finding]:
    """12: the end of a queue is above all that was acknowledged before it was asked for, and not
    above what any log has."""
    for answer in run.of("queue_end"):
        earlier = [
            ack["offset"]
            for ack in run.of("ack")
            if ack["queue_id"] == answer["queue_id"] and ack["t"] < answer["began"]
        ]
        if earlier and max(earlier) >= answer["offset"]:
            yield 12, "stale", None, None, answer["queue_id"], max(earlier)
        if not run.begin and answer["offset"] > run.end_of(answer["queue_id"]):
            yield 12, "beyond", None, None, answer["queue_id"], answer["offset"]


def readable(run: Inputs) -> Iterator[Finding]:
    """1 and 2: a body that is stored in parts is there, on each replica that has its message."""
    acked = {event["id"] for event in run.of("ack")}
    for node, record in run.all_records:
        named = _properties(record).get(LARGE_BODY)
        if record.body_bytes or named is None:
            continue
        set_id, size, crc, topic, _, queue_id, places = named.split(" ")
        offsets = [
            offset
            for run_ in places.split(",")
            for first, _, last in [run_.partition("-")]
            for offset in range(int(first), int(last or first) + 1)
        ]
        kept = [
            part.queue_offset
            for log in run.logs.values()
            for entry in log
            for part in entry.messages
            if (part.topic, part.queue_id) == (topic, int(queue_id))
        ]
        if run.begin and offsets[0] < min(kept, default=offsets[0] + 1):
            continue
        parts = {
            part.queue_offset: part
            for entry in run.logs[node]
            for part in entry.messages
            if (part.topic, part.queue_id) == (topic, int(queue_id))
            and _properties(part).get(LARGE_PART) == set_id
        }
        whole = b"".join(_body(parts[offset]) for offset in offsets if offset in parts)
        lost = any(offset not in parts for offset in offsets)
        if lost or len(whole) != int(size) or crc32(whole) != int(crc, 16):
            if record.message_id in acked:
                yield 1, "lost" if lost else "altered", record.message_id, node, None, None
            elif record.position < run.settled_end:
                yield 2, "damaged", record.message_id, node, None, None


def _body(record: StoredMessage) -> bytes:
    return record.raw[record.body_at : record.body_at + record.body_bytes]


def _crc(record: StoredMessage) -> int:
    """The checksum of the body as it was sent; its parts are looked at by themselves."""
    named = _properties(record).get(LARGE_BODY)
    return (
        crc32(_body(record)) if record.body_bytes or named is None else int(named.split(" ")[2], 16)
    )


def _properties(record: StoredMessage) -> dict[str, str]:
    rest = record.raw[record.body_at + record.body_bytes :]
    return properties_decode(rest[1 + rest[0] + 2 :])


def _said(record: StoredMessage) -> int:
    """Checksum of what the sender said of a record beside the body."""
    return sender_crc(_properties(record), int.from_bytes(record.raw[16:20], "big", signed=True))


def _altered(run: Inputs, message_id: str, crc: int, said: int | None) -> bool:
    """Whether a message differs from its send, as far as the sender says."""
    sent = run.sent.get(message_id)
    if sent is None:
        return False
    unlike = said is not None and sent.get("properties") not in {None, said}
    return unlike or sent["crc"] != crc


def _slot(
    run: Inputs, queue_id: int, offset: int, message_id: str
) -> tuple[int, str, int | None, int | None, int | None]:
    """Offset, message, position in the log, when it was sent, when acknowledged there."""
    acks = [
        event
        for event in run.of("ack")
        if (event["id"], event["queue_id"], event["offset"]) == (message_id, queue_id, offset)
    ]
    positions = [event["position"] for event in acks]
    positions += [
        record.position
        for _, record in run.all_records
        if (record.message_id, record.queue_id, record.queue_offset)
        == (message_id, queue_id, offset)
        and record.position < run.settled_end
    ]
    send = run.sent.get(message_id)
    return (
        offset,
        message_id,
        min(positions, default=None),
        None if send is None else send["t"],
        min((event["t"] for event in acks), default=None),
    )


JUDGES: Final[tuple[Callable[[Inputs], Iterator[Finding]], ...]] = (
    durable,
    readable,
    authentic,
    in_its_topic,
    identical_names,
    ordered,
    others_in_order,
    kept,
    unchanged,
    in_log_order,
    elected,
    complete,
    single,
    transacted,
    in_time,
    in_life,
    fresh,
)
