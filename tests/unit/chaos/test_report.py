"""The report: its judgement, its table, its page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from dledger.errors import BadInput
from mqchaos.report.chart import draw, nice_step
from mqchaos.report.measure import Mark, Timeline
from mqchaos.report.report import make_report, read_verdict, rows, write_report
from mqchaos.report.verdict import Counts, Property, Report, Verdict

COUNTS = Counts(3, 3, {"n0": 3, "n1": 3}, 3, 0, 0, 0, 0, True)
HOLDS = Verdict("ok", [Property(1, "nothing is lost", True, 3)], COUNTS)
VIOLATED = Verdict("violated", [Property(1, "nothing is lost", False, 3)], COUNTS)


def run_with_gap(gap_s: float, failures: list[str] | None = None) -> Timeline:
    acked = [1.0, 2.0, 2.0 + gap_s]
    return Timeline(
        sent=acked,
        acked=acked,
        delivered=acked,
        faults=[Mark(2.0, "kill", "n0"), Mark(2.5, "restart", "n0")],
        leads=[Mark(0.5, "lead", "n0", 1), Mark(2.1, "lead", "n1", 2)],
        failures=failures or [],
        end_s=4.0,
    )


def parsed(chart: str) -> ET.Element:
    return ET.fromstring(chart)  # noqa: S314 - our own drawing


def report_of(found: Timeline, verdict: Verdict = HOLDS, findings: tuple[str, ...] = ()) -> Report:
    return make_report(found, verdict, "main-job", 1, "./dev demo", findings)


def test_a_run_holds_only_if_audit_gaps_and_application_all_do() -> None:
    """Each ground by itself is enough to fail a run."""
    assert report_of(run_with_gap(0.3)).holds
    assert not report_of(run_with_gap(0.3), VIOLATED).holds
    assert not report_of(run_with_gap(0.3), findings=("a consumer did not leave",)).holds
    assert not report_of(run_with_gap(0.3, ["SendUnknown: no answer"])).holds


@pytest.mark.parametrize(("gap_s", "words"), [(0.7, ["median"]), (1.6, ["median", "worst"])])
def test_gaps_above_their_bounds_are_findings(gap_s: float, words: list[str]) -> None:
    """The median may be 0.6 s, the worst 1.5 s."""
    findings = report_of(run_with_gap(gap_s)).findings

    assert len(findings) == len(words)
    assert all(word in text for word, text in zip(words, findings, strict=True))


def test_the_table_marks_what_is_not_as_it_should_be() -> None:
    """A replica that holds less than was acknowledged stands out."""
    short = Verdict("violated", [], msgspec.structs.replace(COUNTS, stored={"n0": 3, "n1": 2}))

    marked = [name for name, _, good in rows(report_of(run_with_gap(0.3), short)) if not good]

    assert marked == ["stored on n1"]


def test_both_files_are_written_and_the_page_needs_no_network(tmp_path: Path) -> None:
    """report.json reads back as the report; report.html names no other place and runs no script."""
    report = report_of(run_with_gap(0.3))

    write_report(tmp_path, report, run_with_gap(0.3), ["n0", "n1"])

    read_back = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=Report)
    page = (tmp_path / "report.html").read_text()
    assert read_back == report
    assert not re.search(r"https?://|<script|@import|url\(", page)
    assert "Every property holds" in page


def test_what_the_run_says_is_text_on_the_page(tmp_path: Path) -> None:
    """An error's angle brackets are not taken for tags."""
    report = report_of(run_with_gap(0.3, ["SendFailed: <b>no</b>"]))

    write_report(tmp_path, report, run_with_gap(0.3), ["n0"])

    assert "&lt;b&gt;no&lt;/b&gt;" in (tmp_path / "report.html").read_text()


def test_the_chart_is_well_formed_and_shows_each_fault() -> None:
    """The drawing parses as XML, with a labelled line for every fault."""
    chart = parsed(draw(run_with_gap(0.3), ["n0", "n1"]))

    lines = [line.get("class") for line in chart.iter("line")]
    labels = [text.text for text in chart.iter("text")]
    assert lines.count("fault injected") == lines.count("fault healed") == 1
    assert "kill n0 · 2.0 s" in labels
    assert "longest pause 300 ms" in labels


def test_a_run_without_any_event_can_be_drawn() -> None:
    """A run that failed at once still leaves a page."""
    assert parsed(draw(Timeline(), ["n0"])).tag == "svg"


@pytest.mark.parametrize(("largest", "step"), [(17.0, 5.0), (4000.0, 1000.0), (0.0, 0.001)])
def test_axes_have_round_numbers(largest: float, step: float) -> None:
    """About four steps of 1, 2 or 5 times a power of ten."""
    assert nice_step(largest, 4) == pytest.approx(step)


def test_an_audit_without_a_verdict_is_an_error_not_a_pass(tmp_path: Path) -> None:
    """Nothing is reported as holding unless the audit said so."""
    with pytest.raises(BadInput, match="no readable verdict"):
        read_verdict(tmp_path)
