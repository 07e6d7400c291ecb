"""Pieces of a range, made of answers to pulls: messages and gaps hold each offset once."""

from __future__ import annotations

import random

import pytest

from dledger.errors import RecordError
from dledger.remoting.codes import ResponseCode
from dledger.remoting.headers import PullMessageResponseHeader
from dledger.remoting.message import host_bytes
from dledger.remoting.record import encode_record
from mqclient import Gap
from mqclient.ranges.pieces import MADE_AGAIN, MISSING, RETENTION, TRUNCATED, Piece, piece_of

HOST = host_bytes("127.0.0.1", 1)


def record(offset: int, queue_id: int = 3) -> bytes:
    return encode_record(
        topic=b"T",
        queue_id=queue_id,
        body=b"x",
        properties=b"",
        sys_flag=0,
        born_timestamp_ms=1,
        born_host=HOST,
        store_host=HOST,
        store_timestamp_ms=1,
        queue_offset=offset,
    )


def answer(there: list[int], first: int, behind: int, asked: int, end: int, count: int) -> Piece:
    """The answer of a broker with messages at these offsets to a pull of `count` at most."""
    found = [offset for offset in there if offset >= max(asked, first)][:count]
    if asked < first or asked > behind:
        code, following, found = ResponseCode.PULL_OFFSET_MOVED, first, []
    elif not found:
        code, following = ResponseCode.PULL_NOT_FOUND, asked
        if asked < behind:
            code, following = ResponseCode.PULL_RETRY_IMMEDIATELY, behind
    else:
        code, following = ResponseCode.SUCCESS, found[-1] + 1
    header = PullMessageResponseHeader(1, following, first, behind)
    payload = b"".join(map(record, found))
    return piece_of(asked, end, 3, code, header, payload, filtered=False)


def test_messages_and_gaps_together_are_the_whole_range() -> None:
    """Messages and gaps together are the whole range, for any queue and any cut of pulls."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    reasons: set[str] = set()
    for _ in range(600):
        first, behind = sorted(chance.sample(range(40), 2))
        there = [n for n in range(first, behind) if chance.random() < chance.choice((0.5, 0.9, 1))]
        begin, end = sorted(chance.sample(range(45), 2))
        at, told, gaps = begin, [], []
        while at < end:
            piece = answer(there, first, behind, at, end, chance.randrange(1, 9))
            assert at < piece.next_offset <= end
            told += piece.table.offsets if piece.table else []
            gaps += piece.gaps
            at = piece.next_offset
        missing = [offset for gap in gaps for offset in range(gap.begin, gap.end)]
        assert told == [offset for offset in there if begin <= offset < end]
        assert sorted(told + missing) == [*range(begin, end)]
        for gap in gaps:
            reasons.add(gap.why)
            assert (gap.why == RETENTION) == (gap.end <= first)
            assert gap.why != TRUNCATED or gap.begin >= behind
    assert reasons == {RETENTION, TRUNCATED, MISSING}


def test_with_a_filter_only_the_ends_of_a_queue_are_known_to_be_missing() -> None:
    """Between them the broker may have left messages out."""
    success, retry = ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY
    header = PullMessageResponseHeader(1, 50, 10, 90)
    payload = record(20) + record(44)
    piece = piece_of(15, 60, 3, success, header, payload, filtered=True)
    assert (piece.next_offset, piece.gaps) == (50, ())
    piece = piece_of(5, 60, 3, success, header, payload, filtered=True)
    assert piece.gaps == (Gap(5, 10, RETENTION),)
    assert piece_of(15, 60, 3, retry, header, b"", filtered=True) == Piece(50, None, (), 10)


def test_another_life_of_the_topic_has_none_of_the_range() -> None:
    """Messages of another life of the topic are a gap, even at the range's offsets."""
    header = PullMessageResponseHeader(1, 21, 0, 90, life=7)
    piece = piece_of(20, 30, 3, ResponseCode.SUCCESS, header, record(20), filtered=False)
    assert piece == Piece(30, None, (Gap(20, 30, MADE_AGAIN),))


@pytest.mark.parametrize(
    "payload",
    [record(20, 4), record(19), record(21) + record(21)],
    ids=["queue", "before", "twice"],
)
def test_an_answer_with_something_else_is_an_error(payload: bytes) -> None:
    """A message of another queue, before the range, or twice, is an error."""
    header = PullMessageResponseHeader(1, 22, 0, 90)
    with pytest.raises(RecordError, match="was answered with"):
        piece_of(20, 30, 3, ResponseCode.SUCCESS, header, payload, filtered=False)
