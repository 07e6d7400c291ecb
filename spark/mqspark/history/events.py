"""The fields of events that judges read, as Arrow columns: one rule for lines and for packed ones.

A line that is no event, such as one torn by a kill, has no kind, and proves nothing. Nor has one
with a value of another type than its field's: nobody knows what else of it is wrong. Arrow's reader
takes whole blocks of good lines; a block in which it finds anything odd is read line by line.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

#: The kinds of events about one message.
OF_MESSAGES: Final = ("send", "ack", "fail", "deliver", "resolve", "settle")
_TEXT, _INT, _LONG, _FLAG = pa.string(), pa.int32(), pa.int64(), pa.bool_()
#: The fields of events about one message.
MESSAGE_FIELDS: Final[dict[str, pa.DataType]] = {
    "kind": _TEXT,
    "t": _LONG,
    "client": _TEXT,
    "id": _TEXT,
    "topic": _TEXT,
    "broker": _TEXT,
    "queue_id": _INT,
    "offset": _LONG,
    "position": _LONG,
    "crc": _LONG,
    "definite": _FLAG,
    "group": _TEXT,
    "due": _LONG,
    "transaction": _TEXT,
    "waiting": _FLAG,
    "expires": _LONG,
    "pop_time": _LONG,
    "asked": _LONG,
    "priority": _LONG,
    "how": _TEXT,
    "counted": _FLAG,
    "properties": _LONG,
}
#: The fields of events that testify of no message. `again` names one.
NOTE_FIELDS: Final[dict[str, pa.DataType]] = {
    "kind": _TEXT,
    "t": _LONG,
    "began": _LONG,
    "client": _TEXT,
    "broker": _TEXT,
    "node": _TEXT,
    "term": _LONG,
    "vote": _TEXT,
    "end_position": _LONG,
    "group": _TEXT,
    "topic": _TEXT,
    "queue_id": _INT,
    "offset": _LONG,
    "fault": _TEXT,
    "id": _TEXT,
    "act": _TEXT,
    "perm": _LONG,
    "enabled": _FLAG,
    "done": _FLAG,
}
EVENT: Final = pa.schema(list((MESSAGE_FIELDS | NOTE_FIELDS).items()))
#: The fields of plain sends, acknowledgements and deliveries. Each field that a reader knows of
#: costs it time for every line that lacks it: two thirds of all fields, nearly half of all time.
_USUAL: Final = pa.schema(
    [
        field
        for field in EVENT
        if field.name
        in {
            *("kind", "t", "client", "id", "topic", "broker", "queue_id", "offset", "position"),
            *("crc", "group", "properties"),
        }
    ]
)
#: A sign that there may be others: a name in quotes, or one that is written by its code points.
_UNUSUAL: Final = r'\\|"({})"'.format(
    "|".join(name for name in EVENT.names if name not in _USUAL.names)
)
_TYPES: Final = {field.name: field.type for field in EVENT}
_BOUNDS: Final = {_INT: 2**31, _LONG: 2**63}


def with_all(events: pa.Table) -> pa.Table:
    """`events` with every column: nulls in one that came after this history was packed."""
    for field in EVENT:
        if field.name not in events.column_names:
            events = events.append_column(field, pa.nulls(len(events), field.type))
    return events.select(EVENT.names)


def columns(lines: bytes) -> pa.Table:
    """The events in whole lines of a history."""
    found = _read_at_once(lines) if _all_objects(lines) else None
    if found is not None:
        return found
    rows = [fitting(event_of(line) or {}) for line in lines.split(b"\n") if line.strip()]
    return pa.Table.from_pylist(rows, EVENT)


def _all_objects(lines: bytes) -> bool:
    """Whether all is text, and every line begins as an object does.

    Arrow's reader takes bytes that are no text, and dies of some other lines, as of `null`.
    """
    try:
        lines.decode()
    except UnicodeDecodeError:
        return False
    text = np.frombuffer(lines, np.uint8)
    starts = np.flatnonzero(text[:-1] == ord("\n")) + 1
    return lines.startswith(b"{") and bool(np.all(text[starts] == ord("{")))


def _read_at_once(lines: bytes) -> pa.Table | None:
    """The events, if each line is one, with values of its fields' types."""
    (unusual,) = pc.match_substring_regex(pa.array([lines], pa.binary()), _UNUSUAL).to_pylist()
    try:
        found = arrow_json.read_json(
            pa.BufferReader(lines),
            arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            arrow_json.ParseOptions(
                explicit_schema=EVENT if unusual else _USUAL, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    # A torn line and the one written behind it may read as two events; it is none.
    return with_all(found) if found.num_rows == lines.count(b"\n", 0, -1) + 1 else None


def event_of(line: bytes) -> dict[str, Any] | None:
    """All fields of a line; None if it is no event."""
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return event if isinstance(event, dict) else None


def fitting(event: dict[str, Any]) -> dict[str, Any]:
    """The values that have a column of their own; none at all if one of them is not of its type."""
    own = {k: value for k, value in event.items() if k in _TYPES and value is not None}
    return own if all(_fits(_TYPES[name], value) for name, value in own.items()) else {}


def _fits(kind: pa.DataType, value: object) -> bool:
    if kind in _BOUNDS:
        return type(value) is int and -_BOUNDS[kind] <= value < _BOUNDS[kind]
    return isinstance(value, bool if kind == _FLAG else str)
