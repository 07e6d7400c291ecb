"""The worth of a history's lines: which of them say nothing, and whose clock fell. Pure.

A line that is no event, or lacks what its kind must say, proves nothing, and what it would have
said is missed. So is that of a kind that nobody knows: it may be the send of a message. The last
line of a file may be torn: its writer was killed. Of any other the verdict must say so, since its
absence looks like somebody's fault.

A number so large that no clock, log or queue comes to it is no value either: what is added to it
would be none that Spark's columns hold.

All lines of a file are stamped by one process, by a clock that never falls. Threads may write a
moment after they have looked at it. If times fall by more than that, this was no such clock: what
it says of before and after is true within the file alone. So what is known since some moment is
taken to be known at no time, and what began then to have begun before all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqspark.history.events import EVENT
from mqspark.limits import CLOCK_FALL_NS_MAX
from mqspark.screening.changes import KINDS
from mqspark.screening.packets import NONE, numbers
from mqspark.screening.testimony import ACKED, DEAD

_PLACE: Final = ("broker", "topic", "queue_id", "offset")
#: Fields that events of each kind must have, beside the time of the note.
_NEEDED: Final[Mapping[str, Sequence[str]]] = {
    "send": ("id", "topic", "crc"),
    "ack": ("id", "position", *_PLACE),
    "fail": ("id", "definite"),
    "deliver": ("id", "group", "crc", *_PLACE),
    "resolve": ("id", "transaction"),
    "settle": ("id", "group", "pop_time", "how", "counted", *_PLACE),
    "commit": ("group", *_PLACE),
    "reset": ("group", *_PLACE),
    "group_offset": ("group", *_PLACE),
    "queue_end": _PLACE,
    "lead": ("broker", "node", "term"),
    "vote": ("broker", "node", "term"),
    "again": ("id",),
    "fault": ("fault",),
    "act": ("act", "broker", "began"),
}
#: The words that a field may have.
_WORDS: Final[Mapping[str, Collection[str]]] = {
    "kind": (*_NEEDED, "meta", "started", "rebalance", "end"),
    "transaction": ("commit", "rollback"),
    "how": (ACKED, DEAD),
    "act": KINDS,
}
#: Kinds of which the moment is that since when something is known.
_KNOWN_SINCE: Final = (
    *("ack", "fail", "resolve", "settle", "commit", "group_offset", "queue_end", "reset", "act"),
)
_NEVER: Final = 2**62
_MOST: Final = 2**61
"""No moment, offset or position comes to this."""
_LONGS: Final = tuple(field.name for field in EVENT if field.type == pa.int64())
_PART: Final = re.compile(r"(.+)\.\d{6}")


class LinesLook(msgspec.Struct, array_like=True):
    """Findings about some lines of a file, which begin at `start`: how many say nothing, the least
    and the most of their times, how far these fall among them, and whether a line describes the run
    (`meta`) or ends the file (`end`)."""

    file: str
    start: int
    unreadable: int = 0
    t_min: int = _NEVER
    t_max: int = NONE
    fall_ns: int = 0
    describes: bool = False
    ends: bool = False

    def take(self, events: pa.Table, *, is_end: bool) -> pa.Table:
        """Look at the next of them; gives those that say something. `is_end`: of the file."""
        bad = _unreadable(events)
        if bad is not None:
            torn = is_end and bool(bad[-1])
            self.unreadable += int(np.count_nonzero(bad)) - torn
            events = events.filter(pa.array(~bad))
        times = numbers(pc.drop_null(events["t"]))
        if len(times):
            most = np.maximum.accumulate(np.maximum(times, self.t_max))
            self.fall_ns = max(self.fall_ns, int(np.max(most - times)))
            self.t_min, self.t_max = min(self.t_min, int(times.min())), int(most[-1])
        kinds = {*pc.unique(events["kind"]).to_pylist()}
        self.describes |= "meta" in kinds
        self.ends |= "end" in kinds
        return events


def writer_of(file: str) -> str:
    """The writer of a file, which may be one of a row."""
    stem = Path(file).stem
    part = _PART.fullmatch(stem)
    return part[1] if part else stem


def falls(looks: Sequence[LinesLook]) -> dict[str, int]:
    """By how much the times of each writer fall, if by more than threads explain."""
    most: dict[str, int] = {}
    found: dict[str, int] = {}
    for look in sorted(looks, key=lambda look: (look.file, look.start)):
        writer = writer_of(look.file)
        fall_ns = max(look.fall_ns, most.get(writer, NONE) - look.t_min)
        if fall_ns > CLOCK_FALL_NS_MAX:
            found[writer] = max(fall_ns, found.get(writer, 0))
        most[writer] = max(look.t_max, most.get(writer, NONE))
    return found


def unreadable(looks: Sequence[LinesLook]) -> dict[str, int]:
    """How many lines of each file say nothing, where any does."""
    found: dict[str, int] = {}
    for look in looks:
        found[look.file] = found.get(look.file, 0) + look.unreadable
    return {file: count for file, count in sorted(found.items()) if count}


def is_ended(looks: Sequence[LinesLook]) -> bool:
    """Whether who describes the run has ended the history, or anybody if it is not described.

    Who is killed ends none, and who leaves early does so while the run goes on.
    """
    ended = {writer_of(look.file) for look in looks if look.ends}
    describing = {writer_of(look.file) for look in looks if look.describes}
    return describing <= ended if describing else bool(ended)


def without_times(events: pa.Table, fall_ns: int) -> pa.Table:
    """The events of a writer whose clock fell: they prove no order between it and others."""
    kind, t = events["kind"], events["t"]
    known = pc.is_in(kind, value_set=pa.array(_KNOWN_SINCE))
    sent = pc.equal(kind, "send")
    read = pc.equal(kind, "deliver")
    late = pc.if_else(read, pc.add(t, fall_ns), t)
    changed = {
        "kind": pc.if_else(pc.equal(kind, "vote"), "unsure", kind),
        "t": pc.if_else(known, _NEVER, pc.if_else(sent, 0, late)),
        "began": pc.if_else(pc.is_valid(events["began"]), 0, None),
        "due": pa.nulls(len(events), pa.int64()),
        "expires": pc.if_else(pc.is_valid(events["expires"]), _NEVER, None),
        "asked": pa.nulls(len(events), pa.int64()),
    }
    for name, column in changed.items():
        at = events.schema.get_field_index(name)
        events = events.set_column(at, name, column.cast(events.schema.field(name).type))
    return events


def _unreadable(events: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    """Which lines say nothing, or not what they must; None if all do."""
    kind, bad = events["kind"], None
    if kind.null_count:
        bad = pc.is_null(kind)
    kinds = {*pc.unique(kind).to_pylist()} - {None}
    lacking = [name for name in events.column_names if events[name].null_count]
    for each in kinds:
        for name in {"t", *_NEEDED.get(each, ())}.intersection(lacking):
            missing = pc.and_(pc.equal(kind, each), pc.is_null(events[name]))
            if pc.any(missing).as_py():
                missing = pc.fill_null(missing, False)
                bad = missing if bad is None else pc.or_(bad, missing)
    for name, words in _WORDS.items():
        known = pa.array([*words, None], pa.string())
        if {*pc.unique(events[name]).to_pylist()} - {*words, None}:
            other = pc.invert(pc.is_in(events[name], value_set=known))
            bad = other if bad is None else pc.or_(bad, other)
    for column in (events[name] for name in _LONGS if events[name].null_count < len(events)):
        ends = pc.min_max(column).as_py()
        if ends["min"] <= -_MOST or ends["max"] >= _MOST:
            huge = pc.or_(pc.less_equal(column, -_MOST), pc.greater_equal(column, _MOST))
            huge = pc.fill_null(huge, False)
            bad = huge if bad is None else pc.or_(bad, huge)
    return None if bad is None else bad.to_numpy()
