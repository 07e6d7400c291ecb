"""The report: its judgement, its table, its page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from dledger.errors import BadInput
from dledger.verdict.form import Exhibit, Property, Verdict, Violation, read_verdict
from mqchaos.history.events import Ack, Deliver, Event, Fail, Fault, Lead, Send
from mqchaos.report.chart import NARROW, draw
from mqchaos.report.drawing import nice_step
from mqchaos.report.measure import Timeline, timeline
from mqchaos.report.report import FILES, make_report, rows, write_report
from mqchaos.report.strips import distributions
from mqchaos.report.verdict import Report

S = 1_000_000_000
COUNTS: dict[str, int | bool | dict[str, int]] = {
    **{"sent": 3, "acknowledged": 3, "stored": {"n0": 3, "n1": 3}, "consumed": 3},
    **{"lost": 0, "phantom": 0, "duplicated": 0, "reordered": 0, "replicas_equal": True},
}
HOLDS = Verdict("ok", [Property(1, "nothing is lost", True, 3)], COUNTS)
VIOLATED = Verdict("violated", [Property(1, "nothing is lost", False, 3)], COUNTS)


def run_with_gap(gap_s: float, failures: list[str] | None = None) -> Timeline:
    events: list[Event] = [
        Lead(S // 2, "b", "n0", 1),
        *(Send(0, "p", str(number), "T", "k", 0, 0) for number in range(3)),
        Fault(2 * S, "kill", "b", "n0"),
        Lead(round(2.1 * S), "b", "n1", 2),
        Fault(round(2.5 * S), "restart", "b", "n0"),
        *(Fail(3 * S, "p", "x", True, words) for words in failures or []),
        Lead(4 * S, "b", "n1", 2),
    ]
    for number, at_s in enumerate([1.0, 2.0, 2.0 + gap_s]):
        events.append(Ack(round(at_s * S), "p", str(number), "T", "b", 0, 0, 0))
        events.append(Deliver(round(at_s * S), "c", "g", "T", "b", 0, 0, "", 0))
    return timeline(sorted(events, key=lambda event: event.t))


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


def test_bounds_are_stretched_where_the_network_is_the_kernels() -> None:
    """Bounds are stretched on the kernel's network, where a resend takes as long as the cut."""
    found = run_with_gap(1.1)
    stretched = make_report(found, HOLDS, "s", 1, "again", (), pauses_factor=2.0)

    assert not report_of(found).holds
    assert stretched.holds
    assert all(as_it_should for _, _, as_it_should in rows(stretched))
    assert not make_report(run_with_gap(3.1), HOLDS, "s", 1, "again", (), pauses_factor=2.0).holds


def test_a_slow_machine_is_told() -> None:
    """A report with stretched bounds says that the machine was slow."""
    told = make_report(run_with_gap(0.3), HOLDS, "s", 1, "again", (), slowness=3.0).notes
    assert told == [
        "the machine took 3.0 times as long for its work as it should; so were the bounds on "
        "pauses stretched"
    ]
    assert report_of(run_with_gap(0.3)).notes == []


def test_the_table_marks_what_is_not_as_it_should_be() -> None:
    """A replica that holds less than was acknowledged stands out."""
    short = Verdict("violated", [], COUNTS | {"stored": {"n0": 3, "n1": 2}})

    marked = [name for name, _, good in rows(report_of(run_with_gap(0.3), short)) if not good]

    assert marked == ["stored on n1"]


def test_all_files_are_written_and_the_page_needs_no_network(tmp_path: Path) -> None:
    """report.json reads back as the report; report.html names no other place and runs no script."""
    report = report_of(run_with_gap(0.3))

    write_report(tmp_path, report, run_with_gap(0.3), ["n0", "n1"])

    read_back = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=Report)
    page = (tmp_path / "report.html").read_text()
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    assert read_back == report
    assert not re.search(r"https?://|<script|@import|url\(", page)
    assert "Every property holds" in page


def test_what_the_run_says_is_text_on_the_page(tmp_path: Path) -> None:
    """An error's angle brackets are not taken for tags."""
    report = report_of(run_with_gap(0.3, ["SendFailed: <b>no</b>"]))

    write_report(tmp_path, report, run_with_gap(0.3), ["n0"])

    assert "&lt;b&gt;no&lt;/b&gt;" in (tmp_path / "report.html").read_text()


def test_a_violation_is_on_the_page_and_in_the_xml_with_the_command_that_repeats_it(
    tmp_path: Path,
) -> None:
    """A violation is on the page and in the XML, with the command that repeats the run."""
    shown = Violation("lost", "ID-1", detail="no such message", exhibit=Exhibit(["{}"]))
    verdict = Verdict("violated", [Property(1, "nothing is lost", False, 3, [shown], 1)], COUNTS)

    write_report(tmp_path, report_of(run_with_gap(0.3), verdict), run_with_gap(0.3), ["n0"])

    page, xml = ((tmp_path / name).read_text() for name in ("report.html", "junit.xml"))
    assert '<article id="p1-1">' in page
    assert page.count("./dev demo") == 2
    (failure,) = parsed(xml.split("?>")[1]).iter("failure")
    assert "ID-1" in (failure.text or "")
    assert "./dev demo" in (failure.text or "")


def test_what_was_not_in_time_fails_a_case_of_its_own(tmp_path: Path) -> None:
    """A late event fails a case of its own, and violates no property."""
    write_report(tmp_path, report_of(run_with_gap(1.6)), run_with_gap(1.6), ["n0"])

    suite = ET.parse(tmp_path / "junit.xml").getroot()[0]  # noqa: S314 - our own file
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["all is in time"]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")


def test_pauses_and_failovers_are_told_as_distributions() -> None:
    """Pauses and failovers have a median, a worst value and a mark each, by kind of fault."""
    told = distributions(run_with_gap(0.3))

    assert "sends paused" in told
    assert told.count("300 ms") >= 3
    assert "until another led" in told
    assert told.count('class="each"') == 2
    assert distributions(Timeline()) == ""


def test_the_chart_is_well_formed_and_shows_each_fault() -> None:
    """The drawing parses as XML, with a labelled line for every fault."""
    chart = parsed(draw(run_with_gap(0.3), ["n0", "n1"]))

    lines = [line.get("class") for line in chart.iter("line")]
    labels = [text.text for text in chart.iter("text")]
    assert lines.count("fault injected") == lines.count("fault healed") == 1
    assert "kill n0 · 2.0 s" in labels
    assert "longest pause 300 ms" in labels


@pytest.mark.parametrize("found", [Timeline(), timeline([Lead(0, "b", "n0", 1)])])
def test_a_run_without_any_event_can_be_drawn(found: Timeline) -> None:
    """A run that failed at once still leaves a page, for a wide screen and a narrow one."""
    assert parsed(draw(found, ["n0"])).tag == "svg"
    assert parsed(draw(found, ["n0"], NARROW)).tag == "svg"


@pytest.mark.parametrize(("largest", "step"), [(17.0, 5.0), (4000.0, 1000.0), (0.0, 0.001)])
def test_axes_have_round_numbers(largest: float, step: float) -> None:
    """About four steps of 1, 2 or 5 times a power of ten."""
    assert nice_step(largest, 4) == pytest.approx(step)


def test_an_audit_without_a_verdict_is_an_error_not_a_pass(tmp_path: Path) -> None:
    """A report without the audit's verdict is an error, and never holds."""
    with pytest.raises(BadInput, match="no readable verdict"):
        read_verdict(tmp_path)
