"""The last hour of a server's figures: bounded, and read a few rows at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dledger.metrics import limits
from dledger.metrics.history import History, history_answer
from dledger.remoting.bodies import HistoryBody, decode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    ViewHistoryHeader,
    ViewHistoryResponseHeader,
    decode_header,
    encode_header,
)


@given(rows_max=st.integers(1, 9), added=st.integers(0, 30), count=st.integers(1, 9))
def test_what_is_read_page_by_page_is_the_last_of_what_was_added(
    rows_max: int, added: int, count: int
) -> None:
    """Pages have the last rows in order, each once, whatever the sizes."""
    history = History(rows_max)
    for number in range(added):
        history.add(number * 1000, {"a": number, "b": -number})
    after, read = 0, []
    while True:
        after, rows = history.rows(after, count)
        if not rows:
            break
        assert len(rows) <= count
        read += rows
    kept = range(max(0, added - rows_max), added)
    assert [(row.at_ms, *row.values) for row in read] == [(n * 1000, n, -n) for n in kept]
    assert after == history.last == added


@given(after=st.integers(-(2**63), 2**63 - 1))
def test_a_number_of_another_life_begins_at_the_oldest_row(after: int) -> None:
    """A tool that read on while the server was started anew misses nothing of the new life."""
    history = History(4)
    for number in range(6):
        history.add(number, {"a": number})
    last, rows = history.rows(after)
    known = after if 2 <= after <= 6 else 2
    assert (last, [row.at_ms for row in rows]) == (6, list(range(known, 6)))


def test_an_hour_takes_no_more_memory_however_long_it_runs() -> None:
    """A figure of a row takes eight bytes, however long the hour runs."""
    history = History()
    figures = {f"figure_{number}": 1.5 for number in range(60)}
    for number in range(2 * limits.HISTORY_ROWS_MAX):
        history.add(number, figures)
        if number == 0:
            size = len(history._values)
    assert len(history._values) == size == 60 * limits.HISTORY_ROWS_MAX
    assert len(history._times) == limits.HISTORY_ROWS_MAX


def test_answers_are_pages_of_the_hour() -> None:
    """Answers are pages of the hour, and each says whether there is more."""
    history = History()
    for number in range(limits.HISTORY_ROWS_MAX):
        history.add(number, {"a": 0.5, "b": number})
    after, rows = 0, []
    while True:
        header = encode_header(ViewHistoryHeader(after=after))
        answer = history_answer(history, Command(RequestCode.VIEW_HISTORY, header))
        told, body = (
            decode_header(ViewHistoryResponseHeader, answer),
            decode_body(HistoryBody, answer.payload),
        )
        assert (body.names, len(body.times)) == (["a", "b"], len(body.rows))
        rows += body.rows
        after = told.last
        if told.last == told.newest:
            break
    assert rows == [[0.5, number] for number in range(limits.HISTORY_ROWS_MAX)]
    assert decode_body(HistoryBody, history_answer(History(), Command(9017)).payload).rows == []
