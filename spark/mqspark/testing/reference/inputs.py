"""Inputs of a judge: a run's events and its replicas' logs, as values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import msgspec

from dledger.log.entry import HEADER_BYTES
from mqspark.testing.rewriting import StoredEntry, StoredMessage

Said = Mapping[str, Any]
Finding = tuple[int, str, str | None, str | None, int | None, int | None]
_WAITING: Final = {"SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"}
CONTROL: Final = 17
#: Between the numbers of a queue in two lives of its topic.
APART: Final = 100
_MOVES: Final = "RMQ_SYS_MOVE_OP_TOPIC"
S: Final = 1_000_000_000
MS: Final = 1_000_000


@dataclass
class Inputs:
    """Inputs of a judge: one broker's run. `logs`: node -> its entries.

    Topics have no queue's number in common. For what `group` has read of `inputs`, the others have
    outputs. `levels`: a topic of priorities, and how many queues it has. `begins`: node -> where
    its log begins, since old segments were removed.
    """

    topics: Sequence[str]
    inputs: str
    group: str
    copies_max: int
    events: Sequence[Said]
    logs: Mapping[str, Sequence[StoredEntry]]
    levels: Mapping[str, int]
    begins: Mapping[str, int]
    broker: str

    @property
    def begin(self) -> int:
        """Where all logs reach back to."""
        return max(self.begins.values())

    @cached_property
    def common(self) -> dict[str, dict[int, StoredEntry]]:
        """The logs by index, as far back as all of them reach."""
        return {
            node: {entry.index: entry for entry in log if entry.position >= self.begin}
            for node, log in self.logs.items()
        }

    @cached_property
    def held(self) -> dict[int, dict[str, StoredEntry]]:
        """The indexes in `common` -> each node that has an entry there, wherever that is."""
        by_index: dict[int, dict[str, StoredEntry]] = {
            index: {} for index in sorted({i for log in self.common.values() for i in log})
        }
        for node, log in self.logs.items():
            for entry in log:
                by_index.get(entry.index, {})[node] = entry
        return by_index

    def kept_from(self, queue_id: int) -> int | None:
        """The first offset of a queue, in the order of the log, from where all logs reach back to;
        None if there is none."""
        kept = [
            (position, offset)
            for (queue, offset, _), position in self.places.items()
            if queue == queue_id and position >= self.begin
        ]
        return min(kept)[1] if kept else None

    def is_kept(self, queue_id: int, offset: int, message_id: str) -> bool:
        """Whether all logs reach back to a message at a place."""
        return not self.begin or self.places.get((queue_id, offset, message_id), -1) >= self.begin

    @cached_property
    def places(self) -> dict[tuple[int, int, str], int]:
        """(queue, offset, message) -> the lowest position that anybody gives to it there."""
        found: dict[tuple[int, int, str], int] = {}
        said = [(e["queue_id"], e["offset"], e["id"], e["position"]) for e in self.of("ack")]
        said += [
            (record.queue_id, record.queue_offset, str(record.message_id), record.position)
            for _, record in self.all_records
            if record.position < self.settled_end
        ]
        for queue_id, offset, message_id, position in said:
            place = (queue_id, offset, message_id)
            found[place] = min(position, found.get(place, position))
        return found

    def of(self, kind: str) -> list[Said]:
        """The events of a kind; an `ack` is one of a message in its topic, else `waiting`."""
        return self._by_kind.get(kind, [])

    @cached_property
    def _by_kind(self) -> dict[str, list[Said]]:
        found: dict[str, list[Said]] = defaultdict(list)
        for event in self.events:
            found[kind_of(event)].append(event)
        return found

    @cached_property
    def sent(self) -> dict[str, Said]:
        """Events of sends, by the id of their message."""
        return {event["id"]: event for event in self.of("send")}

    def records(self, node: str, *, waiting: bool = False) -> list[StoredMessage]:
        """A node's records in the topic, or those that wait."""
        return self._records[node, waiting]

    @cached_property
    def _records(self) -> dict[tuple[str, bool], list[StoredMessage]]:
        return {
            (node, waiting): [
                with_name(message)
                for entry in log
                for message in entry.messages
                if (waits(entry, message) if waiting else message.topic in self.topics)
            ]
            for node, log in self.logs.items()
            for waiting in (False, True)
        }

    def held_at(self, message_id: str) -> int:
        """The lowest position that anybody gives to a message where it waits; -1 if nobody does."""
        said = [e["position"] for e in self.of("waiting") if e["id"] == message_id]
        for node in self.logs:
            waiting = self.records(node, waiting=True)
            said += [r.position for r in waiting if r.message_id == message_id]
        return min(said, default=-1)

    def came_before_it_waited(self, message_id: str) -> bool:
        """Whether a message is in its topic before it is where it waits, in logs that are whole."""
        came = [r.position for _, r in self.all_records if r.message_id == message_id]
        came += [e["position"] for e in self.of("ack") if e["id"] == message_id]
        held = self.held_at(message_id)
        return bool(came) and held >= 0 and not self.begin and min(came) < held

    def end_of(self, queue_id: int) -> int:
        """The offset behind all that anybody says is in a queue, unsettled tails included."""
        said = [
            e["offset"] for e in (*self.of("ack"), *self.of("deliver")) if e["queue_id"] == queue_id
        ]
        said += [r.queue_offset for _, r in self.all_records if r.queue_id == queue_id]
        return max(said, default=-1) + 1

    def changes(self, name: str, rows: str) -> list[list[Any]]:
        """The rows of all changes of state that have this name, in any log."""
        return [row for named, fields in self._changes if named == name for row in fields[rows]]

    @cached_property
    def _changes(self) -> list[tuple[str, dict[str, Any]]]:
        bodies = {
            entry.body for log in self.logs.values() for entry in log if entry.kind == CONTROL
        }
        return [msgspec.msgpack.decode(body) for body in bodies]

    def letters(
        self, node: str, message_id: str | None = None, group: str | None = None
    ) -> list[StoredMessage]:
        """The dead letters on a node: of one message or of all, of one group or of all."""
        return [
            letter
            for letter in self._letters[node]
            if message_id in {None, letter.message_id}
            and group in {None, str(letter.topic).removeprefix("%DLQ%")}
        ]

    @cached_property
    def _letters(self) -> dict[str, list[StoredMessage]]:
        return {
            node: [
                message
                for entry in log
                for message in entry.messages
                if str(message.topic).startswith("%DLQ%")
            ]
            for node, log in self.logs.items()
        }

    def is_reset(self, said: Said) -> bool:
        """Whether the offset of an event's queue was set on purpose."""
        return queue_of(said) in {queue_of(reset) for reset in self.of("reset")}

    def is_gone(self, topic: str, held: int) -> bool:
        """Whether a topic was deleted while a message waited at `held`."""
        return any(
            entry.position > held and self.deleted_by(entry) == topic
            for log in self.logs.values()
            for entry in log
        )

    @staticmethod
    def deleted_by(entry: StoredEntry) -> str | None:
        """The topic that an entry deletes."""
        if entry.kind != CONTROL:
            return None
        name, arguments = msgspec.msgpack.decode(entry.body)
        return str(arguments["topic"]) if name == "delete_topic" else None

    def is_deleted(self, group: str) -> bool:
        """Whether a tool has deleted a group: it begins anew somewhere."""
        acts = self.of("act")
        return any(a["act"] == "delete-group" and a.get("group") == group for a in acts)

    @cached_property
    def all_records(self) -> list[tuple[str, StoredMessage]]:
        """(node, record in the topic) of all nodes."""
        return [(node, record) for node in self.logs for record in self.records(node)]

    @cached_property
    def first_difference(self) -> int | None:
        """The first index on which not all logs agree; None if they are equal."""
        for index in self.held:
            own = [log[index].chain_crc if index in log else None for log in self.common.values()]
            if len(set(own)) > 1:
                return index
        return None

    def position_at(self, index: int) -> int:
        """The lowest position at which a log has the entry."""
        return min(log[index].position for log in self.common.values() if index in log)

    @cached_property
    def settled_end(self) -> int:
        """The position up to which the log can't change: known to clients, or alike everywhere."""
        known = [0]
        heard = {event["id"] for event in (*self.of("ack"), *self.of("deliver"))}
        for message_id in heard:
            places = [event["position"] for event in self.of("ack") if event["id"] == message_id]
            places += [r.position for _, r in self.all_records if r.message_id == message_id]
            known += [min(places) + 1] if places else []
        for message_id in {event["id"] for event in self.of("waiting")}:
            places = [e["position"] for e in self.of("waiting") if e["id"] == message_id]
            places += [
                r.position
                for node in self.logs
                for r in self.records(node, waiting=True)
                if r.message_id == message_id
            ]
            known.append(min(places) + 1)
        if self.first_difference is not None:
            return max(*known, self.position_at(self.first_difference))
        last = next(iter(self.logs.values()))[-1]
        return max(*known, last.position + HEADER_BYTES + len(last.body))

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
        return until > max(at, *faults, 0) + int(within_s * S)


def kind_of(event: Said) -> str:
    """An event's kind; `waiting` for an ack of a message that waits."""
    return "waiting" if event["kind"] == "ack" and event.get("waiting") else str(event["kind"])


def waits(entry: StoredEntry, message: StoredMessage) -> bool:
    """Whether a record waits, and is no copy that the broker has moved there."""
    moved = entry.messages[0].topic == _MOVES and message is not entry.messages[0]
    return message.topic in _WAITING and not moved


def with_name(message: StoredMessage) -> StoredMessage:
    """A record by its place, if nobody gave it an id."""
    place = f"no UNIQ_KEY, at {message.position}"
    return message if message.message_id is not None else replace(message, message_id=place)


def queue_of(event: Said) -> tuple[str, int]:
    """The group and the queue that an event is about."""
    return event["group"], event["queue_id"]
