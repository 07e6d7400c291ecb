"""A verdict for people: a table on the terminal, and one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rich.console import Console
from rich.table import Table

from mqspark.limits import TERMINAL_VIOLATIONS_MAX
from mqspark.verdict import Judgement, Verdict

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #c9252d; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.verdict { display: inline-block; padding: .1rem .7rem; border-radius: 1rem; color: #fff; }
.good { background: var(--good); } .bad { background: var(--bad); }
.figures { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1.2rem 0; }
.figure { background: var(--soft); border-radius: .5rem; padding: .5rem .9rem; min-width: 6.5rem; }
.figure b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.figure span { font-size: .8rem; opacity: .75; }
table { border-collapse: collapse; width: 100%; } .scroll { overflow-x: auto; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th { font-size: .8rem; opacity: .75; } td.number { text-align: right; }
td.number, code { font-variant-numeric: tabular-nums; font-family: ui-monospace, monospace; }
td { vertical-align: top; } .holds { color: var(--good); } .violated { color: var(--bad); }
"""


def print_table(verdict: Verdict, console: Console) -> None:
    """The counts, the properties, and the first violations of each."""
    counts = Table(title="Messages", show_header=False)
    for name, value in figures(verdict):
        counts.add_row(name, value)
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
            "[green]holds[/]" if judgement.holds else "[bold red]VIOLATED[/]",
        )
    console.print(properties)
    for judgement in verdict.judgements:
        _print_violations(judgement, console)
    for note in verdict.notes:
        console.print(f"note: {note}", style="dim", highlight=False)


def figures(verdict: Verdict) -> list[tuple[str, str]]:
    """The counts as (name, text), in the order in which people ask for them."""
    shown = []
    for name, value in verdict.counts.items():
        title = name.replace("_", " ")
        if isinstance(value, dict):
            shown += [(f"{title} on {node}", f"{count:,}") for node, count in value.items()]
        elif isinstance(value, bool):
            shown.append((title, "yes" if value else "NO"))
        else:
            shown.append((title, f"{value:,}"))
    return shown


def html_report(verdict: Verdict) -> str:
    """The report as one HTML document."""
    holds = verdict.holds
    tiles = "".join(
        f'<div class="figure"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in figures(verdict)
    )
    properties = _table(
        ("", "Property", "Checked", "Violations", "Verdict"),
        [
            (
                str(judgement.number),
                escape(judgement.title),
                f"{judgement.checked:,}",
                f"{judgement.count:,}",
                '<span class="holds">holds</span>'
                if judgement.holds
                else '<b class="violated">violated</b>',
            )
            for judgement in verdict.judgements
        ],
        numbers=(0, 2, 3),
    )
    details = "".join(_details(judgement) for judgement in verdict.judgements)
    notes = "".join(f"<li>{escape(note)}</li>" for note in verdict.notes)
    badge = "every property holds" if holds else "violated"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Audit</title>'
        f"<style>{_STYLE}</style></head><body><h1>Audit</h1>"
        f'<span class="verdict {"good" if holds else "bad"}">{badge}</span>'
        f'<div class="figures">{tiles}</div><h2>Properties</h2>{properties}{details}'
        + (f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "")
        + "</body></html>\n"
    )


def _print_violations(judgement: Judgement, console: Console) -> None:
    if judgement.holds:
        return
    table = Table(title=f"Property {judgement.number} is violated", title_justify="left")
    for column in ("what", "message", "replica", "queue", "positions", "detail"):
        table.add_column(column, overflow="fold")
    for row in _cells(judgement)[:TERMINAL_VIOLATIONS_MAX]:
        table.add_row(*row)
    console.print(table)
    hidden = judgement.count - TERMINAL_VIOLATIONS_MAX
    if hidden > 0:
        console.print(f"... and {hidden:,} more; --report DIR writes them down")


def _details(judgement: Judgement) -> str:
    if judgement.holds:
        return ""
    rows = [tuple(map(escape, row)) for row in _cells(judgement)]
    hidden = judgement.count - len(rows)
    return (
        f"<h2>{judgement.number}. {escape(judgement.title)}</h2>"
        + _table(("What", "Message", "Replica", "Queue", "Positions", "Detail"), rows)
        + (f"<p>... and {hidden:,} more.</p>" if hidden else "")
    )


def _cells(judgement: Judgement) -> list[tuple[str, ...]]:
    """The violations' columns as text: what, message, replica, queue, positions, detail."""
    cells: list[tuple[str, ...]] = []
    for row in judgement.violations:
        queue = "" if row["queue_id"] is None else f"{row['topic']}/{row['queue_id']}"
        if row["queue_offset"] is not None:
            queue += f" @{row['queue_offset']}"
        positions = row["positions"]
        replica = "/".join(str(row[name]) for name in ("broker", "replica") if row[name])
        cells.append(
            (
                str(row["what"]),
                str(row["message_id"] or ""),
                replica,
                queue,
                ", ".join(map(str, positions)) if isinstance(positions, list) else "",
                str(row["detail"] or ""),
            )
        )
    return cells


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()
) -> str:
    """An HTML table; cells are HTML already. `numbers` are the columns to align as such."""
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=number' if place in numbers else ''}>{cell}</td>"
            for place, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
