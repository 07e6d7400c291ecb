"""Verdicts as people see them."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from dledger.verdict.form import read_verdict, write_verdict
from mqspark.report import html_report, print_table
from mqspark.verdict import Judgement, Verdict

VIOLATION: dict[str, str | int | bool | list[int] | None] = {
    "what": "lost",
    "message_id": "ID<1>" + 27 * "0",
    "broker": "broker-a",
    "replica": "n1",
    "topic": "Orders",
    "queue_id": 3,
    "queue_offset": 17,
    "positions": [4096],
    "detail": "no such message",
}
VIOLATED = Verdict(
    judgements=[
        Judgement(1, "Nothing is lost", checked=30, count=2, violations=[VIOLATION]),
        Judgement(3, "One name", checked=10, count=0, violations=[]),
    ],
    counts={"sent": 10, "stored": {"broker-a/n1": 9}, "replicas_equal": False},
    notes=["n2 is <not> judged"],
)
OK = Verdict(judgements=VIOLATED.judgements[1:], counts={"sent": 10}, notes=[])


def test_a_verdict_holds_if_every_property_does() -> None:
    """A verdict with one violated property does not hold."""
    assert (OK.holds, VIOLATED.holds) == (True, False)
    assert (OK.written().verdict, VIOLATED.written().holds) == ("ok", False)


def test_the_json_has_what_a_program_needs(tmp_path: Path) -> None:
    """The JSON has for each property whether it holds, its count, and its violations."""
    write_verdict(tmp_path, VIOLATED.written())
    written = json.loads((tmp_path / "verdict.json").read_bytes())
    assert written["verdict"] == "violated"
    first = written["properties"][0]
    assert (first["number"], first["holds"], first["count"]) == (1, False, 2)
    assert first["violations"] == [VIOLATION | {"exhibit": None}]
    assert read_verdict(tmp_path) == VIOLATED.written()


def test_a_terminal_is_shown_what_messages_hold_and_does_not_obey_it() -> None:
    """A terminal gets texts of messages without control characters or markup."""
    hostile = "a\x1b[2J\x9b31m\u202e\n[bold]b[/]"
    row = {name: hostile if isinstance(value, str) else value for name, value in VIOLATION.items()}
    verdict = Verdict(
        judgements=[Judgement(1, "Nothing is lost", checked=1, count=1, violations=[row])],
        counts={"stored": {hostile: 9}},
        notes=[hostile],
    )
    shown = io.StringIO()
    print_table(verdict, Console(file=shown, width=400))
    text = shown.getvalue()
    assert [c for c in text if not c.isprintable() and c != "\n"] == []
    assert text.count("[bold]b[/]") >= 4


def test_the_page_needs_no_network_and_escapes_what_it_shows() -> None:
    """The page is one file without addresses, and escapes what it shows."""
    page = html_report(VIOLATED.written(), "mqaudit --history 'a&b'")
    assert "http:" not in page
    assert "src=" not in page
    assert "ID&lt;1&gt;" in page
    assert "n2 is &lt;not&gt; judged" in page
    assert "Orders/3 offset 17" in page
    assert "a&amp;b" in page
    assert "and 1 more" in page


def test_the_terminal_names_message_replica_and_positions() -> None:
    """A user at a terminal sees the same; on a narrow one, too, an id is one word."""
    out = io.StringIO()
    print_table(VIOLATED, Console(file=out, width=80))
    text = out.getvalue()
    for piece in (
        "violated",
        str(VIOLATION["message_id"]),
        "broker-a/n1",
        "Orders/3 @17",
        "4096",
        "no such message",
    ):
        assert piece in text, piece
