"""The report as one HTML page without scripts; page.html and page.css beside this are its form."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

import msgspec

from mqchaos.limits import VIOLATIONS_SHOWN_MAX
from mqchaos.report.verdict import Property, Report


def render(
    report: Report,
    rows: Sequence[tuple[str, str, bool]],
    chart: str,
    events: Sequence[tuple[float, str]],
) -> str:
    """The page. `rows`: name, value, whether it is as it should be; `chart`: an <svg> element.

    `events`: what happened, each with its moment in seconds.
    """
    verdict = "Every property holds" if report.holds else "Not everything holds"
    worst = "no fault" if report.gap_worst_s is None else f"{report.gap_worst_s * 1000:.0f} ms"
    facts = [
        (f"{report.counts.acknowledged:,}", "sends acknowledged"),
        (f"{report.counts.lost:,}", "of them lost"),
        (f"{report.counts.duplicated:,}", "stored twice"),
        (f"{report.exceptions:,}", "exceptions to handle"),
        (worst, "longest pause in sending"),
    ]
    return _form("page.html").substitute(
        style=_form("page.css").template,
        title=escape(f"{report.scenario}: {verdict.lower()}"),
        heading=escape(verdict),
        state="good" if report.holds else "bad",
        scenario=escape(report.scenario),
        seconds=f"{report.seconds:.0f}",
        seed=report.seed,
        tiles="".join(f"<div><b>{value}</b><span>{name}</span></div>" for value, name in facts),
        chart=chart,
        counts="".join(_row(*row) for row in rows),
        properties="".join(_property(each) for each in report.properties),
        events="".join(
            f"<tr><td>{at_s:.2f} s</td><td>{escape(told)}</td></tr>" for at_s, told in events
        ),
        findings="".join(f'<p class="finding">{escape(text)}</p>' for text in report.findings),
        replay=escape(report.replay),
    )


def _form(name: str) -> Template:
    return Template(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _row(name: str, value: str, good: bool) -> str:
    state = "" if good else ' class="bad"'
    return f"<tr{state}><td>{escape(name)}</td><td>{escape(value)}</td></tr>"


def _property(each: Property) -> str:
    told = "".join(
        f"<li>{escape(msgspec.json.encode(violation).decode())}</li>"
        for violation in each.violations[:VIOLATIONS_SHOWN_MAX]
    )
    state, mark = ("good", "holds") if each.holds else ("bad", "violated")
    return (
        f"<tr><td>{each.number}</td><td>{escape(each.title)}{f'<ul>{told}</ul>' if told else ''}"
        f'</td><td>{each.checked:,}</td><td class="mark {state}">{mark}</td></tr>'
    )
