"""A verdict for people: a table on the terminal, and one HTML file that needs no network."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dledger.observe import one_line
from dledger.verdict import form
from dledger.verdict.page import (
    NOTHING,
    card,
    command,
    document,
    joined,
    tag,
    text,
    tiles,
)
from dledger.verdict.sections import judged, violations, worst
from mqspark.limits import TERMINAL_VIOLATIONS_MAX
from mqspark.verdict import Counts, Judgement, Verdict, Violation


def print_table(verdict: Verdict, console: Console) -> None:
    """The counts, the properties, and the first violations of each."""
    counts = Table(title="Messages", show_header=False)
    for name, value in figures(verdict.counts):
        counts.add_row(Text(one_line(name)), value)
    console.print(counts)
    properties = Table(title="Properties")
    for column in ("#", "property", "checked", "violations", ""):
        properties.add_column(column, justify="right" if column in {"#", "checked"} else "left")
    for judgement in verdict.judgements:
        properties.add_row(
            str(judgement.number),
            judgement.title,
            f"{judgement.checked:,}",
            f"{judgement.count:,}",
            _word(judgement),
        )
    console.print(properties)
    for judgement in verdict.judgements:
        _print_violations(judgement, console)
    for note in verdict.notes:
        line = f"note: {one_line(note)}"
        console.print(line, style="dim", highlight=False, markup=False)


def _word(judgement: Judgement) -> str:
    word = form.word(holds=judgement.holds, unjudged=judgement.unjudged, checked=judgement.checked)
    styles = {"violated": "bold red", "holds": "green"}
    return f"[{styles[word]}]{word}[/]" if word in styles else word


def figures(counted: Counts) -> list[tuple[str, str]]:
    """The counts as (name, text), in the order in which people ask for them."""
    shown = []
    for name, value in counted.items():
        title = name.replace("_", " ")
        if isinstance(value, dict):
            shown += [(f"{title} on {node}", f"{count:,}") for node, count in value.items()]
        elif isinstance(value, bool):
            shown.append((title, "yes" if value else "NO"))
        else:
            shown.append((title, f"{value:,}"))
    return shown


def html_report(verdict: form.Verdict, replay: str) -> str:
    """The report as one HTML document. `replay`: the command that judges so again."""
    heading = form.headline(verdict.properties)
    counts = verdict.counts
    if "replicas" not in counts:
        acked, lost = counts.get("acknowledged", 0), counts.get("lost", 0)
        sentence = f"{acked:,} messages were acknowledged; {lost:,} of them are lost."
    else:
        sentence = (
            f"{counts['replicas']} replicas were judged by their own files, without a history."
        )
    notes = [tag("li", text(note)) for note in verdict.notes]
    body = [
        NOTHING if verdict.holds else card("What is wrong", worst(verdict.properties)),
        tiles((value, name, not name_is_bad(name, value)) for name, value in figures(counts)),
        card("What was judged", judged(verdict.properties)),
        violations(verdict.properties, replay),
        card("Notes", tag("ul", *notes)) if notes else NOTHING,
        card("Judge it again", command(replay)),
    ]
    summary = tag("p", text(sentence))
    return document("Audit", heading, summary, joined(body), good=verdict.holds)


def name_is_bad(name: str, value: str) -> bool:
    """Whether a count says that something is wrong."""
    wrong = {"lost", "phantom", "duplicated", "reordered"}
    return value == "NO" or (name in wrong and value != "0")


def _print_violations(judgement: Judgement, console: Console) -> None:
    """Two lines for each: no cell of a table, so that an id is one word on any terminal."""
    if judgement.holds:
        return
    console.print(f"\n[bold]Property {judgement.number} is violated[/]: {judgement.title}")
    for row in judgement.violations[:TERMINAL_VIOLATIONS_MAX]:
        where = "  ".join(_places(row))
        line = one_line(f"  {row['what']}  {where}")
        console.print(line, highlight=False, markup=False, soft_wrap=True)
        detail = Padding(Text(one_line(str(row["detail"] or ""))), (0, 0, 0, 4))
        console.print(detail)
    hidden = judgement.count - TERMINAL_VIOLATIONS_MAX
    if hidden > 0:
        console.print(f"  ... and {hidden:,} more; --report DIR writes them down")


def _places(row: Violation) -> list[str]:
    """Which message, whose replica, which queue and offset, and which positions, where known."""
    queue = "" if row["queue_id"] is None else f"{row['topic']}/{row['queue_id']}"
    if row["queue_offset"] is not None:
        queue += f" @{row['queue_offset']}"
    at = row["positions"] if isinstance(row["positions"], list) else []
    positions = f"position{'s' if len(at) > 1 else ''} {', '.join(map(str, at))}"
    places = [
        str(row["message_id"] or ""),
        "/".join(str(row[name]) for name in ("broker", "replica") if row[name]),
        queue,
        positions if at else "",
    ]
    return [place for place in places if place]
