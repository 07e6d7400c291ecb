"""Lines of the client library go to the standard library's loggers, which it never configures."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from dledger.observe import Values, event_of, get_logger, labelled, one_line

IN_AN_APPLICATION = """
import faulthandler, logging, sys
import mqclient, mqclient.blocking
from dledger.observe import get_logger
get_logger("mqclient.x").error("nobody configured anything")
assert not logging.getLogger().handlers and logging.getLogger().level == logging.WARNING
assert not faulthandler.is_enabled() and "structlog" not in sys.modules
logging.basicConfig(format="%(name)s %(levelname)s %(message)s", level="INFO")
logging.getLogger("app").info("mine")
get_logger("mqclient.x").info("role changed", term=3)
"""


def test_an_application_decides_what_is_shown() -> None:
    """An application's configuration decides about its lines and ours."""
    ran = subprocess.run(
        [sys.executable, "-c", IN_AN_APPLICATION], capture_output=True, text=True, check=True
    )
    assert ran.stderr.splitlines() == ["app INFO mine", "mqclient.x INFO role changed: term=3"]


def test_a_records_values_are_its_attributes(caplog: pytest.LogCaptureFixture) -> None:
    """A value is a record's attribute, as with `extra`, with an underscore if the name is taken."""
    get_logger("x").warning("100% lost", topic="T", name="n", args=(1,), message="m")
    (record,) = caplog.records
    assert record.getMessage() == "100% lost: topic='T' name='n' args=(1,) message='m'"
    told = record.__dict__
    assert (told["event"], told["topic"], told["name_"]) == ("100% lost", "T", "n")
    assert (told["args_"], told["message_"], record.name) == ((1,), "m", "x")
    assert (record.filename, record.funcName) == (
        "test_observe.py",
        "test_a_records_values_are_its_attributes",
    )
    assert event_of(record) == {
        **{"event": "100% lost", "topic": "T", "name": "n"},
        **{"args": (1,), "message": "m"},
    }


def test_every_name_of_a_value_can_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Values may have any name: `logging` refuses those of its records, so ours are renamed."""
    for name in logging.makeLogRecord({}).__dict__:
        if name != "exc_info":
            get_logger("x").info("event", **{name: 1})
    get_logger("x").info("event", message=1, asctime=1, taskName=1, event_=1)
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_an_event_without_values_is_its_message(caplog: pytest.LogCaptureFixture) -> None:
    """An event without values, and another library's message, are the message alone."""
    get_logger("x").info("50% done")
    logging.getLogger("y").info("%s of %d", "a", 2)
    assert [event_of(record) for record in caplog.records] == [
        {"event": "50% done"},
        {"event": "a of 2"},
    ]


def test_labels_stand_in_each_line_of_their_block(caplog: pytest.LogCaptureFixture) -> None:
    """Labels are in each line of their block; inner ones, and the line's own, count more."""
    with labelled(server="a", group=1), labelled(group=2):
        get_logger("x").info("in", term=1)
        get_logger("x").info("in", server="b")
    get_logger("x").info("out")
    assert [record.args or () for record in caplog.records] == [
        Values(server="a", group=2, term=1),
        Values(server="b", group=2),
        (),
    ]


def test_an_exception_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """A logged exception, handled or named, has its traceback."""
    try:
        raise LookupError("gone")
    except LookupError as error:
        get_logger("x").exception("failed")
        kept = error
    get_logger("x").error("failed", exc_info=kept)
    assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [kept, kept]


def test_one_line_escapes_what_a_terminal_obeys() -> None:
    """Control characters and line ends are escaped."""
    assert one_line("a\x1b[2J\n\u202eé") == "a\\x1b[2J\\n\\u202eé"
