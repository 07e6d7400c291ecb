"""Messages that a pull or pop finds in a queue, by its units (and for SQL92 the messages) alone.
Pure.

The result table is the reference's (DefaultMessageStore.getMessage). Messages next to each other in
the log become one piece, so a pull of a thousand messages is answered with a few pieces of raw log
bytes. Nothing is decoded, except for a SQL92 filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from dledger.remoting.codes import ResponseCode
from mqbroker import limits
from mqbroker.state.derived.units import expired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mqbroker.requests.filters import Selection
    from mqbroker.state.derived.consume_queue import ConsumeQueue
    from mqbroker.state.derived.units import Units


class Found(NamedTuple):
    """The outcome of a pull. `pieces` are (position, size in bytes) of the log, in queue order."""

    code: ResponseCode
    remark: str
    next_offset: int
    min_offset: int
    max_offset: int
    pieces: Sequence[tuple[int, int]] = ()
    messages: int = 0
    expiring: bool = False
    """Whether some of them will expire."""


def read_queue(
    queue: ConsumeQueue | None,
    offset: int,
    *,
    messages_max: int,
    bytes_max: int,
    selection: Selection | None,
    now_ms: int = 0,
) -> Found:
    """Find up to `messages_max` messages of at most `bytes_max` in all, but at least one.

    What has expired at `now_ms` is left out.
    """
    low, high = (queue.begin, queue.end) if queue is not None else (0, 0)
    nothing = _outside(offset, low, high)
    if nothing is not None or queue is None:
        return nothing or Found(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
    count = _looked_at(queue, offset, messages_max, bytes_max)
    units, numbers, scanned, _ = passing(queue, offset, count, selection, now_ms)
    last_scanned = offset + scanned
    if not len(numbers):
        code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return Found(code, "NO_MATCHED_MESSAGE", last_scanned, low, high)
    if len(numbers) > messages_max:
        last_scanned = offset + int(numbers[messages_max])
        numbers = numbers[:messages_max]
    if len(numbers) < len(units):
        units = units[numbers]
    sizes = units["size"].astype(np.int64)
    ends = np.cumsum(sizes)
    count = min(fitting(ends, bytes_max), len(units))
    pieces = _pieces(units[:count], sizes[:count])
    if len(pieces) > limits.PULL_PIECES_MAX and ends[count - 1] > limits.PULL_JOINED_BYTES_MAX:
        count = fitting(ends, limits.PULL_JOINED_BYTES_MAX)
        pieces = _pieces(units[:count], sizes[:count])
    if count < len(units):
        last_scanned = offset + int(numbers[count])
    expiring = bool(units["lives"][:count].any())
    return Found(ResponseCode.SUCCESS, "FOUND", last_scanned, low, high, pieces, count, expiring)


class Passing(NamedTuple):
    """Units of a queue, the numbers of those that pass, how many were looked at, and the steps."""

    units: Units
    numbers: npt.NDArray[np.intp]
    scanned: int
    steps: int = 0


def passing(
    queue: ConsumeQueue,
    offset: int,
    count: int,
    selection: Selection | None,
    now_ms: int,
    steps_max: int = limits.SQL_STEPS_MAX,
) -> Passing:
    """The messages from `offset` on that pass a filter and have not expired.

    There may be more than `count`, which is how many are wanted.
    """
    units_max = count
    if selection is not None:
        units_max = min(selection.units_max, max(1, steps_max) * limits.TAG_UNITS_PER_STEP)
    units = queue.read(offset, units_max)
    gone = expired(units, now_ms)
    if gone is not None and selection is None:
        units = queue.read(offset, limits.PULL_UNITS_SCANNED_MAX)
        gone = expired(units, now_ms)
    numbers, scanned, steps = np.arange(len(units)), len(units), 0
    if selection is not None:
        numbers, scanned, steps = selection.wanted(units, steps_max)
    if gone is not None:
        numbers = numbers[~gone[numbers]]
    return Passing(units, numbers, scanned, steps)


def _looked_at(queue: ConsumeQueue, offset: int, messages_max: int, bytes_max: int) -> int:
    """How many messages to read units of: some more than fit, if the next ones are a sample.

    Who reads far behind asks for thousands at a time, and a unit that is read is checked.
    """
    if messages_max <= limits.PULL_UNITS_SAMPLED:
        return messages_max
    sizes = queue.read(offset, limits.PULL_UNITS_SAMPLED)["size"]
    fit = len(sizes) * bytes_max // max(1, int(sizes.sum()))
    return min(messages_max, limits.PULL_UNITS_SAMPLED + fit + fit // 8)


def fitting(ends: npt.NDArray[np.int64], bytes_max: int) -> int:
    """How many messages fit, from the first on; one always does. `ends` are running sums of their
    sizes."""
    return max(1, int(np.searchsorted(ends, bytes_max, "right")))


def _outside(offset: int, low: int, high: int) -> Found | None:
    """The outcome for an offset at which no message is, or None if one is there."""
    moved = ResponseCode.PULL_OFFSET_MOVED
    if high == 0:
        code = ResponseCode.PULL_NOT_FOUND if offset == 0 else moved
        return Found(code, "NO_MESSAGE_IN_QUEUE", 0, low, high)
    if offset < low:
        return Found(moved, "OFFSET_TOO_SMALL", low, low, high)
    if offset > high:
        return Found(moved, "OFFSET_OVERFLOW_BADLY", high, low, high)
    if offset == high:
        return Found(ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", offset, low, high)
    return None


def _pieces(units: Units, sizes: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Records that lie next to each other as one piece."""
    begins = units["position"].astype(np.int64)
    ends = begins + sizes
    apart = begins[1:] != ends[:-1]
    starts = begins[np.append(True, apart)]
    return [*zip(starts.tolist(), (ends[np.append(apart, True)] - starts).tolist(), strict=True)]
