"""The last hour of a server's figures, for who has no Prometheus. Pure.

A ring of rows: each has the time and one number for each figure, and a row replaces the oldest one
once there are `HISTORY_ROWS_MAX`. So the memory is the same for ever. Figures whose names end with
`_total` only grow while the process runs; a tool shows how fast. Rows are numbered from 1 on, so
that they can be read a few at a time while others come.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dledger.metrics import limits
from dledger.remoting.bodies import HistoryBody, encode_body
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    ViewHistoryHeader,
    ViewHistoryResponseHeader,
    decode_header,
    encode_header,
)


class Row(NamedTuple):
    """The figures of a server at one time."""

    at_ms: int
    values: Sequence[float]


class History:
    """The ring of one server."""

    def __init__(self, rows_max: int = limits.HISTORY_ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._values = array("d")
        self._times = array("q", bytes(8 * rows_max))
        self.names: tuple[str, ...] = ()
        #: The number of the newest row; 0 if there is none.
        self.last = 0

    def add(self, at_ms: int, figures: Mapping[str, float]) -> None:
        """Keep what the figures are now. The first row says which figures there are."""
        if not self.names:
            self.names = tuple(figures)
            self._values = array("d", bytes(8 * len(figures) * self._rows_max))
        place, width = self.last % self._rows_max, len(self.names)
        row = array("d", (figures[name] for name in self.names))
        self._values[place * width : (place + 1) * width] = row
        self._times[place] = at_ms
        self.last += 1

    def rows(self, after: int, count: int = limits.HISTORY_ROWS_AT_ONCE) -> tuple[int, list[Row]]:
        """Rows behind the one with the number `after`, the oldest first, `count` at most; and the
        number of the last of them. With a number of another life of the process: all that is here.
        """
        oldest = max(0, self.last - self._rows_max)
        first = max(after, oldest) if 0 <= after <= self.last else oldest
        last, width = min(self.last, first + count), len(self.names)
        found = []
        for number in range(first, last):
            place = number % self._rows_max
            values = self._values[place * width : (place + 1) * width]
            found.append(Row(self._times[place], values.tolist()))
        return last, found


def history_answer(history: History, request: Command) -> Command:
    """The answer to VIEW_HISTORY, a page of rows."""
    last, rows = history.rows(decode_header(ViewHistoryHeader, request).after or 0)
    times, values = [row.at_ms for row in rows], [list(row.values) for row in rows]
    header = ViewHistoryResponseHeader(last=last, newest=history.last)
    body = HistoryBody(list(history.names), times, values)
    return request.reply(ext=encode_header(header), body=encode_body(body))
