"""Readings of groups: the messages given to them, and their positions; which readings are doubtful.
Pure.

A reading is what one group gets of one queue. Three things can be wrong with it: the order in which
its offsets came first (property 4), a commit *ahead* of what had been delivered, and a step *back*
behind what had been committed (8). Like a queue it is looked at in ranges of its offsets, each
by itself, and one row says of each what its neighbours must know. An answer of n is about offset
n - 1, the last that it says was delivered.

What passes here is plain: offsets that came first one after the other, commits of what had been
delivered, at times that grow with the offsets. If an answer is below one that was there before its
question, then it is below one that came before it. No reading that a judge would find fault with
passes; many that pass no more are sound, as where members commit in turn.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np

from mqspark.limits import RANGE_OFFSETS
from mqspark.screening.packets import DOUBT, NONE, READ, Flags, Numbers, Rows, run_starts
from mqspark.screening.queues import least_above

#: The kinds of reading: an offset was delivered, committed, answered to a question, or set.
DELIVERED, COMMITTED, ANSWERED, SET = range(4)
_MOST: Final = 2**63 - 1


def read_numbers(said: Rows, tasks: int) -> Numbers:
    """Which task each row goes to: all of a range to the same."""
    numbers: Numbers = ((said["group"] ^ said["queue"]) + _parts(said)) % tasks
    return numbers


def read_ranges(said: Rows) -> Rows:
    """A row for each range of a reading; all that is said of it must be among `said`."""
    keys = (said["t"], said["queue_offset"], _parts(said), said["queue"], said["group"])
    said = np.take(said, np.lexsort(keys))
    starts = run_starts(said["group"], said["queue"], _parts(said)).tolist()
    found = [_range_row(said[start:end]) for start, end in pairwise([*starts, len(said)])]
    return np.array(found, READ)


def doubts(found: Rows) -> Rows:
    """A row for each reading, of all its ranges."""
    found = found[np.lexsort((found["part"], found["queue"], found["group"]))]
    starts = run_starts(found["group"], found["queue"]).tolist()
    rows = [_doubt(found[start:end]) for start, end in pairwise([*starts, len(found)])]
    return np.array(rows, DOUBT)


def _parts(said: Rows) -> Numbers:
    parts: Numbers = (said["queue_offset"] - (said["said"] != DELIVERED)) // RANGE_OFFSETS
    return parts


def _range_row(said: Rows) -> tuple[Any, ...]:
    """The row of one range; `said` is in the order of offsets, and of times."""
    delivered = said[said["said"] == DELIVERED]
    delivered = delivered[run_starts(delivered["queue_offset"])]
    offsets, times = delivered["queue_offset"], delivered["t"]
    commits, answers = said[said["said"] == COMMITTED], said[said["said"] != DELIVERED]
    odd = np.any((said["queue_offset"] == NONE) | (said["t"] == NONE))
    disorder = np.any(np.diff(offsets) != 1) or np.any(least_above(times) < times)
    in_time = answers[np.lexsort((-answers["queue_offset"], answers["t"]))]
    falls = np.any(np.diff(in_time["queue_offset"]) < 0) or np.any(answers["said"] == SET)
    return (
        *(said["group"][0], said["queue"][0], _parts(said[:1])[0]),
        *((offsets[0], offsets[-1]) if len(offsets) else (NONE, NONE)),
        *(times.min(initial=_MOST), times.max(initial=NONE)),
        commits["queue_offset"].min(initial=_MOST),
        commits["queue_offset"].max(initial=NONE),
        commits["t"].min(initial=_MOST),
        *(answers["t"].min(initial=_MOST), answers["t"].max(initial=NONE)),
        answers["queue_offset"].max(initial=NONE),
        *(bool(odd), bool(disorder), bool(falls), bool(np.any(_early(offsets, times, commits)))),
    )


def _early(offsets: Numbers, times: Numbers, commits: Rows) -> Flags:
    """Which commits came before what they say of this range, as far as it is delivered at all."""
    if not len(offsets):
        return np.zeros(len(commits), np.bool_)
    below = np.searchsorted(offsets, commits["queue_offset"])
    complete = np.maximum.accumulate(times)
    early: Flags = (below > 0) & (complete[np.maximum(below - 1, 0)] > commits["t"])
    return early


def _doubt(found: Rows) -> tuple[Any, ...]:
    """The row of one reading, of its ranges in their order."""
    read = found[found["first"] != NONE]
    gaps = np.any(read["disorder"]) or np.any(read["first"][1:] - read["last"][:-1] != 1)
    disorder = gaps or np.any(least_above(read["t_min"]) < read["t_max"])
    early = np.any(found["early"]) or np.any(least_above(found["commit_t_min"]) < found["t_max"])
    ahead = bool(gaps or early) or _is_beyond(read, found["commit_min"], found["commit_max"])
    has_commits = bool(np.any(found["commit_max"] != NONE))
    back = np.any(found["falls"]) or np.any(
        least_above(found["answer_t_min"]) < found["answer_t_max"]
    )
    odd = np.any(found["odd"])
    return (
        *(found["group"][0], found["queue"][0]),
        *(found["commit_max"].max(), found["answer_max"].max()),
        bool(odd or disorder),
        *(bool(odd or (has_commits and ahead)), bool(odd or (has_commits and back))),
    )


def _is_beyond(read: Rows, commit_min: Numbers, commit_max: Numbers) -> bool:
    """Whether any commit is behind the last delivery, or the first one before the first delivery.

    One alone may be where the group began.
    """
    lowest, highest = commit_min.min(), commit_max.max()
    if not len(read):
        return bool(highest > lowest)
    first, last = read["first"][0], read["last"][-1]
    return bool(highest > last + 1 and highest > min(lowest, first)) or bool(
        lowest < first and highest > lowest
    )
