"""What groups were given of queues, and where they say they are: which readings are doubtful. Pure.

A reading is what one group gets of one queue. Three things can be wrong with it: the order in which
its offsets came first, a commit *ahead* of what had been delivered, and a step *back* behind what
had been committed. The first two are decided here as the judges decide them (properties 4 and 8).
Of the third only what is plain passes: offsets that never fall, in the order of their answers. For
if an answer is below one that was there before its question, it is below one before it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mqspark.screening.packets import DOUBT, NONE, Flags, Numbers, Rows, run_starts
from mqspark.screening.queues import least_above

#: What is said of a reading: an offset was delivered, committed, told to who asked, or set.
DELIVERED, COMMITTED, TOLD, SET = range(4)


def doubts(said: Rows) -> Rows:
    """A row for each reading, of which all that is said must be there."""
    keys = ("t", "queue_offset", "queue", "group")
    said = np.take(said, np.lexsort([said[name] for name in keys]))
    starts = run_starts(said["group"], said["queue"]).tolist()
    found = [_doubt(said[start:end]) for start, end in pairwise([*starts, len(said)])]
    return np.array(found, DOUBT)


def _doubt(said: Rows) -> tuple[int, int, bool, bool, bool]:
    """The row of one reading; `said` is in the order of offsets, and of times."""
    group, queue = int(said["group"][0]), int(said["queue"][0])
    if np.any((said["queue_offset"] == NONE) | (said["t"] == NONE)):
        return group, queue, True, True, True
    delivered = said[said["said"] == DELIVERED]
    firsts = run_starts(delivered["queue_offset"])
    offsets, times = delivered["queue_offset"][firsts], delivered["t"][firsts]
    disorder = np.any(np.diff(offsets) != 1) or np.any(least_above(times) < times)
    commits = said[said["said"] == COMMITTED]
    if not len(commits):
        return group, queue, bool(disorder), False, False
    ahead = np.any(_ahead(offsets, times, commits))
    return group, queue, bool(disorder), bool(ahead), _may_fall(said)


def _ahead(offsets: Numbers, times: Numbers, commits: Rows) -> Flags:
    """Which commits say more than what had been delivered."""
    begin = committed_first = int(commits["queue_offset"].min())
    whole = 0
    if len(offsets):
        begin = min(begin, int(offsets[0]))
        gaps = np.flatnonzero(np.diff(offsets) != 1)
        whole = int(gaps[0]) + 1 if len(gaps) else len(offsets)
        if offsets[0] > committed_first:
            whole = 0
    beyond = commits[commits["queue_offset"] > begin]
    if not whole:
        return np.ones(len(beyond), np.bool_)
    complete = np.maximum.accumulate(times[:whole])
    last = beyond["queue_offset"] - 1
    place = np.minimum(last - offsets[0], whole - 1)
    ahead: Flags = (last > offsets[whole - 1]) | (complete[place] > beyond["t"])
    return ahead


def _may_fall(said: Rows) -> bool:
    """Whether any offset that was committed or told is below one that was so before, or was set."""
    told = said[said["said"] != DELIVERED]
    if np.any(told["said"] == SET):
        return True
    in_time = np.lexsort((-told["queue_offset"], told["t"]))
    return bool(np.any(np.diff(told["queue_offset"][in_time]) < 0))
