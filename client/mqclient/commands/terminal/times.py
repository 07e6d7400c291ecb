"""Points in time on the command line: local ones, unless a zone is given, as tables print them."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from dledger.errors import ConfigError
from mqclient import limits
from mqclient.admin.results import END

#: RocketMQ's form of a time, beside the one of ISO 8601.
_TIME_FORMATS = ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%d#%H:%M:%S")

Begin = Annotated[
    str,
    Parameter(
        name=["--begin", "-b", "--beginTimestamp"],
        allow_leading_hyphen=True,
        help="Stored at this time or later: now, milliseconds since 1970, or a time (local, if it "
        "has no zone).",
    ),
]
End = Annotated[
    str,
    Parameter(
        name=["--end", "-e", "--endTimestamp"],
        allow_leading_hyphen=True,
        help="Stored at this time or earlier.",
    ),
]


def parse_bound(text: str) -> int:
    """Where a span of time begins or ends, as `parse_time`; now is later than all messages."""
    timestamp_ms = parse_time(text)
    return limits.END_OF_TIME_MS if timestamp_ms == END else timestamp_ms


def parse_time(text: str) -> int:
    """Milliseconds since 1970, END for "now" and -1. ConfigError if the text is no time."""
    if text in ("now", str(END)):
        return END
    if text.isdecimal():
        return int(text)
    for form in (None, *_TIME_FORMATS):
        with suppress(ValueError):
            time = datetime.strptime(text, form) if form else datetime.fromisoformat(text)
            break
    else:
        raise ConfigError(
            f"the time {text!r} is not understood; it must be now, -1, milliseconds since 1970, or "
            "a time such as 2026-07-01#12:30:00:000 or 2026-07-01T12:30:00+02:00; without a zone "
            "it is local"
        )
    _check_local(text, time)
    return round(time.astimezone().timestamp() * 1000)


def _check_local(text: str, time: datetime) -> None:
    """Refuse a local time that does not exist, or exists twice: clocks are changed then."""
    if time.tzinfo is not None:
        return
    local = time.astimezone()
    if local.replace(tzinfo=None) != time:
        raise ConfigError(
            f"the local time {text!r} does not exist: clocks go on to {local.isoformat()} then"
        )
    second = time.replace(fold=1).astimezone()
    if second.utcoffset() != local.utcoffset():
        raise ConfigError(
            f"the local time {text!r} comes twice: give {local.isoformat()} or {second.isoformat()}"
        )
