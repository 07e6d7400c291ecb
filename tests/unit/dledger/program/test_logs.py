"""Log lines for programs and for people."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from typing import Literal

import pytest

from dledger.limits import LOG_LINES_AT_ONCE, LOG_LINES_OF_ALL
from dledger.observe import Values, get_logger
from dledger.program.logs import PeerLimit, configure_logging


def test_a_json_line_has_the_event_its_circumstances_and_its_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line is one JSON object on stderr; values that JSON can't carry are text."""
    logger = get_logger("broker.role")  # as modules do, before the configuration
    configure_logging("json", "info")
    logger.info("role changed", term=3, peer=("127.0.0.1", 1), node=b"n\xff", error=OSError("x"))
    captured = capsys.readouterr()
    assert captured.out == ""
    line = json.loads(captured.err)
    timestamp = line.pop("timestamp")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", timestamp)
    assert line == {
        "event": "role changed",
        "level": "info",
        "logger": "broker.role",
        "term": 3,
        "peer": ["127.0.0.1", 1],
        "node": "n\\xff",
        "error": "OSError('x')",
    }


def test_events_below_the_level_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    """Debug lines cost nothing when they are off."""
    configure_logging("json", "warning")
    get_logger("x").info("chatter")
    assert capsys.readouterr().err == ""


def test_an_exception_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The traceback is a value of the event."""
    configure_logging("json")
    try:
        raise LookupError("gone")
    except LookupError:
        get_logger("x").exception("request handler failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "LookupError: gone" in json.loads(line)["exception"]


def test_console_lines_name_the_logger_and_show_no_local_variables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Console lines name the logger, and show no local variables, such as bodies."""
    configure_logging("console")
    body = "the-secret"
    try:
        raise LookupError(str(len(body)))
    except LookupError:
        get_logger("broker.role").exception("request handler failed", code=11)
    shown = capsys.readouterr().err
    assert "request handler failed" in shown
    assert "broker.role" in shown
    assert "code=11" in shown
    assert "the-secret" not in shown.replace('body = "the-secret"', "")


def test_lines_go_to_what_is_standard_error_at_the_moment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A logger writes to the standard error of the moment, not to an earlier, closed one."""
    closed = io.StringIO()
    with monkeypatch.context() as earlier:
        earlier.setattr(sys, "stderr", closed)
        logger = get_logger("x")
        configure_logging("json", "info")
        logger.info("before")
    assert "before" in closed.getvalue()
    closed.close()
    logger.info("after")
    assert "after" in capsys.readouterr().err


@pytest.mark.parametrize("format_", ["json", "console"])
def test_a_terminal_does_not_obey_what_strangers_have_written(
    capsys: pytest.CaptureFixture[str], format_: Literal["json", "console"]
) -> None:
    """Control characters in texts and exceptions are escaped."""
    hostile = "a\x1b[2J\x9b31m\x07\u202eb"
    configure_logging(format_)
    try:
        raise LookupError(hostile)
    except LookupError:
        get_logger("x").exception("failed " + hostile, reason=hostile, peer=(hostile, 1))
    said = capsys.readouterr().err
    assert [c for c in said if not c.isprintable() and c != "\n"] == []
    assert "LookupError: a" in said


def test_lines_that_peers_cause_are_limited_by_kind_and_host() -> None:
    """Lines that peers cause are limited by kind and host; the next line counts the others."""
    now = [0.0]
    limit = PeerLimit(lambda: now[0])

    def written(event: str, peer: object = None) -> dict[str, object] | None:
        values = Values() if peer is None else Values(peer=peer)
        record = logging.makeLogRecord({"event": event, "msg": "%s", "args": values})
        return record.__dict__ if limit.filter(record) else None

    flood = [written("refused", ("10.0.0.1", port)) for port in range(1000)]
    assert sum(line is not None for line in flood) == LOG_LINES_AT_ONCE
    assert written("closed", ("10.0.0.1", 1)) is not None
    assert all(written("role changed") for _ in range(1000))
    other = written("refused", "10.0.0.2:77")
    assert other is not None
    assert other["left_out"] == 1000 - LOG_LINES_AT_ONCE
    many = [written("refused", (f"10.1.{n // 250}.{n % 250}", 1)) for n in range(1000)]
    assert sum(line is not None for line in many) <= LOG_LINES_OF_ALL
    now[0] = 3600
    assert written("refused", ("10.0.0.1", 1)) is not None


def test_a_second_configuration_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    """A second configuration prints no line twice."""
    configure_logging("console")
    configure_logging("json")
    get_logger("x").info("once")
    assert json.loads(capsys.readouterr().err)["event"] == "once"


def test_lines_of_other_libraries_are_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of other libraries, for example the Raft library, have the same form."""
    configure_logging("json")
    logging.getLogger("other").warning("%d things", 2)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["logger"]) == ("2 things", "warning", "other")
