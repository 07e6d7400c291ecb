"""From positions to ranges, and how far a batch goes. Pure.

The ranges of a batch follow from its start, its end and the options alone, so a batch that Spark
repeats, after a crash or from an old checkpoint, is the same batch:

- a queue that both positions have, with the same life, is read from one offset to the other;
- a queue that only the end has, or has with another life, is *announced*: nothing is read, and the
  next batch begins at the offset that the end names, the queue's first message;
- with `minPartitions` or `maxRecordsPerPartition`, each range has a task, and large ones are cut
  into equal pieces;
- without them, neighbouring ranges share a task as long as they are small: a task costs as much as
  reading some thousand messages.

Tasks are counted in messages, not in bytes: a position says nothing of sizes, and one that did
would have to be asked for at brokers, for each queue and batch, and differ from itself when asked
again, so that Spark would see a new position where there is no new message.

The end is chosen before: `advance` looks at what the queues have now, and `limit` shares out what a
batch may read. Both say nothing but positions, so it does not matter what they looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from dledger.remoting.json_dialect import MessageQueue
from mqclient import Bounds
from mqclient.ranges.pieces import DELETED, MADE_AGAIN, TRUNCATED
from mqspark.limits import TASK_MESSAGES
from mqspark.topics.positions import Position, Positions


class Range(NamedTuple):
    """Messages of a queue that a task reads: from `begin` to before `end`."""

    queue: MessageQueue
    begin: int
    end: int
    life: int


class Loss(NamedTuple):
    """Messages that can't be read, from `begin` on: up to `end`, if that is known, and why."""

    queue: MessageQueue
    life: int
    begin: int
    end: int | None
    why: str


@dataclass(frozen=True)
class Known:
    """The facts known of the queues now; `answered`: the (topic, broker group) that have."""

    bounds: Mapping[MessageQueue, Bounds] = field(default_factory=dict)
    answered: Collection[tuple[str, str]] = ()


def ranges(
    start: Positions, end: Positions, min_partitions: int = 0, records_max: int | None = None
) -> list[Range]:
    """The ranges of a batch, in the order of their queues."""
    found = [
        Range(queue, start[queue].offset, position.offset, position.life)
        for queue, position in sorted(end.items())
        if queue in start
        and start[queue].life == position.life
        and start[queue].offset < position.offset
    ]
    sizes = [each.end - each.begin for each in found]
    pieces = [-(-size // (records_max or size)) for size in sizes]
    if len(found) < min_partitions:
        shares = [round(size * min_partitions / sum(sizes)) for size in sizes]
        pieces = [*map(max, pieces, shares)]
    return [piece for each, count in zip(found, pieces, strict=True) for piece in _cut(each, count)]


def _cut(whole: Range, pieces: int) -> list[Range]:
    size = whole.end - whole.begin
    pieces = min(pieces, size)
    ends = [whole.begin + size * number // pieces for number in range(pieces + 1)]
    return [whole._replace(begin=begin, end=end) for begin, end in pairwise(ends)]


def tasks(
    start: Positions, end: Positions, min_partitions: int = 0, records_max: int | None = None
) -> list[tuple[Range, ...]]:
    """The ranges of a batch, as tasks read them: in the order of their queues.

    There is a task for each `TASK_MESSAGES`, as far as there are ranges. A range belongs to the
    task in whose equal share of all messages its middle lies.
    """
    found = ranges(start, end, min_partitions, records_max)
    if min_partitions or records_max:
        return [(each,) for each in found]
    total = sum(each.end - each.begin for each in found)
    wanted = -(-total // TASK_MESSAGES)
    shared: dict[int, list[Range]] = {}
    before = 0
    for each in found:
        size = each.end - each.begin
        shared.setdefault((2 * before + size) * wanted // (2 * total), []).append(each)
        before += size
    return [tuple(each) for each in shared.values()]


def advance(start: Positions, known: Known) -> tuple[dict[MessageQueue, Position], list[Loss]]:
    """How far reading can go, and what has been lost meanwhile.

    A queue of a broker group that does not answer stays where it is. One that is not there any more
    is left out, and lost from its position on.
    """
    end: dict[MessageQueue, Position] = {}
    losses: list[Loss] = []
    for queue, position in start.items():
        bounds = known.bounds.get(queue)
        if bounds is None:
            if (queue.topic, queue.broker_name) not in known.answered:
                end[queue] = position
                continue
            why = f"{DELETED}, or the queue taken from it"
        elif bounds.life != position.life:
            why = MADE_AGAIN
            end[queue] = Position(bounds.begin, bounds.life)
        elif bounds.end < position.offset:
            why = TRUNCATED
            end[queue] = Position(bounds.begin, bounds.life)
        else:
            end[queue] = Position(bounds.end, bounds.life)
            continue
        losses.append(Loss(queue, position.life, position.offset, None, why))
    for queue, bounds in known.bounds.items():
        if queue not in start:
            end[queue] = Position(bounds.begin, bounds.life)
    return end, losses


def limit(
    start: Positions,
    end: Positions,
    rows_max: int | None,
    bytes_max: int | None = None,
    mean_bytes: Mapping[MessageQueue, float] | None = None,
) -> dict[MessageQueue, Position]:
    """An end that is nearer, if a batch may not read as much.

    Each queue gets its share by what it has, and one message at least: so there is progress,
    however low the limit. `mean_bytes` is how large the next messages of a queue are.
    """
    backlogs = {each.queue: each.end - each.begin for each in ranges(start, end)}
    allowed = dict(backlogs)
    if rows_max is not None:
        _share(allowed, backlogs, dict.fromkeys(backlogs, 1.0), rows_max)
    if bytes_max is not None:
        means = {queue: max((mean_bytes or {}).get(queue, 1.0), 1.0) for queue in backlogs}
        _share(allowed, backlogs, means, bytes_max)
    return {
        queue: Position(start[queue].offset + allowed[queue], position.life)
        if queue in allowed
        else position
        for queue, position in end.items()
    }


def _share(
    allowed: dict[MessageQueue, int],
    backlogs: Mapping[MessageQueue, int],
    weights: Mapping[MessageQueue, float],
    most: int,
) -> None:
    """Lower what is `allowed` so that all queues together stay within `most`, as far as one message
    of each does."""
    total = sum(count * weights[queue] for queue, count in backlogs.items())
    if total <= most:
        return
    for queue, count in backlogs.items():
        allowed[queue] = min(allowed[queue], max(1, int(count * most / total)))
