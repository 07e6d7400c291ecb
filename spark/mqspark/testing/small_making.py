"""Steps by which small runs happen, from a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from dledger.checksum import crc32
from dledger.log.entry import padded
from mqspark.testing.small_runs import (
    DEAD_LETTERS,
    DELAY_NS,
    END_T,
    GROUP,
    HALF_TOPIC,
    MS,
    NODES,
    OUTPUTS,
    OUTPUTS_QUEUE,
    PARTS,
    PARTS_QUEUE,
    POPPERS,
    QUEUES,
    SAID,
    SCHEDULE_TOPIC,
    TOPIC,
    Entry,
    SmallRun,
    Stored,
    begin_of,
)


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
        """Pass up to 3 ms of the run's time; returns the moment, in ns."""
        self.t += self.draw.randint(1, 3 * MS)
        return self.t

    def note(self, kind: str, **fields: object) -> None:
        self.run.events.append({"kind": kind, "t": self.tick(), **fields})

    def append(self, *messages: Stored) -> list[int]:
        """Append an entry of messages on all nodes; the messages' positions."""
        for message in messages:
            if message.topic == TOPIC:
                self.queued[message.queue_id].append(message)
        return self.add(Entry(self.term, messages))

    def add(self, entry: Entry) -> list[int]:
        """Append any entry on all nodes; the positions of its messages."""
        self.log.append(entry)
        begin = begin_of(entry, self.end)
        self.end = begin + padded(entry.size)
        return entry.positions(begin)

    def change(self, name: str, **arguments: object) -> None:
        """Append an entry that changes the broker's state."""
        self.add(Entry(self.term, control=msgspec.msgpack.encode([name, arguments])))

    def place(self, message_id: str, topic: str, queue_id: int, body: bytes) -> Stored:
        offset = self.ends[topic, queue_id]
        self.ends[topic, queue_id] += 1
        return Stored(message_id, topic, queue_id, offset, body)

    def elect(self, node: str) -> None:
        """Begin a term that `node` leads, with everybody's votes."""
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
        said = {"properties": SAID}
        self.note("send", client="p", id=message_id, topic=TOPIC, crc=crc, size=8, **said, **fields)
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
        """Send some messages, most of them stored in one entry and acknowledged."""
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
                crc=message.crc,
                properties=SAID,
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
            self.note("send", **named, crc=crc, size=8, properties=SAID)
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
        """Settle a message: given once or twice, then acknowledged or given up."""
        place = {"broker": self.run.broker, "topic": TOPIC, "queue_id": message.queue_id}
        named = {"group": POPPERS, "offset": message.offset, "id": message.id, **place}
        said = {"crc": message.crc, "properties": SAID}
        first = {} if self.draw.random() < 0.1 else {"asked": asked}  # or its first answer was lost
        for _ in range(self.draw.choice([1, 1, 2])):
            self.pop_time += self.draw.randint(1, 3)
            times = {"pop_time": self.pop_time}
            self.note("deliver", client="m", **said, **named, **times, **first)
            first = {}
        if self.draw.random() < 0.2:
            late = {"pop_time": self.pop_time - 1, "how": "ack", "counted": False}
            self.note("settle", client="m", **named, **late)
        how = "dead" if self.draw.random() < 0.3 else "ack"
        if how == "dead":
            letter = self.place(message.id, DEAD_LETTERS, 0, message.body)
            self.append(replace(letter, large=message.large))
        else:
            done = [POPPERS, TOPIC, message.queue_id, self.pop_time, message.offset, b"\x01"]
            self.change("settle_popped", acks=[done], changes=[], now_ms=1)
        self.note("settle", client="m", **named, **times, how=how, counted=True)

    def send_large(self) -> None:
        """A message whose body is stored in parts, and acknowledged."""
        message_id, body = self.send(priority=0)
        pieces = [body[:3], body[3:4], body[4:]]
        parts = [
            replace(
                self.place(f"{message_id}-part{k}", PARTS, PARTS_QUEUE, piece),
                part_of=message_id,
            )
            for k, piece in enumerate(pieces)
        ]
        self.append(*parts)
        runs = f"{parts[0].offset}-{parts[1].offset},{parts[2].offset}"
        place = f"{PARTS} {self.run.broker} {PARTS_QUEUE} {runs}"
        named = f"{message_id} {len(body)} {crc32(body):08x} {place}"
        message = replace(self.place(message_id, TOPIC, 0, b""), large=named)
        self.ack(message, *self.append(message))

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
        if number == 2:
            maker.send_large()
    for group in groups:
        for queue_id, queue in maker.queued.items():
            maker.deliver(group, queue_id, len(queue) - maker.read[group, queue_id])
    if pops:
        maker.pop()
    maker.run.events.append({"kind": "end", "t": END_T})
    maker.run.logs = {node: list(maker.log) for node in NODES}
    return maker.run
