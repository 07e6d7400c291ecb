"""Whether all replicas of a broker hold one log, and what it looks like then. Pure.

Most logs are alike byte for byte, and whole. That takes no table of their entries to say: it is
enough that each segment says so of its own, and that each goes on where the one before it ended.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class SegmentLook(msgspec.Struct, frozen=True):
    """What the entries of one segment of a replica show (:class:`mqspark.source.reader.Tally`)."""

    broker: str
    position: int
    entries: int
    first_index: int
    last_index: int
    end: int
    terms: dict[int, int]
    disputed: bool


class Log(msgspec.Struct, frozen=True):
    """A log that all replicas of a broker hold alike. `terms` says where each term begins."""

    entries: int = 0
    end: int = 0
    terms: dict[int, int] = {}


def agreed_logs(brokers: Sequence[str], looks: Sequence[SegmentLook]) -> dict[str, Log] | None:
    """The log of each broker; None if on any of them replicas differ, or bytes are wrong."""
    if any(look.disputed for look in looks):
        return None
    logs = dict.fromkeys(brokers, Log())
    last = dict.fromkeys(brokers, 0)
    for look in sorted(looks, key=lambda look: (look.broker, look.position)):
        if not look.entries:
            continue
        if last[look.broker] and look.first_index != last[look.broker] + 1:
            return None
        last[look.broker] = look.last_index
        before = logs[look.broker]
        logs[look.broker] = Log(before.entries + look.entries, look.end, look.terms | before.terms)
    return logs
