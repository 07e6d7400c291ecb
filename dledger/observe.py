"""Logging as a library does it: events with values, to the standard library's loggers.

An event is a short constant text; values that vary stand beside it. `get_logger(__name__)` writes
to the logger of that name in `logging`, and nothing here configures one: an application decides
what is shown. A record's message is "event: name=value ...". Its values are attributes of the
record, too, as with `extra`: formatters for JSON find them there. Our own programs call
`dledger.program.logs.configure_logging`.

Strangers have texts in lines; `one_line` escapes what a terminal would obey.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_LABELS: ContextVar[dict[str, object]] = ContextVar("labels", default={})  # noqa: B039
_CALLER = 3
"""How many frames are between `logging` and the code that logs: these two methods, and itself."""
_TAKEN: Final = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}

# A program that configures no logging is not written to.
for _package in ("dledger", "mqbroker", "mqchaos", "mqclient", "mqlocal", "mqnamesrv", "mqspark"):
    logging.getLogger(_package).addHandler(logging.NullHandler())


class Values(dict[str, object]):
    """The values of an event, written as "name=value" when the record's message is made."""

    def __str__(self) -> str:
        return " ".join(f"{name}={value!r}" for name, value in self.items())


class Logger:
    """Writes events to a logger of the standard library."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **values: object) -> None:
        """An event that only developers need."""
        self._write(logging.DEBUG, event, values)

    def info(self, event: str, **values: object) -> None:
        """A change that was expected."""
        self._write(logging.INFO, event, values)

    def warning(self, event: str, *, exc_info: object = None, **values: object) -> None:
        """Something that went wrong, and is tried again or made good.

        With the traceback of `exc_info`, if it is an exception.
        """
        self._write(logging.WARNING, event, values, exc_info)

    def error(self, event: str, *, exc_info: object = None, **values: object) -> None:
        """Something that somebody must act on; `exc_info` as above."""
        self._write(logging.ERROR, event, values, exc_info)

    def exception(self, event: str, **values: object) -> None:
        """An error, with the traceback of the exception that is handled at the moment."""
        self._write(logging.ERROR, event, values, sys.exc_info()[1])

    def _write(
        self, level: int, event: str, values: dict[str, object], exc_info: object = None
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        shown = Values(_LABELS.get() | values)
        extra = {f"{name}_" if name in _TAKEN else name: value for name, value in shown.items()}
        message, args = (event.replace("%", "%%") + ": %s", (shown,)) if shown else (event, ())
        self._logger.log(
            level,
            message,
            *args,
            extra={"event": event, **extra},
            exc_info=exc_info if isinstance(exc_info, BaseException) else None,
            stacklevel=_CALLER,
        )


def get_logger(name: str) -> Logger:
    """Return the logger of a module; pass `__name__`."""
    return Logger(name)


def event_of(record: logging.LogRecord) -> dict[str, object]:
    """A record's event, and its values by their own names; another library's, by its message."""
    if isinstance(record.args, Values):
        return {"event": record.__dict__["event"], **record.args}
    return {"event": record.getMessage()}


@contextmanager
def labelled(**labels: object) -> Iterator[None]:
    """Add values to all events of the block, and of the tasks that it starts."""
    before = _LABELS.set(_LABELS.get() | labels)
    try:
        yield
    finally:
        _LABELS.reset(before)


def one_line(text: str) -> str:
    """Text that may hold anything, in one line and without control characters.

    A terminal would obey those: it clears its screen, or shows what was never printed.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
