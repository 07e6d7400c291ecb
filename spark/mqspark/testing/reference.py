"""A second judge: slow, in plain Python, one short function a property, and obviously right.

It reads the same files as the audit and judges runs small enough for nested loops: no digest, no
shuffle, no suspects, no shortcut of any kind. The two share how a record is decoded, and not a line
of how it is judged; on random runs with random faults they must find the same.

Only sound bytes are judged: damage, which is found byte by byte and not by comparing, is left out.
What is found is a tuple: (property, what, message or None, replica or None, queue or None,
offset or None), with None for what the audit chooses among equals.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from dledger.checksum import crc32
from dledger.log.entry import HEADER_BYTES
from mqspark.limits import (
    CLOCK_SLACK_MS,
    CLOCK_SLACK_SHARE,
    DELAY_LATE_S_MAX,
    TRANSACTION_S_MAX,
)
from mqspark.testing.rewriting import StoredEntry, StoredMessage

Said = Mapping[str, Any]
Finding = tuple[int, str, str | None, str | None, int | None, int | None]
_WAITING: Final = {"SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"}
_S: Final = 1_000_000_000
_MS: Final = 1_000_000


@dataclass
class Inputs:
    """What there is to judge: one broker's run. `logs`: node -> its entries."""

    topic: str
    copies_max: int
    events: Sequence[Said]
    logs: Mapping[str, Sequence[StoredEntry]]

    def of(self, kind: str) -> list[Said]:
        """The events of a kind; an `ack` is one of a message in its topic, else `waiting`."""
        return [event for event in self.events if _kind(event) == kind]

    @cached_property
    def sent(self) -> dict[str, Said]:
        """The sends by message."""
        return {event["id"]: event for event in self.of("send")}

    def records(self, node: str, *, waiting: bool = False) -> list[StoredMessage]:
        """A node's records in the topic, or those that wait."""
        return [
            message
            for entry in self.logs[node]
            for message in entry.messages
            if (message.topic in _WAITING if waiting else message.topic == self.topic)
        ]

    @cached_property
    def all_records(self) -> list[tuple[str, StoredMessage]]:
        """(node, record in the topic) of all nodes."""
        return [(node, record) for node in self.logs for record in self.records(node)]

    @cached_property
    def first_difference(self) -> int | None:
        """The first index on which not all logs agree; None if they are equal."""
        longest = max(len(log) for log in self.logs.values())
        for index in range(longest):
            if len({_chain(log, index) for log in self.logs.values()}) > 1:
                return index
        return None

    def position_at(self, index: int) -> int:
        """The lowest position at which a log has the entry."""
        return min(log[index].position for log in self.logs.values() if index < len(log))

    @cached_property
    def settled_end(self) -> int:
        """Up to here the log can't change: what clients were told of, and what all hold alike."""
        told = [0]
        heard = {event["id"] for event in (*self.of("ack"), *self.of("deliver"))}
        for message_id in heard:
            places = [event["position"] for event in self.of("ack") if event["id"] == message_id]
            places += [r.position for _, r in self.all_records if r.message_id == message_id]
            told += [min(places) + 1] if places else []
        for message_id in {event["id"] for event in self.of("waiting")}:
            places = [e["position"] for e in self.of("waiting") if e["id"] == message_id]
            places += [
                r.position
                for node in self.logs
                for r in self.records(node, waiting=True)
                if r.message_id == message_id
            ]
            told.append(min(places) + 1)
        if self.first_difference is not None:
            return max(*told, self.position_at(self.first_difference))
        last = next(iter(self.logs.values()))[-1]
        return max(*told, last.position + HEADER_BYTES + len(last.body))

    @cached_property
    def named(self) -> dict[tuple[int, int], set[str]]:
        """(queue, offset) -> the messages that anybody says are there."""
        slots: dict[tuple[int, int], set[str]] = defaultdict(set)
        for event in (*self.of("ack"), *self.of("deliver")):
            slots[event["queue_id"], event["offset"]].add(event["id"])
        for _, record in self.all_records:
            if record.position < self.settled_end:
                slots[record.queue_id, record.queue_offset].add(str(record.message_id))
        return slots

    @cached_property
    def run_end(self) -> int:
        """When the last file was closed."""
        return max(int(event["t"]) for event in self.of("end"))

    def overdue(self, at: int, happened: int | None, within_s: float) -> bool:
        """Whether what was due at `at` happened too late, counted from the last fault before."""
        until = self.run_end if happened is None else happened
        faults = [int(event["t"]) for event in self.of("fault") if event["t"] <= until]
        return until > max(at, *faults, 0) + int(within_s * _S)


def findings(inputs: Inputs) -> set[Finding]:
    """All that is wrong with a run."""
    return {finding for judge in JUDGES for finding in judge(inputs)}


def durable(run: Inputs) -> Iterator[Finding]:
    """1: every acknowledged message is on every replica, as it was sent, where it was said."""
    for ack in (*run.of("ack"), *run.of("waiting")):
        waits = _kind(ack) == "waiting"
        place = (ack["queue_id"], ack["offset"], ack["position"])
        for node in run.logs:
            copies = [r for r in run.records(node, waiting=waits) if r.message_id == ack["id"]]
            whole = [r for r in copies if not _altered(run, ack["id"], _crc(r))]
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
    reads: list[tuple[str | None, str, int, bool]] = [
        (None, event["id"], event["crc"], True) for event in run.of("deliver")
    ]
    for node, record in run.all_records:
        settled = record.position < run.settled_end
        reads.append((node, str(record.message_id), _crc(record), settled))
    for reader, message_id, crc, final in reads:
        if message_id not in run.sent:
            yield 2, "phantom", message_id, reader, None, None
        if message_id in refused and final:
            yield 2, "refused", message_id, reader, None, None
        if _altered(run, message_id, crc):
            yield 2, "altered", message_id, reader, None, None
    for holder in run.logs:
        for record in run.records(holder, waiting=True):
            if _altered(run, str(record.message_id), _crc(record)):
                yield 2, "altered", record.message_id, holder, None, None


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
            elif offset - below > 1:
                yield 4, "hole", message_id, None, queue_id, offset


def read_in_order(run: Inputs) -> Iterator[Finding]:
    """4: a group reads a queue without a gap and in order, repeats left aside."""
    for group, queue_id, first_t in _readings(run):
        offsets = sorted(first_t)
        for offset, above in zip(offsets, [*offsets[1:], None], strict=True):
            if above is not None and above - offset > 1:
                yield 4, "skipped", None, None, queue_id, offset
            elif any(first_t[higher] < first_t[offset] for higher in offsets if higher > offset):
                yield 4, "late", None, None, queue_id, offset
        assert group


def kept(run: Inputs) -> Iterator[Finding]:
    """4: what was delivered is in some replica's log."""
    there = {record.message_id for _, record in run.all_records}
    for message_id in {event["id"] for event in run.of("deliver")} - there:
        yield 4, "vanished", message_id, None, None, None


def unchanged(run: Inputs) -> Iterator[Finding]:
    """5 and 13: the logs say the same, as far as they are settled."""
    first: dict[tuple[int, str], str] = {}
    longest = max(len(log) for log in run.logs.values())
    for index in range(longest):
        chains = {node: _chain(log, index) for node, log in run.logs.items() if index < len(log)}
        settled = run.position_at(index) < run.settled_end
        votes = Counter(chains.values())
        best = [chain for chain, count in votes.items() if count == max(votes.values())]
        for node, log in run.logs.items():
            if node not in chains:
                if settled:
                    first.setdefault((13, node), "incomplete")
                continue
            if len(votes) == 1 or best == [chains[node]]:
                continue
            of_term = {
                chain
                for other, chain in chains.items()
                if run.logs[other][index].term == log[index].term
            }
            if settled or len(of_term) > 1:
                first.setdefault((5, node), "changed")
            if settled:
                first.setdefault((13, node), "different")
    for (number, node), what in first.items():
        yield number, what, None, node, None, None


def elected(run: Inputs) -> Iterator[Finding]:
    """6: a term has one leader, a node one vote in it, and terms are not forgotten."""
    leads, votes = run.of("lead"), run.of("vote")
    for term in {event["term"] for event in leads}:
        nodes = sorted({event["node"] for event in leads if event["term"] == term})
        if len(nodes) > 1:
            yield 6, "two leaders", None, ", ".join(nodes), None, None
    for node in {event["node"] for event in votes}:
        own = [event for event in votes if event["node"] == node]
        for vote in own:
            chosen = {v["vote"] for v in own if v["term"] == vote["term"]} - {None}
            if len(chosen) > 1:
                yield 6, "two votes", None, node, None, None
            if any(
                v["term"] > vote["term"] and v["t"] < vote["t"] and not lost_disk(run, v, vote)
                for v in own
            ):
                yield 6, "forgotten", None, node, None, None


def lost_disk(run: Inputs, before: Said, after: Said) -> bool:
    """Whether a node's disk was taken away between two of its votes."""
    return any(
        fault["fault"] in ("wipe", "new-disk")
        and fault["node"] == after["node"]
        and before["t"] <= fault["t"] <= after["t"]
        for fault in run.of("fault")
    )


def complete(run: Inputs) -> Iterator[Finding]:
    """7: a leader's log has what was acknowledged before, of its term and earlier ones."""
    terms = [
        (entry.term, entry.position)
        for log in run.logs.values()
        for entry in log
        if entry.position < run.settled_end
    ]
    for lead in run.of("lead"):
        if lead.get("end_position") is None:
            continue
        later = [position for term, position in terms if term > lead["term"]]
        lacking = [
            (ack["position"], ack["id"])
            for ack in (*run.of("ack"), *run.of("waiting"))
            if ack["t"] < lead["began"]
            and ack["position"] >= lead["end_position"]
            and (not later or ack["position"] < min(later))
        ]
        if lacking:
            yield 7, "incomplete", min(lacking)[1], lead["node"], None, None


def committed(run: Inputs) -> Iterator[Finding]:
    """8: when a commit was answered, all below it had been delivered."""
    readings = {(group, queue_id): first_t for group, queue_id, first_t in _readings(run)}
    commits = sorted(run.of("commit"), key=lambda event: (event["t"], event["offset"]))
    for place in {(event["group"], event["queue_id"]) for event in commits}:
        own = [event for event in commits if (event["group"], event["queue_id"]) == place]
        first_t = readings.get(place, {})
        begin = min([*first_t, *(event["offset"] for event in own)])
        for commit in own:
            needed = range(begin, commit["offset"])
            if any(o not in first_t or first_t[o] > commit["t"] for o in needed):
                yield 8, "ahead", None, None, place[1], commit["offset"]
                break


def kept_offsets(run: Inputs) -> Iterator[Finding]:
    """8: an offset is never below one that was committed before, unless there was a reset."""
    for said in (*run.of("commit"), *run.of("group_offset")):
        for commit in run.of("commit"):
            resets = [
                reset
                for reset in run.of("reset")
                if _queue(reset) == _queue(said)
                and reset["t"] >= commit["began"]
                and reset["began"] <= said["t"]
            ]
            if (
                _queue(commit) == _queue(said)
                and commit["t"] < said["began"]
                and commit["offset"] > said["offset"]
                and not resets
                and (said["kind"] != "commit" or said["client"] == commit["client"])
            ):
                yield 8, "back", None, None, said["queue_id"], said["offset"]


def single(run: Inputs) -> Iterator[Finding]:
    """9: no log has a message too often."""
    for node in run.logs:
        for waiting in (False, True):
            counts = Counter(record.message_id for record in run.records(node, waiting=waiting))
            for message_id, count in counts.items():
                if count > run.copies_max:
                    yield 9, "duplicate", message_id, node, None, None


def transacted(run: Inputs) -> Iterator[Finding]:
    """10: what is committed is seen, what is rolled back never, and in time."""
    told = {e["id"]: e["t"] for e in run.of("resolve") if e["transaction"] == "commit"}
    for message_id, send in run.sent.items():
        where = {node for node, record in run.all_records if record.message_id == message_id}
        read = [e["t"] for e in run.of("deliver") if e["id"] == message_id]
        acks = [e["t"] for e in run.of("waiting") if e["id"] == message_id]
        if send.get("transaction") == "rollback" and (where or read):
            yield 10, "visible", message_id, None, None, None
        if send.get("transaction") != "commit":
            continue
        if message_id in told:
            for node in set(run.logs) - where:
                yield 10, "hidden", message_id, node, None, None
        since = max([*acks[:1], *([told[message_id]] if message_id in told else [])], default=0)
        if acks and read and run.overdue(since, min(read), TRANSACTION_S_MAX):
            yield 10, "late", message_id, None, None, None
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
        slack = CLOCK_SLACK_MS * _MS + CLOCK_SLACK_SHARE * (send["due"] - send["t"])
        if read and min(read) < send["due"] - slack:
            yield 11, "early", message_id, None, None, None
        since = max(send["due"], *acks, 0)
        if acks and read and run.overdue(since, min(read), DELAY_LATE_S_MAX):
            yield 11, "late", message_id, None, None, None
        if acks and not read and not there and run.overdue(since, None, DELAY_LATE_S_MAX):
            yield 11, "missing", message_id, None, None, None


def fresh(run: Inputs) -> Iterator[Finding]:
    """12: the end of a queue is above all that was acknowledged before it was asked for."""
    for told in run.of("queue_end"):
        earlier = [
            ack["offset"]
            for ack in run.of("ack")
            if ack["queue_id"] == told["queue_id"] and ack["t"] < told["began"]
        ]
        if earlier and max(earlier) >= told["offset"]:
            yield 12, "stale", None, None, told["queue_id"], max(earlier)


JUDGES: Final[tuple[Callable[[Inputs], Iterator[Finding]], ...]] = (
    durable,
    authentic,
    identical_names,
    ordered,
    read_in_order,
    kept,
    unchanged,
    elected,
    complete,
    committed,
    kept_offsets,
    single,
    transacted,
    in_time,
    fresh,
)


def _kind(event: Said) -> str:
    return "waiting" if event["kind"] == "ack" and event.get("waiting") else str(event["kind"])


def _queue(event: Said) -> tuple[str, int]:
    return event["group"], event["queue_id"]


def _crc(record: StoredMessage) -> int:
    return crc32(record.raw[record.body_at : record.body_at + record.body_bytes])


def _altered(run: Inputs, message_id: str, crc: int) -> bool:
    return message_id in run.sent and run.sent[message_id]["crc"] != crc


def _chain(log: Sequence[StoredEntry], index: int) -> tuple[object, ...] | None:
    """All that a log holds up to an entry: what a chain CRC stands for."""
    if index >= len(log):
        return None
    return tuple((e.term, e.kind, e.position, e.body) for e in log[: index + 1])


def _readings(run: Inputs) -> Iterator[tuple[str, int, dict[int, int]]]:
    """Each group and queue, with when each offset was first delivered."""
    places = {(event["group"], event["queue_id"]) for event in run.of("deliver")}
    for group, queue_id in places:
        first_t: dict[int, int] = {}
        for event in run.of("deliver"):
            if _queue(event) == (group, queue_id):
                known = first_t.get(event["offset"], event["t"])
                first_t[event["offset"]] = min(known, event["t"])
        yield group, queue_id, first_t


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
