"""How far a query is behind its topics: in messages, bytes and seconds. Pure.

Spark has no place for such figures of a Python source, but a query's progress has the positions at
which its last batch ended. What lies between these and the ends of the queues is the lag. Brokers
don't know how many bytes that is: the first messages of it are looked at, and taken for all. It is
as many seconds as its oldest message is old.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from mqclient import Bounds
from mqspark.topics.planning import Range
from mqspark.topics.positions import Positions, from_json


class Sample(NamedTuple):
    """The first messages that a query has not read: bytes of one, on average, and when the oldest
    was stored."""

    mean_bytes: float
    stored_ms: int


class Lag(NamedTuple):
    """How far a query is behind a topic."""

    topic: str
    messages: int
    size_bytes: int
    seconds: float


def positions_in(offset: str | None) -> Positions | None:
    """Where a batch of a source ended; None if the source is not one of ours."""
    try:
        found = json.loads(offset or "null")
        return from_json(found) if isinstance(found, dict) else None
    except (BadInput, ValueError):
        return None


def unread(positions: Positions, ends: Mapping[MessageQueue, Bounds]) -> list[Range]:
    """Messages in the queues that the query has not read yet, queue by queue."""
    ranges: list[Range] = []
    for queue, bounds in ends.items():
        at = positions.get(queue)
        is_same = at is not None and (not at.life or at.life == bounds.life)
        begin = max(at.offset if at is not None and is_same else 0, bounds.begin)
        if begin < bounds.end:
            ranges.append(Range(queue, begin, bounds.end, bounds.life))
    return ranges


def lags(
    topics: Iterable[str],
    waiting: Sequence[Range],
    samples: Mapping[MessageQueue, Sample],
    now_ms: int,
) -> list[Lag]:
    """The lag of each topic; of a queue without a sample, messages alone are counted."""
    found: list[Lag] = []
    for topic in sorted(set(topics)):
        messages, size, oldest_ms = 0, 0.0, now_ms
        for each in waiting:
            if each.queue.topic != topic:
                continue
            count = each.end - each.begin
            messages += count
            if (sample := samples.get(each.queue)) is not None:
                size += count * sample.mean_bytes
                oldest_ms = min(oldest_ms, sample.stored_ms)
        found.append(Lag(topic, messages, round(size), (now_ms - oldest_ms) / 1000))
    return found
