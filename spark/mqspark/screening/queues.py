"""Whether queues go on without a gap, in order: which of them are doubtful. Pure.

A queue is looked at in ranges of its offsets, each by itself, so that no task must hold a long
queue. What a range shows to its neighbours is one row: its ends, and the spread of its times.
A queue is doubtful if two messages have one offset, if offsets or positions don't go up, if an
offset is missing, or if a later offset was acknowledged before an earlier one was sent, or was read
before it was read. No queue that properties 3 and 4 would find fault with passes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np

from mqspark.limits import RANGE_OFFSETS
from mqspark.screening.packets import NONE, QUEUE_RANGE, Flags, Numbers, Rows, run_starts

_MOST: Final = 2**63 - 1


def range_numbers(slots: Rows, tasks: int) -> Numbers:
    """Which task each place in a queue goes to: all of a range to the same."""
    numbers: Numbers = (slots["queue"] + slots["queue_offset"] // RANGE_OFFSETS) % tasks
    return numbers


def ranges(slots: Rows) -> Rows:
    """A row for each range of a queue; all of its places must be among `slots`."""
    slots = np.take(slots, np.lexsort((slots["queue_offset"], slots["queue"])))
    part = slots["queue_offset"] // RANGE_OFFSETS
    starts = run_starts(slots["queue"], part).tolist()
    found = [_range_row(slots[start:end]) for start, end in pairwise([*starts, len(slots)])]
    return np.array(found, QUEUE_RANGE)


def doubtful_queues(found: Rows, *, from_start: bool) -> list[int]:
    """The queues, of all ranges of each. `from_start`: a queue's first offset must be 0."""
    found = found[np.lexsort((found["offset_first"], found["queue"]))]
    doubtful = set(found["queue"][found["doubtful"] != 0].tolist())
    for queue in np.unique(found["queue"]).tolist():
        own = found[found["queue"] == queue]
        if from_start and own[0]["offset_first"] != 0:
            doubtful.add(queue)
        for lower, higher in pairwise(own):
            if higher["offset_first"] - lower["offset_last"] != 1:
                doubtful.add(queue)
            if higher["position_first"] <= lower["position_last"]:
                doubtful.add(queue)
        if np.any(least_above(own["ack_t_min"]) < own["send_t_max"]):
            doubtful.add(queue)
        read = own[own["read_first"] != NONE]
        if np.any(read["read_first"][1:] - read["read_last"][:-1] != 1):
            doubtful.add(queue)
        if np.any(least_above(read["read_t_min"]) < read["read_t_max"]):
            doubtful.add(queue)
    return sorted(doubtful)


def _range_row(slots: Rows) -> tuple[Any, ...]:
    """The row of one range, of places in the order of their offsets."""
    offsets, positions = slots["queue_offset"], slots["position"]
    sent, acked = slots["send_t"], _or_most(slots["ack_t"])
    read = slots[slots["read_t"] != NONE]
    doubtful = (
        np.any(np.diff(offsets) != 1)
        or np.any(np.diff(positions) <= 0)
        or np.any(least_above(acked) < sent)
        or np.any(np.diff(read["queue_offset"]) != 1)
        or np.any(least_above(read["read_t"]) < read["read_t"])
    )
    return (
        *(slots["queue"][0], len(slots), doubtful),
        *(offsets[0], offsets[-1], positions[0], positions[-1]),
        *(sent.max(), acked.min()),
        *((read["queue_offset"][0], read["queue_offset"][-1]) if len(read) else (NONE, NONE)),
        *(read["read_t"].min(initial=_MOST), read["read_t"].max(initial=NONE)),
    )


def least_above(times: Numbers) -> Numbers:
    """For each the least of those behind it."""
    least = np.full(len(times), _MOST)
    least[:-1] = np.minimum.accumulate(times[:0:-1])[::-1]
    return least


def _or_most(times: Numbers) -> Numbers:
    absent: Flags = times == NONE
    return np.where(absent, _MOST, times)
