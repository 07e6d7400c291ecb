"""Logging: one event a line, for people or for programs.

An event is a short constant text; values that vary stand beside it. As JSON, a line has the keys
event, level, timestamp (ISO 8601, UTC, microseconds), logger, and the values. Lines go to stderr:
stdout belongs to a command's result.

Strangers can cause lines, and have texts in them. Lines with a `peer` are limited by their event
and the peer's host; the next one that is written says how many were `left_out`. What a terminal
would obey is escaped.

structlog is loaded by the first line or by `configure_logging`: loading takes as long as all the
rest of a short command that logs nothing.
"""

from __future__ import annotations

import faulthandler
import io
import logging
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TextIO, cast

from dledger.limits import (
    LOG_KINDS_MAX,
    LOG_LINES_AT_ONCE,
    LOG_LINES_OF_ALL,
    LOG_LINES_PER_S,
    LOG_TEXT_CHARACTERS_MAX,
)

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]
STDERR = 2


def configure_logging(
    format: LogFormat = "console",  # noqa: A002 -- what the option is called everywhere
    level: LogLevel = "info",
) -> None:
    """Set up logging for the process; call it once, first thing in `main`.

    A process that dies by a fault says where, too: by SIGBUS, say, since a file that is mapped into
    its memory has been cut, or the disk has lost a part of it.
    """
    import structlog  # noqa: PLC0415

    if not faulthandler.is_enabled():
        faulthandler.enable(STDERR)
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _name_logger,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        PeerLimit(time.monotonic),
    ]
    if format == "json":
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
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=lambda *_: _StderrLogger(),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> FilteringBoundLogger:
    """Return the logger of a module; pass `__name__`. It may be called before `configure_logging`.

    A program that configures nothing gets warnings, on stderr: structlog's own default would print
    everything to the program's standard output.
    """
    return cast("FilteringBoundLogger", _Logger(name))


class _Logger:
    """Asks structlog for the logger when it is used first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._made: FilteringBoundLogger | None = None

    def __getattr__(self, method: str) -> object:
        if self._made is None:
            self._made = _structlog_logger(self._name)
        found: object = getattr(self._made, method)
        return found


def _structlog_logger(name: str) -> FilteringBoundLogger:
    import structlog  # noqa: PLC0415

    if not structlog.is_configured():
        configure_logging("console", "warning")
    logger: FilteringBoundLogger = structlog.get_logger(logger_name=name)
    return logger


class _StderrLogger:
    """Prints to what is standard error at the moment: a test, or a program, may replace it."""

    def msg(self, message: str) -> None:
        """Print a line."""
        print(message, file=sys.stderr, flush=True)

    debug = info = warning = error = critical = exception = msg


def _name_logger(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Rename our value: structlog reserves the word `logger` where loggers are made."""
    if "logger_name" in event:
        event["logger"] = event.pop("logger_name")
    return event


def _cut_long_texts(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Leave the middle out of a very long text: it may quote what a client sent, in megabytes."""
    kept = LOG_TEXT_CHARACTERS_MAX // 2
    for name, value in event.items():
        if isinstance(value, str) and len(value) > LOG_TEXT_CHARACTERS_MAX:
            event[name] = f"{value[:kept]}... ({len(value)} characters) ...{value[-kept:]}"
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


def one_line(text: str) -> str:
    """Text that may hold anything, in one line and without control characters.

    A terminal would obey those: it clears its screen, or shows what was never printed.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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


class PeerLimit:
    """Limits lines that peers cause: by event and host, and by event for all hosts together."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._hosts: dict[tuple[str, str], _Allowed] = {}
        self._events: dict[str, _Allowed] = {}

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """The line, with what was left out before it; or none, by structlog's DropEvent."""
        peer = event.get("peer")
        if peer is None:
            return event
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
            import structlog  # noqa: PLC0415

            raise structlog.DropEvent
        if of_all.left_out:
            event["left_out"] = event.get("left_out", 0) + of_all.left_out
            of_all.left_out = 0
        return event


def _as_text(value: object) -> str:
    """How a value that JSON can't carry is shown: bytes as text, everything else by its repr."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return repr(value)
