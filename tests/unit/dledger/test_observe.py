"""Log lines as programs read them."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator

import pytest
import structlog

from dledger.observe import configure_logging, get_logger


@pytest.fixture(autouse=True)
def _own_configuration() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_a_json_line_has_the_event_its_circumstances_and_its_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One object a line, on stderr; what JSON can't carry is shown as text."""
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
    """A message's body is nobody's business but its consumer's."""
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
    """Whoever configured logging may have had another one, which is closed by now."""
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
