"""Logging of our own programs: one event a line on stderr, for people or for programs.

As JSON, a line has the keys event, level, timestamp (ISO 8601, UTC, microseconds), logger, and the
event's values. Stdout belongs to a command's result.

Strangers can cause lines, and have texts in them. Lines with a `peer` are limited by their event
and the peer's host; the next one that is written says how many were `left_out`. What a terminal
would obey is escaped.

structlog draws the lines. It is loaded by the first one: loading takes as long as all the rest of a
short command that logs nothing.
"""

from __future__ import annotations

import faulthandler
import io
import logging
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TextIO

from dledger.limits import (
    LOG_KINDS_MAX,
    LOG_LINES_AT_ONCE,
    LOG_LINES_OF_ALL,
    LOG_LINES_PER_S,
    LOG_TEXT_CHARACTERS_MAX,
)
from dledger.observe import Values, event_of, one_line
from dledger.program.extras import without

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]
STDERR = 2


def configure_logging(
    format: LogFormat = "console",  # noqa: A002 -- what the option is called everywhere
    level: LogLevel = "info",
) -> None:
    """Set up logging for the process; call it once, first thing in `main`.

    A process that dies by a fault says where, too: by SIGBUS, for example, since a file that is
    mapped into its memory has been cut, or the disk has lost a part of it.
    """
    if not faulthandler.is_enabled():
        faulthandler.enable(STDERR)
    root = logging.getLogger()
    for earlier in [handler for handler in root.handlers if isinstance(handler, StderrHandler)]:
        root.removeHandler(earlier)
    handler = StderrHandler(format)
    root.addHandler(handler)
    if level in {"debug", "info"}:  # imports structlog before the loop runs
        handler.formatter = _formatter(format)
    root.setLevel(level.upper())


class StderrHandler(logging.Handler):
    """Prints to what is standard error at the moment: a test, or a program, may replace it."""

    def __init__(self, format_: LogFormat) -> None:
        super().__init__()
        self.addFilter(PeerLimit(time.monotonic))
        self._format = format_

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record as one line."""
        try:
            if self.formatter is None:
                self.formatter = _formatter(self._format)
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


def _formatter(format_: LogFormat) -> logging.Formatter:
    # structlog would take 4 MB for tracebacks in colours, and we write them ourselves.
    with without("rich", "better_exceptions"):
        import structlog  # noqa: PLC0415

    processors: list[Processor] = [
        _of_record,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
    ]
    if format_ == "json":
        processors += [
            structlog.processors.format_exc_info,
            _cut_long_texts,
            structlog.processors.JSONRenderer(default=_as_text),
        ]
    else:
        processors += [
            _cut_long_texts,
            _escape_texts,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=_write_traceback
            ),
        ]
    return structlog.stdlib.ProcessorFormatter(processors=processors, pass_foreign_args=True)


def _of_record(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The event's values, and the name of its logger."""
    record: logging.LogRecord = event["_record"]
    values = event.pop("positional_args")
    fields = {"event": record.__dict__["event"], **values} if isinstance(values, Values) else {}
    if isinstance(more := getattr(record, "left_out", None), int):
        fields["left_out"] = more
    return {**event, **fields, "logger": record.name}


def _cut_long_texts(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Leave the middle out of a very long text: it may quote what a client sent, in megabytes."""
    half = LOG_TEXT_CHARACTERS_MAX // 2
    for name, value in event.items():
        if isinstance(value, str) and len(value) > LOG_TEXT_CHARACTERS_MAX:
            event[name] = f"{value[:half]}... ({len(value)} characters) ...{value[-half:]}"
    return event


def _escape_texts(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Leave nothing in texts that a terminal would obey."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = one_line(value)
    return event


def _write_traceback(
    target: TextIO,
    error: tuple[type[BaseException], BaseException, TracebackType | None],
) -> None:
    """Without local variables, which would put message bodies into the log."""
    import structlog  # noqa: PLC0415

    written = io.StringIO()
    structlog.dev.plain_traceback(written, error)
    target.write("\n".join(map(one_line, written.getvalue().split("\n"))))


class _Allowed:
    """How many lines may be written at once, and how many were left out since the last."""

    def __init__(self, lines: float, now_s: float) -> None:
        self.lines = lines
        self.at_s = now_s
        self.left_out = 0

    def take(self, most: float, per_s: float, now_s: float) -> bool:
        """Whether one more may be written."""
        self.lines = min(most, self.lines + (now_s - self.at_s) * per_s)
        self.at_s = now_s
        if self.lines < 1:
            return False
        self.lines -= 1
        return True


class PeerLimit(logging.Filter):
    """Limits lines that peers cause: by event and host, and by event for all hosts together."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._hosts: dict[tuple[str, str], _Allowed] = {}
        self._events: dict[str, _Allowed] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written; a line after some that were not gets their number."""
        event = event_of(record)
        peer = event.get("peer")
        if peer is None:
            return True
        if isinstance(peer, tuple | list):
            host = str(peer[0]) if peer else ""
        else:
            host = str(peer).rpartition(":")[0] or str(peer)
        name, now_s = str(event["event"]), self._clock_s()
        if len(self._hosts) >= LOG_KINDS_MAX or len(self._events) >= LOG_KINDS_MAX:
            self._hosts.clear()
            self._events.clear()
        of_all = self._events.setdefault(name, _Allowed(LOG_LINES_OF_ALL, now_s))
        of_host = self._hosts.setdefault((name, host), _Allowed(LOG_LINES_AT_ONCE, now_s))
        share = LOG_LINES_OF_ALL / LOG_LINES_AT_ONCE
        if not (
            of_host.take(LOG_LINES_AT_ONCE, LOG_LINES_PER_S, now_s)
            and of_all.take(LOG_LINES_OF_ALL, LOG_LINES_PER_S * share, now_s)
        ):
            of_all.left_out += 1
            return False
        if of_all.left_out:
            before = event.get("left_out")
            record.left_out = of_all.left_out + (before if isinstance(before, int) else 0)
            of_all.left_out = 0
        return True


def _as_text(value: object) -> str:
    """How a value that JSON can't carry is shown: bytes as text, everything else by its repr."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return repr(value)
