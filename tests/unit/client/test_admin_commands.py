"""The printed output of `mqadmin`, and how it reads offsets."""

from __future__ import annotations

import io
import json
import re
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dledger.errors import ConfigError
from dledger.observe import one_line
from dledger.program.ending import sentence
from mqclient import commands
from mqclient.admin.results import QueueStatus, TopicInfo
from mqclient.commands.messages import first_offset, parse_offset
from mqclient.commands.mqadmin import _fail
from mqclient.commands.terminal.output import (
    Table,
    leaderless,
    moment,
    print_json,
    print_table,
)
from mqclient.commands.terminal.times import parse_bound, parse_time
from mqclient.errors import Refused
from mqclient.limits import END_OF_TIME_MS


def printed(capsys: pytest.CaptureFixture[str], table: Table) -> list[str]:
    print_table(table)
    return capsys.readouterr().out.splitlines()


def test_numbers_are_right_aligned_and_texts_left(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing value is a dash in either; no line ends in blanks."""
    rows = [("Orders", 7, 0.5, "x"), ("T", 12345, None, ""), ("", None, 12.0, None)]
    assert printed(capsys, Table(("TOPIC", "QUEUES", "RATE", "NOTE"), rows, ["3 rows"])) == [
        "TOPIC   QUEUES   RATE  NOTE",
        "Orders       7   0.50  x",
        "T        12345      -  -",
        "-            -  12.00  -",
        "3 rows",
    ]


def test_truth_is_told_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """Truth values are printed in lower case, as RocketMQ's tools spell them."""
    assert printed(capsys, Table(("KEY", "VALUE"), [("enabled", True), ("name", "x")])) == [
        "KEY      VALUE",
        "enabled  true",
        "name     x",
    ]


def test_a_group_without_a_leader_gets_a_note() -> None:
    """A group without a leader gets one note, however many members it has."""
    members = [("b", "follower"), ("a", "leader"), ("b", "candidate"), ("a", "follower")]
    assert leaderless(members) == ["no leader: b takes no writes at the moment"]


@pytest.mark.parametrize("text", ["now", "-1"])
def test_no_message_is_later_than_now(text: str) -> None:
    """ "now" as a bound is the end of time: -e now leaves no message out, -b now shows none."""
    assert parse_bound(text) == END_OF_TIME_MS
    assert parse_bound("1000") == 1000


def test_no_value_is_ever_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Values are never cut, however long they are, and markup codes stay as text."""
    long = "[red]:smile:" + "x" * 5000
    lines = printed(capsys, Table(("BODY", "ID"), [(long, 1), ("short", 2)]))
    assert lines[1] == f"{long}   1"
    assert len(lines) == 3


def test_a_table_without_rows_is_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    """Headers over nothing would look like an error."""
    assert printed(capsys, Table(("TOPIC",), [], ["no topics"])) == ["no topics"]


def test_json_is_an_envelope_with_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """The result has the fields of its class."""
    print_json("topicList", (TopicInfo("Tüpic", "user"),))
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "command": "topicList",
        "result": [{"topic": "Tüpic", "kind": "user"}],
    }


def test_text_is_shown_in_one_line() -> None:
    """Control characters are escaped, letters of any script are not."""
    assert one_line("a\tb\nc\x1b[31m ünï 漢") == "a\\tb\\nc\\x1b[31m ünï 漢"


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_no_command_sends_control_characters_to_a_terminal(text: str) -> None:
    """Control characters are escaped in a table, below it, and in JSON, which means the same."""
    out = io.StringIO()
    with redirect_stdout(out):
        print_table(Table(("NAME",), [(text,), ("x",)], [text]))
        print_json("topicList", {"name": text})
    shown = out.getvalue()
    assert [c for c in shown if not c.isprintable() and c != "\n"] == []
    assert json.loads(shown[shown.rindex('{\n  "schema"') :])["result"] == {"name": text}


def test_never_is_a_dash() -> None:
    """A missing time is a dash; others have milliseconds and a zone."""
    assert moment(0) == "-"
    assert moment(1_700_000_000_123).partition(".")[2].startswith("123")


@pytest.mark.parametrize(
    ("text", "offset"),
    [("earliest", 10), ("0", 10), ("15", 15), ("99", 99), ("-3", 17), ("-50", 10)],
)
def test_an_offset_is_a_place_in_each_queue(text: str, offset: int) -> None:
    """An offset is counted from the end if negative, and never before the queue's beginning."""
    queue = QueueStatus("broker-a", 0, min_offset=10, max_offset=20, last_update_ms=0)
    assert first_offset(queue, parse_offset(text)) == offset


@pytest.mark.parametrize("text", ["", "latest", "1.5", "@5"])
def test_an_offset_that_is_not_understood_is_refused(text: str) -> None:
    """A wrong offset is refused, and never taken for the default."""
    with pytest.raises(ConfigError, match="earliest, a queue offset, or -N"):
        parse_offset(text)


@given(
    rows=st.lists(st.tuples(st.text("ab 漢\x1b", max_size=60), st.integers()), max_size=3),
    columns=st.integers(40, 90),
)
def test_a_table_fits_the_terminal_and_cuts_nothing(
    rows: list[tuple[str, int]], columns: int
) -> None:
    """A row that is too wide stands upright, with each value behind its header."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
        patch.setenv("COLUMNS", str(columns))
        print_table(Table(("NAME", "COUNT"), rows))
    lines = out.getvalue().splitlines()
    assert all(cell_len(line) <= columns for line in lines)
    shown = "".join(lines).replace(" ", "")
    for text, number in rows:
        assert str(number) in shown
        assert one_line(text).replace(" ", "") in shown


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2026-03-29T02:30:00", "does not exist: clocks go on"),
        ("2026-10-25#02:30:00:000", r"comes twice: give .*\+02:00 or .*\+01:00"),
    ],
)
def test_a_time_is_read_as_it_is_printed(
    monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    """A time is read as printed, local with the zone; an ambiguous one is refused."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for ms in (1_700_000_000_123, 1_780_000_000_000):
            assert parse_time(moment(ms)) == ms
        assert moment(1_780_000_000_000).endswith("+02:00")
        with pytest.raises(ConfigError, match=told):
            parse_time(text)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_commands_print_by_the_renderer_alone() -> None:
    """Commands print through the renderer alone, so whatever a server says is escaped."""
    folder = Path(commands.__file__).parent
    writes = re.compile(r"\bprint\(|sys\.stdout|Console\(|\becho\b")
    found = [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*.py"))
        if writes.search(path.read_text())
    ]
    assert found == ["terminal/output.py"]


def test_an_error_that_a_server_has_worded_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """An error is printed as one line, whatever the server's remark holds."""
    hostile = "a\x1b[2J\r\nb\x9b31m"
    with pytest.raises(SystemExit):
        _fail(sentence(Refused("x", "y", 1, hostile)), 1)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert [c for c in said if not c.isprintable() and c != "\n"] == []
