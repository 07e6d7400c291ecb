"""Whether all replicas of a broker hold one log, and what it looks like then. Pure.

Most logs are alike byte for byte, and whole. That takes no table of their entries to say: it is
enough that each segment says so of its own, and that each goes on where the one before it ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class SegmentLook(msgspec.Struct, frozen=True):
    """What the entries of one segment of a replica show (:class:`mqspark.source.reader.Tally`)."""

    broker: str
    position: int
    entries: int
    first_index: int
    last_index: int
    first_term: int
    last_term: int
    end: int
    terms: dict[int, int]
    disputed: bool


class Log(msgspec.Struct, frozen=True):
    """A log that all replicas of a broker hold alike. `terms` says where each term begins."""

    entries: int = 0
    end: int = 0
    terms: dict[int, int] = {}


def agreed_logs(
    first_indexes: Mapping[str, int | None], looks: Sequence[SegmentLook]
) -> dict[str, Log] | None:
    """The log of each broker; None if on any of them replicas differ, or bytes are wrong.

    `first_indexes`: the index that each broker's log begins with; None if replicas differ in that,
    0 if it is not known.
    """
    if any(look.disputed for look in looks) or None in first_indexes.values():
        return None
    logs = dict.fromkeys(first_indexes, Log())
    last = {name: ((first or 0) - 1, 0) for name, first in first_indexes.items()}
    for look in sorted(looks, key=lambda look: (look.broker, look.position)):
        if not look.entries:
            continue
        index, term = last[look.broker]
        if index >= 0 and (look.first_index != index + 1 or look.first_term < term):
            return None
        last[look.broker] = (look.last_index, look.last_term)
        before = logs[look.broker]
        logs[look.broker] = Log(before.entries + look.entries, look.end, look.terms | before.terms)
    return logs
