"""The lines of a history that violations are about, found in one pass for all of them.

A line is about a violation if it has its message's id, or the place in a queue or the ones beside
it, or a moment that the violation's sentence names, or is a leader's or voter's word about a term
that the sentence names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.history.files import read_lines
from mqspark.limits import EXHIBIT_LINE_BYTES_MAX, EXHIBIT_LINES_MAX, LINES_SOUGHT_MAX, POSITION_MAX
from mqspark.screening.changes import without_life

_SCHEMA = (
    "kind string, t long, began long, id string, broker string, topic string, queue_id int, "
    "offset long, term long"
)
_MOMENT = re.compile(r"\b(\d+) ns\b")
_TERM = re.compile(r"\bterm (\d+)")
_OF_TERMS = ("lead", "vote")


class Wanted(NamedTuple):
    """The subject of a violation. `place`: broker, topic and queue, with an offset."""

    id: str | None
    broker: str | None
    place: tuple[str, str, int] | None
    offset: int | None
    moments: frozenset[int]
    terms: frozenset[int]

    def takes(self, event: dict[str, Any]) -> bool:
        """Whether a line is about it."""
        if self.id is not None and event["id"] == self.id:
            return True
        if event["t"] in self.moments or event["began"] in self.moments:
            return True
        if event["kind"] in _OF_TERMS and event["broker"] == self.broker:
            return event["term"] in self.terms
        at = (event["broker"], event["topic"], event["queue_id"])
        near = None not in (event["offset"], self.offset)
        return near and at == self.place and abs(event["offset"] - (self.offset or 0)) <= 1


def wanted_of(row: dict[str, Any]) -> Wanted:
    """The exhibits that a violation's line in a verdict asks for."""
    named = (row["broker"], row["topic"], row["queue_id"])
    detail = row["detail"] or ""
    return Wanted(
        row["message_id"],
        row["broker"],
        None if None in named else (row["broker"], without_life(row["topic"]), row["queue_id"]),
        row["queue_offset"],
        frozenset(map(int, _MOMENT.findall(detail))),
        frozenset(map(int, _TERM.findall(detail))),
    )


def find_lines(
    session: SparkSession, history: Path, wanted: Sequence[Wanted]
) -> list[tuple[list[str], int]]:
    """For each violation the first lines about it, in the order of time, and how many more."""
    column, queue = F.col, F.struct("event.broker", "event.topic", "event.queue_id")
    ids = {each.id for each in wanted if each.id is not None}
    moments = {moment for each in wanted for moment in each.moments}
    terms = {term for each in wanted for term in each.terms}
    offsets = {
        each.offset + beside
        for each in wanted
        if each.place is not None and each.offset is not None
        for beside in (-1, 0, 1)
    }
    sought = (
        column("event.id").isin(ids)
        | column("event.t").isin(moments)
        | column("event.began").isin(moments)
        | (column("event.kind").isin(*_OF_TERMS) & column("event.term").isin(terms))
        | (queue.isNotNull() & column("event.offset").isin(offsets))
    )
    rows = (
        read_lines(session, history)
        .select("value", F.from_json("value", _SCHEMA).alias("event"))
        .where(sought)
        .limit(LINES_SOUGHT_MAX)
        .collect()
    )
    events = sorted(
        ((row["event"].asDict(), row["value"]) for row in rows), key=lambda pair: pair[0]["t"] or 0
    )
    found = []
    for each in wanted:
        lines = [_bounded(line) for event, line in events if each.takes(event)]
        found.append((lines[:EXHIBIT_LINES_MAX], max(0, len(lines) - EXHIBIT_LINES_MAX)))
    return found


def position_of(line: str) -> int | None:
    """The position that a line names, if it does."""
    try:
        position = json.loads(line).get("position")
    except (ValueError, AttributeError, RecursionError):
        return None
    return position if isinstance(position, int) and 0 <= position < POSITION_MAX else None


def _bounded(line: str) -> str:
    if len(line) <= EXHIBIT_LINE_BYTES_MAX:
        return line
    return f"{line[:EXHIBIT_LINE_BYTES_MAX]}... ({len(line)} characters)"
