"""The results of a run: the audit's verdict and the measured times, for people and for programs.

`audit/verdict.json` is the audit's own file; `report.json` and `report.html` add what only the
harness knows: the timeline, the gaps at each kill, the exceptions that reached the application, and
the command that runs the same again. `junit.xml` is for CI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from statistics import median

import msgspec

from dledger.errors import BadInput
from dledger.verdict.form import Verdict
from dledger.verdict.junit import Case, cases, junit
from mqchaos.faults.kinds import KINDS, UNDONE
from mqchaos.limits import SLOWNESS_SHOWN_MIN
from mqchaos.report.measure import Timeline, failovers
from mqchaos.report.page import render
from mqchaos.report.verdict import (
    LATENCY_SHARES,
    Counts,
    GapFound,
    Latency,
    Report,
)

AUDIT_FOLDER = "audit"
"""Below the report's own folder: the audit's verdict.json and page."""
FILES = ("report.html", "report.json", "junit.xml")


def make_report(
    found: Timeline,
    verdict: Verdict,
    scenario: str,
    seed: int,
    replay: str,
    findings: Sequence[str],
    *,
    pauses_judged: bool = True,
    pauses_factor: float = 1.0,
    slowness: float = 1.0,
    notes: Sequence[str] = (),
) -> Report:
    """Put the verdict and the measured times together, and judge the times.

    Where faults overlap, no pause is one fault's: `pauses_judged` is False then. `pauses_factor`:
    of the bounds of their kinds. `slowness`: of the machine (`mqchaos.run.machine_speed`), which is
    shown, as are `notes`.
    """
    gaps = [
        GapFound(gap.fault.what, gap.fault.node, gap.fault.at_s, gap.length_s) for gap in found.gaps
    ]
    lengths = [gap.gap_s for gap in gaps]
    exceeded = [*findings, *(_too_long(gaps, pauses_factor) if pauses_judged else [])]
    if found.failed:
        exceeded.append(
            f"{found.failed} sends ended in an exception, the first: {found.failures[0]}"
        )
    quantiles_s = found.latencies.quantiles(LATENCY_SHARES)
    return Report(
        holds=verdict.holds and not exceeded,
        scenario=scenario,
        seed=seed,
        replay=replay,
        seconds=found.end_s,
        counts=_counts(verdict),
        properties=verdict.properties,
        gaps=gaps,
        gap_median_s=median(lengths) if lengths else None,
        gap_worst_s=max(lengths, default=None),
        exceptions=found.failed,
        findings=exceeded,
        pauses_judged=pauses_judged,
        pauses_factor=pauses_factor,
        slowness=slowness,
        failovers=failovers(found),
        latency=Latency(quantiles_s) if quantiles_s else None,
        notes=[*notes, *verdict.notes, *_about_the_machine(slowness, pauses_judged)],
    )


def _about_the_machine(slowness: float, pauses_judged: bool) -> list[str]:
    """Nothing of one that is as fast as the bounds want it."""
    if slowness < SLOWNESS_SHOWN_MIN:
        return []
    so = (
        "so were the bounds on pauses stretched"
        if pauses_judged
        else "pauses may be as much longer"
    )
    return [f"the machine took {slowness:.1f} times as long for its work as it should; {so}"]


def _counts(verdict: Verdict) -> Counts:
    try:
        return msgspec.convert(verdict.counts, Counts)
    except msgspec.ValidationError as error:
        raise BadInput(f"the audit's counts are not those of a run: {error}") from error


def _too_long(gaps: Sequence[GapFound], factor: float) -> list[str]:
    """The pauses that were too long, as text for each kind of fault."""
    found = []
    for kind in KINDS.values():
        lengths = [gap.gap_s for gap in gaps if gap.fault == kind.name]
        for what, length_s, bound_s in (
            ("median", median(lengths or [0.0]), factor * kind.gap_median_s_max),
            ("worst", max(lengths, default=0.0), factor * kind.gap_worst_s_max),
        ):
            if length_s > bound_s:
                found.append(
                    f"the {what} gap at a {kind.name} is {length_s:.2f} s, above {bound_s:g} s"
                )
    return found


def rows(report: Report) -> list[tuple[str, str, bool]]:
    """The table: name, value, and whether the value is as it should be."""
    counts = report.counts
    stored = [
        (f"stored on {node}", f"{count:,}", count >= counts.acknowledged)
        for node, count in sorted(counts.stored.items())
    ]
    gaps = [
        (
            f"longest send gap at the {gap.fault} of {gap.node} ({gap.at_s:.1f} s)",
            f"{gap.gap_s * 1000:.0f} ms",
            gap.gap_s <= report.pauses_factor * KINDS[gap.fault].gap_worst_s_max
            or not report.pauses_judged,
        )
        for gap in report.gaps
    ]
    equal = counts.replicas_equal
    whether = [] if equal is None else [("replicas equal", "yes" if equal else "no", equal)]
    return [
        ("sent", f"{counts.sent:,}", True),
        ("acknowledged", f"{counts.acknowledged:,}", counts.acknowledged == counts.sent),
        *stored,
        ("consumed", f"{counts.consumed:,}", counts.consumed >= counts.acknowledged),
        ("lost", f"{counts.lost:,}", counts.lost == 0),
        ("phantom", f"{counts.phantom:,}", counts.phantom == 0),
        ("duplicated", f"{counts.duplicated:,}", counts.duplicated == 0),
        ("reordered", f"{counts.reordered:,}", counts.reordered == 0),
        *whether,
        *gaps,
    ]


def write_report(directory: Path, report: Report, found: Timeline, nodes: Sequence[str]) -> None:
    """Write report.json, report.html and junit.xml."""
    data = msgspec.json.format(msgspec.json.encode(report), indent=2)
    (directory / "report.json").write_bytes(data)
    page = render(report, rows(report), found, nodes, events(found))
    (directory / "report.html").write_text(page, encoding="utf-8")
    (directory / "junit.xml").write_bytes(junit_of(report))


def junit_of(report: Report) -> bytes:
    """A test case for each property, one for the exceptions, one for all that was not in time."""
    failed = [text for text in report.findings if "exception" in text]
    others = [text for text in report.findings if text not in failed]
    replay = f"run it again: {report.replay}"
    measured = [
        Case(name, "run", "; ".join(wrong), "\n".join([*wrong, replay]) if wrong else "")
        for name, wrong in (
            ("no exception reaches the application", failed),
            ("all is in time", others),
        )
    ]
    judged = [
        replace(case, evidence=f"{case.evidence}\n\n{replay}") if case.failure else case
        for case in cases(report.properties)
    ]
    suite = f"mqchaos {report.scenario} seed {report.seed}"
    return junit(suite, report.seconds, [*judged, *measured])


def events(found: Timeline) -> list[tuple[float, str]]:
    """The events of a run, in order: faults, their ends, and who led from when."""
    events: list[tuple[float, str]] = []
    hurt_at_s: float | None = None
    for mark in sorted([*found.leads, *found.faults], key=attrgetter("at_s")):
        if mark.what == "lead":
            after = "" if hurt_at_s is None else f", {(mark.at_s - hurt_at_s) * 1000:.0f} ms later"
            events.append((mark.at_s, f"{mark.node} leads, term {mark.term}{after}"))
        elif mark.what in KINDS:
            events.append((mark.at_s, f"{mark.node} {KINDS[mark.what].words}"))
        elif mark.what in UNDONE:
            events.append((mark.at_s, f"{mark.node} {UNDONE[mark.what].words_undone}"))
        else:
            events.append((mark.at_s, f"{mark.node}: {mark.what}"))
        hurt_at_s = mark.at_s if mark.what in KINDS else None
    return events
