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
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from dledger.checksum import crc32
from dledger.log.entry import HEADER_BYTES, Kind, padded
from dledger.log.head import LogHead, encode_head
from dledger.log.segment import segment_path
from dledger.remoting.message import UNIQ_KEY, host_bytes, properties_encode
from dledger.remoting.record import encode_record
from mqspark.testing.planting import Event
from mqspark.testing.synthetic import LogWriter

TOPIC: Final = "Audited"
GROUP: Final = "readers"
NODES: Final = ("n0", "n1", "n2")
SEGMENT_BYTES: Final = 16_384
QUEUES: Final = 2
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_MOVE_OP_TOPIC"
#: What GROUP writes for each message that it has read, in a queue whose number is no input's.
OUTPUTS: Final = "Audited-outputs"
OUTPUTS_QUEUE: Final = 10
#: A group whose members pop.
POPPERS: Final = "poppers"
DEAD_LETTERS: Final = f"%DLQ%{POPPERS}"
MS: Final = 1_000_000
DELAY_NS: Final = 1_000 * MS
END_T: Final = 1_000_000 * MS
_HOST: Final = host_bytes("127.0.0.1", 10911)


@dataclass(frozen=True)
class Stored:
    """A record in a log."""

    id: str
    topic: str
    queue_id: int
    offset: int
    body: bytes

    def raw(self, position: int) -> bytes:
        """Its bytes, at `position`."""
        return encode_record(
            topic=self.topic.encode(),
            queue_id=self.queue_id,
            body=self.body,
            properties=properties_encode({UNIQ_KEY: self.id}),
            born_timestamp_ms=1,
            born_host=_HOST,
            queue_offset=self.offset,
            physical_offset=position,
            store_timestamp_ms=1,
            store_host=_HOST,
        )


@dataclass(frozen=True)
class Entry:
    """An entry of a log: messages, or a change of the broker's state (`control`: its body), or a
    leader's no-op. Before it so many indexes are left out."""

    term: int
    messages: tuple[Stored, ...] = ()
    left_out: int = 0
    control: bytes = b""

    @property
    def size(self) -> int:
        """Its bytes, the header's among them."""
        records = sum(len(message.raw(0)) for message in self.messages)
        return HEADER_BYTES + len(self.control) + records


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

    def change(self, node: str, message_id: str, **fields: object) -> None:
        """Give the records of that message other values in a node's log."""
        self.logs[node] = [
            replace(
                entry,
                messages=tuple(
                    replace(message, **fields)  # type: ignore[arg-type]
                    if message.id == message_id
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

    def rewrite_control(self, old: bytes, new: bytes) -> None:
        """Put other bytes of the same number in the place of some, in all changes of state."""
        assert len(old) == len(new)
        for node, entries in self.logs.items():
            self.logs[node] = [
                replace(entry, control=entry.control.replace(old, new)) for entry in entries
            ]

    def stored(self, message_id: str, topic: str = TOPIC, node: str = "n0") -> Stored | None:
        """The first record of that message in a node's log."""
        found = (m for entry in self.logs[node] for m in entry.messages if m.id == message_id)
        return next((m for m in found if m.topic == topic), None)

    def next_offset(self, queue_id: int, node: str = "n0") -> int:
        """The first free offset of a queue in a node's log."""
        offsets = [
            m.offset
            for entry in self.logs[node]
            for m in entry.messages
            if (m.topic, m.queue_id) == (TOPIC, queue_id)
        ]
        return max(offsets, default=-1) + 1


def write_runs(runs: Sequence[SmallRun], directory: Path) -> tuple[Path, list[Path]]:
    """Write one history of all runs, and one store a node of each; return their paths."""
    directory.mkdir(parents=True)
    history = directory / "history.jsonl"
    meta = {"kind": "meta", "t": 0, "topic": OUTPUTS, "idempotent": True}
    meta |= {"tells": ["commit"]}
    meta |= {"inputs": TOPIC, "group": GROUP, "levels": {TOPIC: QUEUES}}
    with history.open("w") as file:
        for event in (meta, *(event for run in runs for event in run.events)):
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
    """A node's log, without so many of its segments; the last one stays."""
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


class _Maker:
    """Lets a run happen, step by step."""

    def __init__(self, seed: str, broker: str, groups: Sequence[str]) -> None:
        self.draw = random.Random(seed)
        self.run = SmallRun(broker)
        self.groups = groups
        self.t = MS
        self.term = 0
        self.log: list[Entry] = []
        self.end = 0
        self.queued: dict[int, list[Stored]] = {queue: [] for queue in range(QUEUES)}
        self.ends: Counter[tuple[str, int]] = Counter()
        self.read: Counter[tuple[str, int]] = Counter()
        self.committed: Counter[tuple[str, int]] = Counter()
        self.sent = 0
        self.pop_time = 0
        self.popped: Counter[int] = Counter()
        self.fleeting: set[str] = set()

    def tick(self) -> int:
        """The next moment."""
        self.t += self.draw.randint(1, 3 * MS)
        return self.t

    def note(self, kind: str, **fields: object) -> None:
        self.run.events.append({"kind": kind, "t": self.tick(), **fields})

    def append(self, *messages: Stored) -> list[int]:
        """One more entry on all nodes; the messages' positions."""
        entry, at, positions = Entry(self.term, messages), self.end + HEADER_BYTES, []
        for message in messages:
            positions.append(at)
            at += len(message.raw(0))
            if message.topic == TOPIC:
                self.queued[message.queue_id].append(message)
        self.log.append(entry)
        self.end += padded(entry.size)
        return positions

    def change(self, name: str, **arguments: object) -> None:
        """One more entry, which changes the broker's state."""
        entry = Entry(self.term, control=msgspec.msgpack.encode([name, arguments]))
        self.log.append(entry)
        self.end += padded(entry.size)

    def place(self, message_id: str, topic: str, queue_id: int, body: bytes) -> Stored:
        offset = self.ends[topic, queue_id]
        self.ends[topic, queue_id] += 1
        return Stored(message_id, topic, queue_id, offset, body)

    def elect(self, node: str) -> None:
        """A term begins."""
        self.term += 1
        for voter in NODES:
            self.note("vote", broker=self.run.broker, node=voter, term=self.term, vote=node)
        self.append()
        began = self.tick()
        self.note(
            "lead",
            began=began,
            broker=self.run.broker,
            node=node,
            term=self.term,
            end_position=self.end,
        )

    def send(self, **fields: object) -> tuple[str, bytes]:
        message_id, body = f"{self.run.broker}-{self.sent:04}", self.draw.randbytes(8)
        self.sent += 1
        crc = crc32(body)
        if "priority" in fields and self.draw.random() < 0.1:
            fields["expires"] = END_T
            self.fleeting.add(message_id)
        self.note("send", client="p", id=message_id, topic=TOPIC, crc=crc, size=8, **fields)
        return message_id, body

    def ack(self, message: Stored, position: int, *, waiting: bool = False) -> None:
        self.note(
            "ack",
            client="p",
            id=message.id,
            topic=OUTPUTS if message.topic == OUTPUTS else TOPIC,
            broker=self.run.broker,
            queue_id=message.queue_id,
            offset=message.offset,
            position=position,
            **({"waiting": True} if waiting else {}),
        )

    def batch(self) -> None:
        """Some sends, most of them stored in one entry and acknowledged."""
        queues = [self.draw.randrange(QUEUES) for _ in range(self.draw.randint(1, 3))]
        sent = [self.send(priority=self.draw.randint(1, 9) if each else 0) for each in queues]
        outcomes = [self.draw.choice("aaaaauUr") for _ in sent]
        placed = [
            self.place(*named[:1], TOPIC, queue, named[1])
            for named, outcome, queue in zip(sent, outcomes, queues, strict=True)
            if outcome in "au"
        ]
        positions = dict(
            zip((m.id for m in placed), self.append(*placed), strict=True) if placed else ()
        )
        by_id = {message.id: message for message in placed}
        for (message_id, _), outcome in zip(sent, outcomes, strict=True):
            if outcome == "a":
                self.ack(by_id[message_id], positions[message_id])
            elif outcome == "r":
                self.note("fail", client="p", id=message_id, definite=True, error="refused")
            elif self.draw.random() < 0.5:
                self.note("fail", client="p", id=message_id, definite=False, error="no answer")

    def consume(self) -> None:
        """Each group reads on, and commits."""
        for group in self.groups:
            for queue_id, queue in self.queued.items():
                count = self.draw.randint(0, len(queue) - self.read[group, queue_id])
                self.deliver(group, queue_id, count)

    def deliver(self, group: str, queue_id: int, count: int) -> None:
        place = {"broker": self.run.broker, "topic": TOPIC, "queue_id": queue_id}
        begin = self.read[group, queue_id]
        for _ in range(count):
            message = self.queued[queue_id][self.read[group, queue_id]]
            self.read[group, queue_id] += 1
            self.note(
                "deliver",
                client=f"c-{group}",
                group=group,
                offset=message.offset,
                id=message.id,
                crc=crc32(message.body),
                **place,
            )
        if group == GROUP and count:
            self.write(self.queued[queue_id][begin : begin + count])
        at = self.read[group, queue_id]
        if at > self.committed[group, queue_id]:
            began, client = self.tick(), f"c-{group}"
            self.change("commit_offsets", offsets=[[group, TOPIC, queue_id, at]])
            self.note("commit", client=client, began=began, group=group, offset=at, **place)
            self.committed[group, queue_id] = at
        if self.draw.random() < 0.4:
            began = self.tick()
            self.note("group_offset", began=began, group=group, offset=at, **place)

    def write(self, inputs: Sequence[Stored]) -> None:
        """The outputs of some inputs, whose offset is committed in the same entry."""
        outputs = []
        for each in inputs:
            output = self.place(f"{each.id}-output", OUTPUTS, OUTPUTS_QUEUE, each.body)
            crc = crc32(each.body)
            named = {"client": "w", "id": output.id, "topic": OUTPUTS}
            self.note("send", **named, crc=crc, size=8)
            outputs.append(output)
        for output, position in zip(outputs, self.append(*outputs), strict=True):
            self.ack(output, position)

    def pop(self) -> None:
        """Members pop what is there, the highest queue first, and are through with all of it.

        Some of these pops are asked for while one before them is on its way.
        """
        new = [
            message
            for queue_id in reversed(self.queued)
            for message in self.queued[queue_id][self.popped[queue_id] :]
        ]
        asked = self.tick()
        while new:
            count = self.draw.randint(1, 3)
            some, new = new[:count], new[count:]
            asked_next = self.tick() if self.draw.random() < 0.5 else None
            for message in self.draw.sample(some, len(some)):
                if message.id not in self.fleeting or self.draw.random() < 0.5:
                    self.settle(message, asked)
            asked = asked_next or self.tick()
        for queue_id, queue in self.queued.items():
            self.popped[queue_id] = len(queue)
            began = self.tick()
            place = {"broker": self.run.broker, "topic": TOPIC, "queue_id": queue_id}
            self.note("group_offset", began=began, group=POPPERS, offset=len(queue), **place)

    def settle(self, message: Stored, asked: int) -> None:
        """One message: given once or twice, then acknowledged or given up."""
        place = {"broker": self.run.broker, "topic": TOPIC, "queue_id": message.queue_id}
        named = {"group": POPPERS, "offset": message.offset, "id": message.id, **place}
        first = {} if self.draw.random() < 0.1 else {"asked": asked}  # or its first answer was lost
        for _ in range(self.draw.choice([1, 1, 2])):
            self.pop_time += self.draw.randint(1, 3)
            times = {"pop_time": self.pop_time}
            self.note("deliver", client="m", crc=crc32(message.body), **named, **times, **first)
            first = {}
        if self.draw.random() < 0.2:
            late = {"pop_time": self.pop_time - 1, "how": "ack", "counted": False}
            self.note("settle", client="m", **named, **late)
        how = "dead" if self.draw.random() < 0.3 else "ack"
        if how == "dead":
            self.append(self.place(message.id, DEAD_LETTERS, 0, message.body))
        else:
            done = [POPPERS, TOPIC, message.queue_id, self.pop_time, message.offset, b"\x01"]
            self.change("settle_popped", acks=[done], changes=[], now_ms=1)
        self.note("settle", client="m", **named, **times, how=how, counted=True)

    def look(self) -> None:
        """The ends of the queues are asked for."""
        for queue_id in range(QUEUES):
            self.note(
                "queue_end",
                began=self.tick(),
                broker=self.run.broker,
                topic=TOPIC,
                queue_id=queue_id,
                offset=self.ends[TOPIC, queue_id],
            )

    def wait(self) -> None:
        """Messages that wait: two delayed ones, and transactions of every end."""
        delayed, halves = [], []
        for _ in range(2):
            message_id, body = self.send(due=self.t + 4 * MS + DELAY_NS)
            held = self.place(message_id, SCHEDULE_TOPIC, 0, body)
            self.ack(held, *self.append(held), waiting=True)
            delayed.append(held)
        for ending in ("commit", "rollback", "commit", "rollback"):
            message_id, body = self.send(transaction=ending)
            held = self.place(message_id, HALF_TOPIC, 0, body)
            self.ack(held, *self.append(held), waiting=True)
            halves.append((held, ending))
        for number, (held, ending) in enumerate(halves):
            if ending == "commit":
                queue_id = self.draw.randrange(QUEUES)
                self.append(self.place(held.id, TOPIC, queue_id, held.body))
            if number < 2:
                self.note("resolve", client="p", id=held.id, transaction=ending)
        self.t += DELAY_NS + 20 * MS
        self.append(
            *(self.place(m.id, TOPIC, self.draw.randrange(QUEUES), m.body) for m in delayed)
        )


def small_run(
    seed: str, broker: str, groups: Sequence[str] = (GROUP,), *, pops: bool = False
) -> SmallRun:
    """A run without a fault in it."""
    maker = _Maker(seed, broker, groups)
    maker.elect("n0")
    for number in range(6):
        if number == 3:
            maker.note("fault", fault="kill", broker=broker, node="n0")
            maker.elect("n1")
            maker.note("fault", fault="restart", broker=broker, node="n0")
        maker.batch()
        maker.consume()
        if pops:
            maker.pop()
        maker.look()
        if number == 1:
            maker.wait()
    for group in groups:
        for queue_id, queue in maker.queued.items():
            maker.deliver(group, queue_id, len(queue) - maker.read[group, queue_id])
    if pops:
        maker.pop()
    maker.run.events.append({"kind": "end", "t": END_T})
    maker.run.logs = {node: list(maker.log) for node in NODES}
    return maker.run
