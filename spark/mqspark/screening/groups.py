"""What a log's entries say of groups: where they go on, and what they are through with. Pure.

Whoever was answered that a group goes on at n, or that a message which it popped is done, was
answered by an entry. So it must be in a log. Three kinds of entries say so: offsets that were
committed, what is written once together with the offsets of its inputs, and acknowledgements of
what was popped. What can't be read proves nothing here: that is for property 5 to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from dledger.log.entry import HEADER_BYTES, OF_MESSAGES, Header, Kind
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record.layout import BODY_AT
from mqspark.screening.hashing import hashed
from mqspark.screening.packets import LOGGED, Rows, rows_of
from mqspark.screening.testimony import queue_number
from mqspark.source.records import Place, RecordColumns, RecordWalk

COMMITS: Final = "commit_offsets"
SETTLED: Final = "settle_popped"
ONCE: Final = b"WRITTEN-ONCE 0"
_GROUP_AT, _MOVES_AT = 4, 5
_OP_TOPIC: Final = OP_TOPIC.encode()
#: Group, topic, queue, and what it is about.
Queue = tuple[str, str, int]


@dataclass
class GroupsLogged:
    """What one segment's entries say. `offsets`: the highest at which a group goes on in a queue;
    `done`: offset and pop time of what it is through with."""

    offsets: dict[Queue, int] = field(default_factory=dict)
    done: dict[Queue, list[tuple[int, int]]] = field(default_factory=dict)

    def take(self, header: Header, raw: memoryview, at: int, base_position: int) -> None:
        """One more entry, which begins at `at`."""
        start, end = at + HEADER_BYTES, at + header.size
        if header.kind == Kind.CONTROL:
            self._take_control(raw[start:end])
        elif header.kind in OF_MESSAGES and _begins_with_a_note(raw, start, end):
            self._take_once(raw, start, end, base_position)

    def _take_control(self, body: memoryview) -> None:
        name, arguments = _decoded(body, 2) or ("", {})
        if not isinstance(arguments, dict):
            return
        if name == COMMITS:
            for group, topic, queue_id, offset in _rows(arguments.get("offsets"), "ssii"):
                self._goes_on((group, topic, queue_id), offset)
        elif name == SETTLED:
            for group, topic, queue_id, fence, base, bits in _rows(arguments.get("acks"), "ssiiib"):
                done = self.done.setdefault((group, topic, queue_id), [])
                done += [(base + bit, fence) for bit in _bits(bits)]

    def _take_once(self, raw: memoryview, start: int, end: int, base_position: int) -> None:
        rows = RecordColumns()
        RecordWalk(raw, base_position, verify=False).walk(rows, Place(None, None, 0), start, end)
        bodies = [bytes(raw[at : at + size]) for at, size in rows.bodies[:2]]
        if len(bodies) < 2 or bodies[0] != ONCE:
            return
        note = _decoded(bodies[1], _MOVES_AT + 1)
        if note is not None and isinstance(group := note[_GROUP_AT], str):
            for topic, queue_id, _, offset in _rows(note[_MOVES_AT], "siii"):
                self._goes_on((group, topic, queue_id), offset)

    def _goes_on(self, queue: Queue, offset: int) -> None:
        self.offsets[queue] = max(offset, self.offsets.get(queue, 0))


def logged_numbers(broker: str, logged: GroupsLogged) -> Rows:
    """What is done, as numbers."""
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


_NOTE_BYTES_MAX: Final = BODY_AT + 24 + len(ONCE) + 1 + len(_OP_TOPIC)


def _decoded(body: memoryview | bytes, least: int) -> list[Any] | None:
    try:
        found = msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    return found if isinstance(found, list) and len(found) >= least else None


_TYPES: Final = {"s": str, "i": int, "b": bytes}


def _rows(found: object, types: str) -> Iterator[Any]:
    """Those of the rows that have these types, and numbers that columns hold."""
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
