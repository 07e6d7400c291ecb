"""Log lines of a block, as data."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from dledger.observe import event_of


class _Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = event_of(record) | {"log_level": record.levelname.lower()}
        if record.exc_info:
            line["exc_info"] = record.exc_info[1]
        self.lines.append(line)


@contextmanager
def capture_logs() -> Iterator[list[dict[str, object]]]:
    """Lines of every level: their `event`, `log_level` and values; nobody else gets them."""
    root = logging.getLogger()
    keeper, before, level = _Keeper(), root.handlers, root.level
    root.handlers = [keeper]
    root.setLevel(logging.DEBUG)
    try:
        yield keeper.lines
    finally:
        root.handlers = before
        root.setLevel(level)
