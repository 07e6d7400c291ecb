"""The history of a run: every event that a judge needs, one JSON object a line.

Each client process writes a file of its own, so no lock is ever taken; all stamp events with
CLOCK_MONOTONIC in ns, which the processes of one machine share, and the reader merges the files by
it. An event is encoded into a buffer in about a microsecond and written a buffer at a time, so a
client under load is not slowed down by being watched.

The kinds are Jepsen's invoke / ok / fail / info in a queue's words: `send` before the call, then
`ack`, or `fail` with `definite` saying whether the message certainly isn't stored; `deliver` and
`commit` for consumers; from the harness what it does (`fault`) and sees (`lead`, `vote`, ends and
offsets of queues). A message is named by its unique key.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, TypeAlias

import msgspec

from mqchaos.limits import HISTORY_BUFFER_BYTES


class _Event(msgspec.Struct, tag_field="kind", tag=str.lower, frozen=True, gc=False):
    """The field of all events: `t`, the harness's monotonic clock in ns."""

    t: int


#: Acts of tools on topics and groups, by `Act`.
ACTS: Final = ("put-topic", "delete-topic", "put-group", "delete-group")
#: A history tells it if each such act on its topics and groups is noted, and each reset.
TELLS_ACTS: Final = "acts"
#: The facts that a history of our own clients tells: what senders say beside the bodies,
#: and that whoever was answered that a group goes on at n was answered by a broker.
TELLS: Final = ("properties", "commit")


class Meta(_Event, frozen=True, omit_defaults=True):
    """The run that a history is about. `brokers`: broker name -> node id -> its store directory.

    `inputs`: for each message there that `group` has passed, `topic` has an output. `levels`: a
    topic of priorities -> how many queues it has. `tells`: what older histories lack (`TELLS`).
    """

    seed: int
    scenario: str
    topic: str
    idempotent: bool
    brokers: dict[str, dict[str, str]]
    inputs: str | None = None
    group: str | None = None
    levels: dict[str, int] | None = None
    tells: list[str] | None = None


class Send(_Event, frozen=True, gc=False, omit_defaults=True):
    """A message is about to be handed to the producer. `crc`: CRC-32 of the body; `size`: bytes.

    `due`: not to be delivered before, by the same clock. `transaction`: how it will be ended, by
    `commit` or by `rollback`, whoever is asked. `expires`: not to be delivered after. `priority`:
    in a topic of priorities. `properties`: a checksum of what else its sender says of it
    (`dledger.remoting.message.sender_crc`).
    """

    client: str
    id: str
    topic: str
    key: str
    crc: int
    size: int
    due: int | None = None
    transaction: str | None = None
    expires: int | None = None
    priority: int | None = None
    properties: int | None = None


class Ack(_Event, frozen=True, gc=False, omit_defaults=True):
    """The producer said: stored there. `position`: physical position in the broker group's log.

    If `waiting`, there it waits for its time or its transaction, and `offset` is of that place.
    """

    client: str
    id: str
    topic: str
    broker: str
    queue_id: int
    offset: int
    position: int
    waiting: bool = False


class Started(_Event, frozen=True, gc=False):
    """A client that the harness has started says that its history has begun."""

    client: str


class Again(_Event, frozen=True, gc=False):
    """The application does not know what became of the message, and sends it once more."""

    client: str
    id: str


class Resolve(_Event, frozen=True, gc=False):
    """The producer got the answer that a transaction ended so: `commit` or `rollback`."""

    client: str
    id: str
    transaction: str


class Fail(_Event, frozen=True, gc=False):
    """A send that its producer gave up. If `definite`, the message is certainly not stored."""

    client: str
    id: str
    definite: bool
    error: str


class Deliver(_Event, frozen=True, gc=False, omit_defaults=True):
    """A consumer of the group was given the message. `crc` is over the body as it arrived.

    `pop_time` names the delivery, if it was popped. `asked`: nobody had been handed it before, and
    this was the moment before it was asked for. `properties`: as of a send, and as they arrived.
    """

    client: str
    group: str
    topic: str
    broker: str
    queue_id: int
    offset: int
    id: str
    crc: int
    pop_time: int | None = None
    asked: int | None = None
    properties: int | None = None


class Settle(_Event, frozen=True, gc=False):
    """A member was answered that what it popped by this delivery is done: acknowledged (`how` is
    `ack`), or a dead letter (`dead`). `counted`: certainly by this, and not before."""

    client: str
    group: str
    topic: str
    broker: str
    queue_id: int
    offset: int
    id: str
    pop_time: int
    how: str
    counted: bool


class Commit(_Event, frozen=True, gc=False):
    """A consumer got the answer to its commit: the group goes on at `offset` of this queue.

    It asked at `began` at the earliest.
    """

    client: str
    group: str
    topic: str
    broker: str
    queue_id: int
    offset: int
    began: int = 0


class Rebalance(_Event, frozen=True):
    """A consumer's queues, as (broker name, queue id), changed to these."""

    client: str
    group: str
    topic: str
    queues: list[tuple[str, int]]


class Lead(_Event, frozen=True, gc=False):
    """A node said that it serves as its group's leader, when asked at `began`.

    `end_position` is where its log ended then. The first such answer of a node in a term is noted.
    """

    broker: str
    node: str
    term: int
    began: int = 0
    end_position: int | None = None


class Vote(_Event, frozen=True, gc=False):
    """The node's files say that it is in this term, and for whom it voted in it, if for anybody."""

    broker: str
    node: str
    term: int
    vote: str | None


class QueueEnd(_Event, frozen=True, gc=False, tag="queue_end"):
    """A node answered that a queue's next message gets `offset`, when asked at `began`."""

    began: int
    broker: str
    node: str
    topic: str
    queue_id: int
    offset: int


class GroupOffset(_Event, frozen=True, gc=False, tag="group_offset"):
    """A node answered that a group goes on at `offset`, when asked at `began`."""

    began: int
    broker: str
    node: str
    group: str
    topic: str
    queue_id: int
    offset: int


class Reset(_Event, frozen=True, gc=False):
    """A group's offset of a queue was set on purpose, at some moment from `began` to now."""

    began: int
    client: str
    group: str
    topic: str
    broker: str
    queue_id: int
    offset: int


class Act(_Event, frozen=True, gc=False, omit_defaults=True):
    """A tool changed something at one broker group, at some moment from `began` to now.

    `act` is one of `ACTS`; it names a `topic` or a `group`, and says what `perm` a topic has now
    (RocketMQ's sum), or whether a group is `enabled`. Not `done`: no answer says so, and it may
    come about at any later time. An act that was refused for certain is not noted.
    """

    began: int
    client: str
    act: str
    broker: str
    topic: str | None = None
    group: str | None = None
    perm: int | None = None
    enabled: bool | None = None
    done: bool = False


class Fault(_Event, frozen=True, gc=False, omit_defaults=True):
    """The harness injected a fault into a node, or healed it (`mqchaos.faults.kinds`).

    `place`: of our code, for a fault at one.
    """

    fault: str
    broker: str
    node: str
    place: str = ""


class End(_Event, frozen=True, gc=False):
    """The writer closed its file in order; without it a file was cut off."""


Event: TypeAlias = (
    Meta
    | Send
    | Ack
    | Fail
    | Started
    | Again
    | Resolve
    | Deliver
    | Settle
    | Commit
    | Rebalance
    | Lead
    | Vote
    | QueueEnd
    | GroupOffset
    | Reset
    | Act
    | Fault
    | End
)

LINES: Final = ".jsonl"
PARQUET: Final = ".parquet"
_PART_DIGITS: Final = 6
DECODER = msgspec.json.Decoder(Event)


class HistoryWriter:
    """Appends events to one new file. Call `flush` now and then, and write `End` as the last.

    `at_once`: each event reaches the file before `write` returns. With `part_bytes` it is a row of
    files of about that size (`part_of`); each but the last one is closed for good.
    """

    def __init__(self, path: Path, *, at_once: bool = False, part_bytes: int = 0) -> None:
        self._buffer_bytes = 0 if at_once else HISTORY_BUFFER_BYTES
        self._path, self._part_bytes, self._parts = path, part_bytes, 0
        self._file = self._next_file()
        self._encoder = msgspec.json.Encoder()
        self._buffer = bytearray()

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.flush()
        self._file.close()

    def write(self, event: Event) -> None:
        """Add one event; it reaches the file when the buffer is full, at `flush`, or at the end."""
        self._encoder.encode_into(event, self._buffer, -1)
        self._buffer += b"\n"
        if len(self._buffer) >= self._buffer_bytes:
            self.flush()

    def flush(self) -> None:
        """Hand what is buffered to the file."""
        if self._buffer and self._part_bytes and self._file.tell() >= self._part_bytes:
            self._file.close()
            self._file = self._next_file()
        remaining = memoryview(bytes(self._buffer))
        self._buffer.clear()
        while remaining:
            remaining = remaining[self._file.write(remaining) :]

    def _next_file(self) -> BinaryIO:
        self._parts += 1
        path = part_of(self._path, self._parts) if self._part_bytes else self._path
        return path.open("xb", buffering=0)


def part_of(path: Path, number: int) -> Path:
    """The n-th of a row of files, from 1 on; in the order of their names."""
    return path.with_name(f"{path.stem}.{number:0{_PART_DIGITS}d}{path.suffix}")


def row_of(file: Path) -> tuple[str, int]:
    """The client whose file it is, and the file's number in its row; 0 for a file that is not a
    part."""
    name, _, number = file.stem.rpartition(".")
    if len(number) == _PART_DIGITS and number.isascii() and number.isdecimal() and name:
        return name, int(number)
    return file.stem, 0
