"""The part of a queue's range that one answer to a pull covers: messages and gaps. Pure.

A range is read for an exact set of messages, so the result lists missing offsets and the reason.
The offsets of a queue have no holes of their own. With a filter the broker leaves messages out;
then only messages before the queue's first or behind its last are known to be gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dledger.buffers import Buffer
from dledger.errors import RecordError
from dledger.remoting.codes import ResponseCode
from dledger.remoting.headers import PullMessageResponseHeader
from dledger.remoting.record.layout import QUEUE_ID_AT, U32

if TYPE_CHECKING:
    from dledger.remoting.record.table import RecordTable

RETENTION = "retention removed them"
TRUNCATED = "the queue ends before them: its log was cut, or its topic was made again"
DELETED = "the topic was deleted"
MADE_AGAIN = "the topic was deleted and made again"
MISSING = "the queue has them no more, though it has older ones"


class Gap(NamedTuple):
    """Offsets from `begin` to `end` without messages, and the reason."""

    begin: int
    end: int
    why: str


class Piece(NamedTuple):
    """An answer about the offsets from the beginning of the read to `next_offset`.

    `table` has the messages, `gaps` the missing offsets. `first_there` is the queue's first offset
    now, -1 if it is not known.
    """

    next_offset: int
    table: RecordTable | None = None
    gaps: tuple[Gap, ...] = ()
    first_there: int = -1


def all_missing(begin: int, end: int, why: str) -> Piece:
    """A piece without messages: all offsets are missing, for this reason."""
    return Piece(end, None, (Gap(begin, end, why),))


def piece_of(
    asked: int,
    end: int,
    queue_id: int,
    code: int,
    header: PullMessageResponseHeader,
    payload: Buffer,
    *,
    filtered: bool,
) -> Piece:
    """The piece in an answer to a pull of `asked`, of a range that ends before `end`.

    Its `next_offset` is `asked` if the answer has no information. Raises RecordError for messages
    of another queue.
    """
    first, behind = header.min_offset, header.max_offset
    if header.life:
        return all_missing(asked, end, MADE_AGAIN)
    if code == ResponseCode.SUCCESS:
        return _found(asked, end, queue_id, header, payload, filtered=filtered)
    if asked < first:
        until = min(first, end)
        return Piece(until, None, (Gap(asked, until, RETENTION),), first)
    if asked >= behind:
        return all_missing(asked, end, TRUNCATED)._replace(first_there=first)
    if code == ResponseCode.PULL_RETRY_IMMEDIATELY and header.next_begin_offset > asked:
        until = min(header.next_begin_offset, end)
        gaps = () if filtered else (Gap(asked, until, MISSING),)
        return Piece(until, None, gaps, first)
    return Piece(asked, None, (), first)


def _found(
    asked: int,
    end: int,
    queue_id: int,
    header: PullMessageResponseHeader,
    payload: Buffer,
    *,
    filtered: bool,
) -> Piece:
    import numpy as np  # noqa: PLC0415 - see `mqclient.tables`

    from dledger.remoting.record.table import RecordTable  # noqa: PLC0415 - as above

    table = RecordTable(payload)
    offsets = table.queue_offsets
    found = U32.unpack_from(table.record(0), QUEUE_ID_AT)[0]
    if found != queue_id or offsets[0] < asked or (np.diff(offsets) <= 0).any():
        raise RecordError(
            f"a pull of queue {queue_id} from {asked} was answered with messages of queue {found} "
            f"from {offsets[0]} on"
        )
    count = int(np.searchsorted(offsets, end))
    behind = header.next_begin_offset if filtered else int(offsets[-1]) + 1
    until = min(max(behind, int(offsets[-1]) + 1), end)
    first = header.min_offset
    gaps: list[Gap] = []
    if filtered:
        if asked < first:
            gaps.append(Gap(asked, min(first, end), RETENTION))
    else:
        there = np.concatenate([[asked - 1], offsets[:count], [until]])
        for number in np.flatnonzero(np.diff(there) > 1).tolist():
            begin, ends = int(there[number]) + 1, int(there[number + 1])
            gaps.append(Gap(begin, ends, RETENTION if ends <= first else MISSING))
    return Piece(until, table.head(count) if count else None, tuple(gaps), first)
