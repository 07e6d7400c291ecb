"""Changes of state in a log: those of groups, and those that tools made. Pure.

Whoever was answered that a group goes on at n, or that a message which it popped is done, was
answered by an entry. So it must be in a log. Three kinds of entries say so: offsets that were
committed, what is written once together with the offsets of its inputs, and acknowledgements of
what was popped. What can't be read proves nothing here: that is for property 5 to say.

What tools do to topics and groups is an entry, too, and so must be in a log if it was answered.

**Lives of topics.** A topic that was deleted and made again is another one, with queues of its own.
Each deletion is an entry of the log, behind all messages of the life that it ends. So a record's
position says of which life it is, and the same offset of a queue names another message in each.
In its first life a topic has its own name and its queues their numbers (:mod:`.hashing`); later
lives have names and numbers of their own, and no topic can have such a name. Whatever judges queues
then judges each life by itself, and need not know of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from dledger.log.entry import HEADER_BYTES, OF_MESSAGES, Header, Kind
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record.layout import BODY_AT
from mqspark.limits import QUEUES_OF_LIVES_MAX
from mqspark.screening.hashing import hashed
from mqspark.screening.packets import LOGGED, Numbers, Rows, rows_of
from mqspark.screening.testimony import queue_number
from mqspark.source.batches import DECISION_MARK, END_BYTES_MAX, StagedBatches
from mqspark.source.records import Place, RecordColumns, RecordWalk

COMMITS: Final = "commit_offsets"
DELETE_TOPIC: Final = "delete-topic"
#: The act that each change of a topic or a group is: the rows, whom one is about, what it says.
_ACTS: Final = {
    "put_topics": ("put-topic", "topics", "topicName", "perm"),
    "delete_topic": (DELETE_TOPIC, "", "topic", ""),
    "put_groups": ("put-group", "groups", "groupName", "consumeEnable"),
    "delete_group": ("delete-group", "", "group", ""),
}
KINDS: Final = frozenset(act for act, *_ in _ACTS.values())
SETTLED: Final = "settle_popped"
ONCE: Final = frozenset({b"WRITTEN-ONCE 0", DECISION_MARK})
"""The marks of what is written once, and of what decides a batch by it."""
_GROUP_AT, _MOVES_AT = 4, 5
_OP_TOPIC: Final = OP_TOPIC.encode()
#: Group, topic, queue, and what it is about.
Queue = tuple[str, str, int]
Act = tuple[str, str, int, int]


@dataclass
class GroupsLogged:
    """Changes of groups and topics in one segment's entries. `offsets`: the highest at which a
    group goes on in a queue; `done`: offset and pop time of the messages that a group has settled.
    `acts`: what was done to a topic or a group, its name, what it has now (a topic's permission, or
    whether a group is enabled), and the position of the entry. `batches`: what is staged, decided
    and ended."""

    offsets: dict[Queue, int] = field(default_factory=dict)
    done: dict[Queue, list[tuple[int, int]]] = field(default_factory=dict)
    acts: list[Act] = field(default_factory=list)
    batches: StagedBatches = field(default_factory=StagedBatches)

    def take(self, header: Header, raw: memoryview, at: int, base_position: int) -> None:
        """Take in another entry, which begins at `at`."""
        start, end = at + HEADER_BYTES, at + header.size
        if header.kind == Kind.CONTROL:
            self._take_control(raw[start:end], base_position + at)
        elif header.kind in OF_MESSAGES and _begins_with_a_note(raw, start, end):
            records = RecordColumns()
            walk = RecordWalk(raw, base_position, verify=False)
            walk.walk(records, Place(None, None, 0), start, end)
            self._take_once(records, raw)
            self.batches.take(records, raw, base_position)

    def _take_control(self, body: memoryview, position: int) -> None:
        name, arguments = (_decoded(body, 2) or ("", {}))[:2]
        if not isinstance(arguments, dict) or not isinstance(name, str):
            return
        if name in _ACTS:
            act, rows, named, value = _ACTS[name]
            found = arguments.get(rows) if rows else [arguments]
            for each in found if isinstance(found, list) else ():
                if isinstance(each, dict) and isinstance(whom := each.get(named), str):
                    self.acts.append((act, whom, _whole(each.get(value)), position))
        if name == COMMITS:
            for group, topic, queue_id, offset in _rows(arguments.get("offsets"), "ssii"):
                self._goes_on((group, topic, queue_id), offset)
        elif name == SETTLED:
            for group, topic, queue_id, fence, base, bits in _rows(arguments.get("acks"), "ssiiib"):
                done = self.done.setdefault((group, topic, queue_id), [])
                done += [(base + bit, fence) for bit in _bits(bits)]

    def _take_once(self, records: RecordColumns, raw: memoryview) -> None:
        bodies = [bytes(raw[at : at + size]) for at, size in records.bodies[:2]]
        if len(bodies) < 2 or bodies[0] not in ONCE:
            return
        note = _decoded(bodies[1], _MOVES_AT + 1)
        if note is not None and isinstance(group := note[_GROUP_AT], str):
            for topic, queue_id, _, offset in _rows(note[_MOVES_AT], "siii"):
                self._goes_on((group, topic, queue_id), offset)

    def _goes_on(self, queue: Queue, offset: int) -> None:
        self.offsets[queue] = max(offset, self.offsets.get(queue, 0))


def logged_numbers(broker: str, logged: GroupsLogged) -> Rows:
    """Rows of the messages that groups have settled, with names as numbers."""
    found = [(queue, *each) for queue, done in logged.done.items() for each in done]
    queues = queue_numbers(broker, [(topic, queue_id) for (_, topic, queue_id), *_ in found])
    return rows_of(
        LOGGED,
        group=hashed(pa.array([group for (group, *_), *_ in found], pa.string())),
        queue=queues,
        queue_offset=[offset for _, offset, _ in found],
        pop_time=[pop_time for *_, pop_time in found],
    )


def queue_numbers(broker: str, queues: list[tuple[str, int]]) -> np.ndarray[Any, Any]:
    """The number of each queue of a broker."""
    table = pa.table(
        {
            "broker": pa.array([broker] * len(queues), pa.string()),
            "topic": pa.array([topic for topic, _ in queues], pa.string()),
            "queue_id": pa.array([queue_id for _, queue_id in queues], pa.int32()),
        }
    )
    return queue_number(table).to_numpy() if queues else np.zeros(0, np.int64)


def _begins_with_a_note(raw: memoryview, start: int, end: int) -> bool:
    """Whether the first record may be the broker's own: its body is short, its topic follows."""
    return _OP_TOPIC in bytes(raw[start + BODY_AT : min(end, start + _NOTE_BYTES_MAX)])


_NOTE_BYTES_MAX: Final = BODY_AT + 24 + END_BYTES_MAX + 1 + len(_OP_TOPIC)


def _decoded(body: memoryview | bytes, least: int) -> list[Any] | None:
    try:
        found = msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    return found if isinstance(found, list) and len(found) >= least else None


def _whole(value: object) -> int:
    """A permission, or a flag; -1 for neither."""
    return int(value) if isinstance(value, int) and 0 <= value < 2**31 else -1


_TYPES: Final = {"s": str, "i": int, "b": bytes}


def _rows(found: object, types: str) -> Iterator[Any]:
    """Rows that have these types, and numbers that columns hold."""
    for row in found if isinstance(found, list) else ():
        if (
            isinstance(row, list)
            and len(row) >= len(types)
            and all(type(value) is _TYPES[kind] for value, kind in zip(row, types, strict=False))
            and all(type(value) is not int or -(2**31) <= value < 2**62 for value in row)
            and row[2 if types[1] == "s" else 1] < 2**31
        ):
            yield row[: len(types)]


def _bits(data: bytes) -> list[int]:
    """The places of the bits that are set; the first byte has the first eight."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    return [int(place) for place in np.flatnonzero(bits)]


#: Broker, topic, and the position of the entry that deleted it.
Deletion = tuple[str, str, int]
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
#: Between the name of a topic and the number of its life.
LIFE: Final = " (life "


def life_name(topic: str, life: int) -> str:
    """The name of a topic in one of its lives, from 0 on."""
    return f"{topic}{LIFE}{life + 1})" if life else topic


def without_life(topic: str) -> str:
    """Name of a topic without the number of its life."""
    return topic.partition(LIFE)[0]


def numbers_in(queues: Numbers, lives: Numbers) -> Numbers:
    """The numbers of queues in these lives."""
    mixed: Numbers = (queues.view(np.uint64) ^ (lives.astype(np.uint64) * _MIXER)).view(np.int64)
    return mixed


class Lives:
    """The deletions that a log has, of some topics."""

    def __init__(self, deletions: Iterable[Deletion]) -> None:
        found: dict[tuple[str, str], set[int]] = {}
        for broker, topic, position in deletions:
            found.setdefault((broker, topic), set()).add(position)
        #: Where the lives of each topic of a broker end, in order.
        self.ends: Mapping[tuple[str, str], Sequence[int]] = {
            place: sorted(positions) for place, positions in found.items()
        }

    def __bool__(self) -> bool:
        return bool(self.ends)

    @cached_property
    def queues(self) -> dict[tuple[str, str], Numbers]:
        """The numbers of each topic's queues in its first life."""
        every = range(QUEUES_OF_LIVES_MAX)
        return {
            (broker, topic): queue_numbers(broker, [(topic, queue_id) for queue_id in every])
            for broker, topic in self.ends
        }

    @cached_property
    def numbers(self) -> dict[int, list[int]]:
        """For each queue's first number: all that it has, life by life."""
        found: dict[int, list[int]] = {}
        for place, queues in self.queues.items():
            lives = range(len(self.ends[place]) + 1)
            every = [numbers_in(queues, np.full(len(queues), life)).tolist() for life in lives]
            found |= dict(zip(queues.tolist(), map(list, zip(*every, strict=True)), strict=True))
        return found

    def in_lives(self, queues: Numbers, positions: Numbers) -> Numbers:
        """The numbers of queues in which these positions are."""
        found = queues.copy()
        for place, own in self.queues.items():
            chosen = np.flatnonzero(np.isin(queues, own))
            lives = np.searchsorted(self.ends[place], positions[chosen], side="right")
            found[chosen] = numbers_in(queues[chosen], lives)
        return found
