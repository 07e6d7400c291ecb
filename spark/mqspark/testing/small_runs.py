"""Small runs with everything in them, made from a seed: a history and three replicas.

Each has a broker name of its own, so that hundreds are judged by one audit: Spark's cost is one of
jobs, not of rows. A run has sends of every outcome, two leaders, votes, deliveries, commits, reads
of ends and of a group's offset, delayed messages and transactions, outputs of what is read, and
perhaps a group whose members pop, by priority. It holds every property, until something is planted
in it (:mod:`mqspark.testing.small_plants`).

A run is a value in memory, easy to change, and is written to files like any other: judges read the
files. Times are virtual.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from dledger.checksum import crc32
from dledger.log.entry import HEADER_BYTES, Kind, padded
from dledger.log.head import LogHead, encode_head
from dledger.log.scanning.tail import WATERMARK_BYTES
from dledger.log.segments.segment import segment_path
from dledger.remoting.message import (
    KEYS,
    LARGE_BODY,
    LARGE_PART,
    MSG_REGION,
    UNIQ_KEY,
    host_bytes,
    properties_encode,
    sender_crc,
)
from dledger.remoting.numbers import INT64_MAX
from dledger.remoting.record import encode_record
from mqspark.testing.planting import Event
from mqspark.testing.synthetic import LogWriter

TOPIC: Final = "Audited"
GROUP: Final = "readers"
NODES: Final = ("n0", "n1", "n2")
SEGMENT_BYTES: Final = 4_096
QUEUES: Final = 2
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_MOVE_OP_TOPIC"
#: Outputs of GROUP, one for each message that it has read; its queue's number is no input's.
OUTPUTS: Final = "Audited-outputs"
OUTPUTS_QUEUE: Final = 10
#: Where the parts of large bodies are.
PARTS: Final = f"%PARTS%{TOPIC}"
PARTS_QUEUE: Final = 20
#: A group whose members pop.
POPPERS: Final = "poppers"
DEAD_LETTERS: Final = f"%DLQ%{POPPERS}"
#: Keys that each sender gives its message.
KEYS_SENT: Final = "one two"
SAID: Final = sender_crc({KEYS: KEYS_SENT}, 0)
MS: Final = 1_000_000
DELAY_NS: Final = 1_000 * MS
END_T: Final = 1_000_000 * MS
_HOST: Final = host_bytes("127.0.0.1", 10911)


@dataclass(frozen=True)
class Stored:
    """A record in a log. `added`: by a broker; `own`: one more property of its sender. It may name
    the parts of a `large` body, or be a part of one. Or all its properties are `bare`."""

    id: str
    topic: str
    queue_id: int
    offset: int
    body: bytes
    keys: str = KEYS_SENT
    added: str = ""
    own: str = ""
    large: str = ""
    part_of: str = ""
    bare: Mapping[str, str] | None = None

    @property
    def crc(self) -> int:
        """The checksum of the message's body, as it was sent."""
        return int(self.large.split(" ")[2], 16) if self.large else crc32(self.body)

    def raw(self, position: int) -> bytes:
        """The message's bytes, at `position`."""
        return encode_record(
            topic=self.topic.encode(),
            queue_id=self.queue_id,
            body=self.body,
            properties=properties_encode(
                ({KEYS: self.keys, UNIQ_KEY: self.id} if self.bare is None else {**self.bare})
                | ({MSG_REGION: self.added} if self.added else {})
                | ({"colour": self.own} if self.own else {})
                | ({LARGE_BODY: self.large} if self.large else {})
                | ({LARGE_PART: self.part_of} if self.part_of else {})
            ),
            born_timestamp_ms=1,
            born_host=_HOST,
            queue_offset=self.offset,
            physical_offset=position,
            store_timestamp_ms=1,
            store_host=_HOST,
        )

    @cached_property
    def size(self) -> int:
        """The message's bytes, wherever it is."""
        return len(self.raw(0))


@dataclass(frozen=True)
class Entry:
    """An entry of a log: messages, or a change of the broker's state (`control`: its body), or a
    leader's no-op. Before it so many indexes are left out."""

    term: int
    messages: tuple[Stored, ...] = ()
    left_out: int = 0
    control: bytes = b""

    @cached_property
    def size(self) -> int:
        """The entry's bytes, the header's among them."""
        return HEADER_BYTES + len(self.control) + sum(each.size for each in self.messages)

    def positions(self, begin: int) -> list[int]:
        """Positions of an entry's messages, if the entry begins at `begin`."""
        found, at = [], begin + HEADER_BYTES
        for message in self.messages:
            found.append(at)
            at += message.size
        return found


def begin_of(entry: Entry, end: int) -> int:
    """Where an entry begins behind `end`: in the next segment if it does not fit into this one."""
    offset = end % SEGMENT_BYTES
    return (
        end
        if offset + entry.size <= SEGMENT_BYTES - WATERMARK_BYTES
        else end - offset + SEGMENT_BYTES
    )


@dataclass
class SmallRun:
    """A broker group's run: what clients and harness noted, and each node's log.

    Of a node's log so many of the oldest segments are `removed`.
    """

    broker: str
    events: list[Event] = field(default_factory=list)
    logs: dict[str, list[Entry]] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)

    def of(self, kind: str, **fields: object) -> list[Event]:
        """The events of a kind with these values, in time's order."""
        return [
            event
            for event in self.events
            if event["kind"] == kind
            and all(event.get(name) == value for name, value in fields.items())
        ]

    def note(self, kind: str, t: int, **fields: object) -> Event:
        """Add an event of this broker."""
        self.events.append({"kind": kind, "t": t, "broker": self.broker, **fields})
        return self.events[-1]

    def repeat(self, event: Event, **fields: object) -> Event:
        """Add an event like another one, but for some fields."""
        self.events.append({**event, **fields})
        return self.events[-1]

    def note_end(self, queue_id: int, offset: int, began: int, topic: str = TOPIC) -> None:
        """A node answers that a queue ends there."""
        place = {"topic": topic, "queue_id": queue_id, "offset": offset}
        self.note("queue_end", began + 10, began=began, node="n2", **place)

    def change(
        self, node: str, message_id: str, *, of_topic: str | None = None, **fields: object
    ) -> None:
        """Give the records of that message (in one topic) other values in a node's log."""
        self.logs[node] = [
            replace(
                entry,
                messages=tuple(
                    replace(message, **fields)  # type: ignore[arg-type]
                    if message.id == message_id and of_topic in {None, message.topic}
                    else message
                    for message in entry.messages
                ),
            )
            for entry in self.logs[node]
        ]

    def drop(self, node: str, message_id: str, topic: str = TOPIC) -> None:
        """Take a message out of a node's log."""
        self.logs[node] = [
            replace(
                entry,
                messages=tuple(m for m in entry.messages if (m.id, m.topic) != (message_id, topic)),
            )
            for entry in self.logs[node]
        ]

    def change_all(self, message_id: str, *, of_topic: str | None = None, **fields: object) -> None:
        """Give the records of that message other values in all logs."""
        for node in self.logs:
            self.change(node, message_id, of_topic=of_topic, **fields)

    def drop_all(self, message_id: str, topic: str = TOPIC) -> None:
        """Take a message out of all logs."""
        for node in self.logs:
            self.drop(node, message_id, topic)

    def rewrite_control(self, before: Sequence[object], after: Sequence[object]) -> None:
        """Put other fields, whose bytes are as many, in the place of some that follow each other,
        in all changes of state."""
        old, new = (b"".join(map(msgspec.msgpack.encode, row)) for row in (before, after))
        assert len(old) == len(new)
        for node, entries in self.logs.items():
            self.logs[node] = [
                replace(entry, control=entry.control.replace(old, new)) for entry in entries
            ]

    def add(self, *messages: Stored, control: tuple[str, object] | None = None) -> list[int]:
        """Append an entry to the logs, which must be alike: messages, or a change of the broker's
        state. Where the messages are."""
        body = b"" if control is None else msgspec.msgpack.encode(control)
        entry, end = Entry(2, messages, control=body), 0
        for each in self.logs["n0"]:
            end = begin_of(each, end) + padded(each.size)
        for log in self.logs.values():
            log.append(entry)
        return entry.positions(begin_of(entry, end))

    @property
    def messages(self) -> list[Stored]:
        """The messages in the first node's log."""
        return [message for entry in self.logs["n0"] for message in entry.messages]

    def stored(self, message_id: str, topic: str = TOPIC) -> Stored:
        """The first record of that message. StopIteration if there is none."""
        return next(m for m in self.messages if (m.id, m.topic) == (message_id, topic))

    def large(self) -> Stored:
        """The message whose body is in parts. StopIteration if there is none."""
        return next(m for m in self.messages if m.large)

    def count(self, topic: str) -> int:
        """How many messages a topic has."""
        return sum(message.topic == topic for message in self.messages)

    def another(self, like: Stored, **fields: object) -> Stored:
        """A message that was sent like another one, to be stored; no client knows of it."""
        ghost = f"{self.broker}-ghost"
        self.repeat(self.of("send", id=like.id)[0], id=ghost)
        return replace(like, id=ghost, **fields)  # type: ignore[arg-type]

    def next_offset(self, queue_id: int, node: str = "n0") -> int:
        """The first free offset of a queue in a node's log. AssertionError if there is none."""
        offsets = [
            m.offset
            for entry in self.logs[node]
            for m in entry.messages
            if (m.topic, m.queue_id) == (TOPIC, queue_id)
        ]
        last = max(offsets, default=-1)
        assert last < INT64_MAX
        return last + 1


def write_runs(runs: Sequence[SmallRun], directory: Path) -> tuple[Path, list[Path]]:
    """Write one history of all runs, and one store a node of each; return their paths."""
    directory.mkdir(parents=True)
    history = directory / "history.jsonl"
    meta = {"kind": "meta", "t": 0, "topic": OUTPUTS, "idempotent": True}
    meta |= {"tells": ["acts", "commit", "properties"]}
    meta |= {"inputs": TOPIC, "group": GROUP, "levels": {TOPIC: QUEUES}}
    with history.open("w") as file:
        # A process writes its events in the order of its clock.
        events = sorted((event for run in runs for event in run.events), key=lambda e: int(e["t"]))
        for event in (meta, *events):
            file.write(json.dumps(event, separators=(",", ":")) + "\n")
    stores = []
    for run in runs:
        for node, entries in run.logs.items():
            store = directory / f"{run.broker}-{node}"
            _write_log(entries, store, run.removed.get(node, 0))
            description = {
                "format": 1,
                "broker_name": run.broker,
                "node_id": node,
                "segment_bytes": SEGMENT_BYTES,
            }
            (store / "replica.json").write_text(json.dumps(description))
            stores.append(store)
    return history, stores


def _write_log(entries: Sequence[Entry], store: Path, removed: int) -> None:
    """Write a node's log without its removed segments; the last one stays."""
    log = LogWriter(store, SEGMENT_BYTES)
    heads = {0: LogHead()}
    for entry in entries:
        at, body = log.body_position(entry.size - HEADER_BYTES), entry.control
        log.next_index += entry.left_out
        base = at // SEGMENT_BYTES * SEGMENT_BYTES
        heads.setdefault(base, LogHead(base, log.next_index, log.chain_crc))
        for message in entry.messages:
            body += message.raw(at + len(body))
        kind = Kind.MESSAGES if body else Kind.NOOP
        log.append(Kind.CONTROL if entry.control else kind, body, entry.term)
    log.close()
    bases = sorted(heads)
    for base in bases[: min(removed, len(bases) - 1)]:
        segment_path(store / "log", base).unlink()
        (store / "log" / "head").write_bytes(encode_head(heads[base + SEGMENT_BYTES]))
