"""Files that a replica's broker has made from its log, for plants that change them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dledger.checksum import crc32
from mqspark.source.planning import find_replicas
from mqspark.testing.reference.derived import (
    FIRST_FILE,
    HEADER,
    KEY,
    MAGIC,
    POSITION_BITS,
    SNAPSHOT,
    UNIT,
    key_check,
    read_claims,
    unit_check,
)
from mqspark.testing.rewriting import StoredEntry, StoredMessage, read_log
from mqspark.testing.small_runs import QUEUES, TOPIC


@dataclass(frozen=True)
class Served:
    """A replica's store, and what its broker has made from its log."""

    store: Path
    claims: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Read the claims of the snapshot."""
        raw = (self.store / SNAPSHOT).read_bytes()
        object.__setattr__(self, "claims", read_claims(raw))

    @property
    def index(self) -> Path:
        """Path of the first file of the key index."""
        return self.store / "index" / FIRST_FILE

    @property
    def log(self) -> list[StoredEntry]:
        """The entries of its log."""
        (replica,) = find_replicas([str(self.store)])
        return read_log(replica)

    def messages(self, topic: str, queue_id: int) -> list[StoredMessage]:
        """The messages of a queue."""
        every = (message for entry in self.log for message in entry.messages)
        return [m for m in every if (m.topic, m.queue_id) == (topic, queue_id)]

    def queue(self, topic: str = TOPIC, queue_id: int = 0) -> Queue:
        """The file of a queue."""
        made, ends = self.claims["queues"][topic]
        name = f"{topic}.{made}/{queue_id}"
        return Queue(name, self.store / "queues" / name / FIRST_FILE, ends[queue_id])

    def any_queue(self, draw: random.Random, count_min: int = 1) -> Queue:
        """The file of a queue with so many units."""
        queues = [self.queue(TOPIC, number) for number in range(QUEUES)]
        return draw.choice([each for each in queues if each.end >= count_min])

    def claim(self, **claims: object) -> None:
        """A snapshot says something else, with a right checksum."""
        self.claims.update(claims)
        payload = msgspec.msgpack.encode(self.claims)
        header = HEADER.pack(MAGIC, len(payload), crc32(payload))
        (self.store / SNAPSHOT).write_bytes(header + payload)

    def claim_of_queue(self, topic: str, queue_id: int, end: int) -> None:
        """A snapshot says something else of a queue's end."""
        made, ends = self.claims["queues"].get(topic, (1, {}))
        queues: Mapping[str, object] = {topic: (made, ends | {queue_id: end})}
        self.claim(queues=self.claims["queues"] | queues)

    def set_key(self, number: int, position: int) -> None:
        """A key points to another position, with a right check."""
        hashed, _ = KEY.unpack_from(self.index.read_bytes(), number * KEY.size)
        word = position | key_check(hashed, position) << POSITION_BITS
        overwrite(self.index, number * KEY.size, KEY.pack(hashed, word))


@dataclass(frozen=True)
class Queue:
    """A file of a queue; the snapshot claims its units up to `end`."""

    name: str
    path: Path
    end: int

    def unit(self, number: int) -> tuple[int, ...]:
        """The fields of a unit."""
        return UNIT.unpack_from(self.path.read_bytes(), number * UNIT.size)

    def put(self, number: int, unit: tuple[int, ...]) -> None:
        """Write a unit as a broker would, with a right check."""
        position, size, _, *more = unit
        check = unit_check(position, size, (more[0], more[1]), self.name, number)
        overwrite(self.path, number * UNIT.size, UNIT.pack(position, size, check, *more))

    def change(self, number: int, *, position: int = 0, size: int = 0) -> None:
        """Move what a unit points to."""
        was = self.unit(number)
        self.put(number, (was[0] + position, was[1] + size, *was[2:]))


def overwrite(path: Path, at: int, data: bytes) -> None:
    """Put other bytes in the place of some."""
    raw = path.read_bytes()
    path.write_bytes(raw[:at] + data + raw[at + len(data) :])


def turn_a_bit(path: Path, draw: random.Random, first: int, end: int) -> None:
    """A bit of one of the bytes from one to another is turned."""
    at = draw.randrange(first, end)
    raw = path.read_bytes()
    overwrite(path, at, bytes([raw[at] ^ 1 << draw.randrange(8)]))
