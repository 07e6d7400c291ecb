"""Logging: one event a line, for people or for programs.

An event is a short constant text; values that vary stand beside it. As JSON, a line has the keys
event, level, timestamp (ISO 8601, UTC, microseconds), logger, and the values. Lines go to stderr:
stdout belongs to a command's result.

structlog is loaded by the first line or by `configure_logging`: loading takes as long as all the
rest of a short command that logs nothing.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
from typing import TYPE_CHECKING, Literal, cast

from dledger.limits import LOG_TEXT_CHARACTERS_MAX

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
    ]
    if format == "json":
        processors += [
            structlog.processors.format_exc_info,
            _cut_long_texts,
            structlog.processors.JSONRenderer(default=_as_text),
        ]
    else:
        processors.append(_cut_long_texts)
        processors.append(
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                # Without local variables, which would put message bodies into the log.
                exception_formatter=structlog.dev.plain_traceback,
            )
        )
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


def _as_text(value: object) -> str:
    """How a value that JSON can't carry is shown: bytes as text, everything else by its repr."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return repr(value)
