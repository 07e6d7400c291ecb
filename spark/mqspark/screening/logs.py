"""Whether all replicas of a broker hold one log, and what it looks like then. Pure.

Most logs are alike byte for byte, and whole. That takes no table of their entries to say: it is
enough that each segment says so of its own, and that each goes on where the one before it ended.

**Queues of topics that the history is not about.** No client tells of them, but the log does: in
its order the offsets of a queue go up by one; where an entry deletes their topic they begin anew.
Each segment looks at its own, and what it shows to its neighbours is where each queue begins and
ends in it. That is enough to see whether anything is odd; what it is the records are asked
(`mqspark.judge.alone`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqspark.screening.packets import Numbers, numbers, run_starts
from mqspark.screening.testimony import queue_number
from mqspark.source.planning import SegmentPartition
from mqspark.source.reader import SegmentLook


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


class QueuesLook(msgspec.Struct, array_like=True):
    """Findings about the records of one segment. `ends`: the first and the last offset of each
    queue, by its number. `odd`: one does not follow the one before."""

    broker: str
    position: int
    ends: dict[int, tuple[int, int]] = {}
    odd: bool = False


def look_at_others(
    looks: Sequence[OtherQueues], batches: Sequence[pa.RecordBatch], topics: Sequence[str]
) -> None:
    """Show each look the records of its batch, but for those of some topics."""
    records = pa.Table.from_batches(batches)
    own = pc.is_in(records["topic"], value_set=pa.array(topics, pa.string()), skip_nulls=False)
    others = pc.and_(pc.invert(own), pc.is_valid(records["topic"]))
    if not pc.any(others).as_py():
        return
    rows = records.filter(others)
    queues, offsets = queue_number(rows).to_numpy(), numbers(rows["queue_offset"])
    before = np.concatenate([[0], np.cumsum(others.to_numpy())])
    ends = before[np.cumsum([0, *map(len, batches)])].tolist()
    for look, (start, end) in zip(looks, pairwise(ends), strict=True):
        if start < end:
            look.take(queues[start:end], offsets[start:end])


class OtherQueues:
    """Looks at the records of one segment in queues that the history is not about."""

    def __init__(self, segment: SegmentPartition) -> None:
        self.look = QueuesLook(segment.broker, segment.position)

    def take(self, queues: Numbers, offsets: Numbers) -> None:
        """The queues and offsets of the next of them, in the order of the log."""
        order = np.argsort(queues, kind="stable")
        queues, offsets = queues[order], offsets[order]
        starts = run_starts(queues)
        follows = offsets[1:] == offsets[:-1] + 1
        follows[starts[1:] - 1] = True
        self.look.odd |= not bool(np.all(follows))
        ends = [*(starts[1:] - 1).tolist(), len(queues) - 1]
        for start, end in zip(starts.tolist(), ends, strict=True):
            self._joined(int(queues[start]), int(offsets[start]), int(offsets[end]))

    def _joined(self, queue: int, first: int, last: int) -> None:
        known = self.look.ends.get(queue)
        if known is None:
            self.look.ends[queue] = (first, last)
            return
        self.look.odd |= first != known[1] + 1
        self.look.ends[queue] = (known[0], last)


def are_odd(looks: Sequence[QueuesLook], whole: dict[str, bool]) -> bool:
    """Whether anything is odd in any queue, by what all segments of one log show.

    `whole`: whether a broker's log begins at 0; then each of its queues does.
    """
    last: dict[tuple[str, int], int] = {}
    for look in sorted(looks, key=lambda look: (look.broker, look.position)):
        if look.odd:
            return True
        for queue, (first, end) in look.ends.items():
            before = last.get((look.broker, queue), -1 if whole[look.broker] else first - 1)
            if first != before + 1:
                return True
            last[look.broker, queue] = end
    return False
