"""Shows the progress of a run: a live panel on a terminal, lines of text elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dledger.observe import one_line
from mqchaos.cluster.probe import NodeState
from mqchaos.limits import LINE_S, REFRESH_S
from mqchaos.report.report import rows
from mqchaos.report.verdict import Report
from mqchaos.run.run import Run

BAR_WIDTH = 44
STYLES = {"leader": "bold cyan", "follower": "default", "candidate": "yellow", "down": "bold red"}


async def show(run: Run, console: Console, phase: Callable[[], str]) -> None:
    """Show a run until cancelled. `phase`: what is being done, in a few words."""
    started = trio.current_time()
    if not console.is_terminal:
        await _print_lines(run, console, phase, started)
        return
    spinner = Spinner("dots")
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            spinner.update(text=f"{phase()}  [{trio.current_time() - started:.0f} s]")
            live.update(Group(spinner, _picture(run)), refresh=True)
            await trio.sleep(REFRESH_S)


async def _print_lines(
    run: Run, console: Console, phase: Callable[[], str], started: float
) -> None:
    """A line when a phase or a fault begins, and every few seconds; counts only if they moved."""
    shown, counted, faults, next_line = "", "", len(run.done), started
    while True:
        now = trio.current_time()
        if phase() != shown or len(run.done) != faults or now >= next_line:
            news = run.done[faults:] + ([_counts(run)] if _counts(run) != counted else [])
            happened = f": {'; '.join(news)}" if news else ""
            console.print(f"{now - started:5.0f} s  {phase()}{happened}", soft_wrap=True)
            shown, counted, faults = phase(), _counts(run), len(run.done)
            next_line = now + LINE_S
        await trio.sleep(REFRESH_S)


def _sums(run: Run) -> tuple[int, int, int, int]:
    produced, consumed = run.produced, run.consumed
    return (
        sum(each.sent for each in produced),
        sum(each.acked for each in produced),
        sum(each.delivered for each in consumed),
        sum(each.failed for each in produced),
    )


def _counts(run: Run) -> str:
    sent, acked, delivered, failed = _sums(run)
    failures = f", {failed:,} failed" if failed else ""
    return f"{sent:,} sent, {acked:,} acknowledged, {delivered:,} consumed{failures}"


def _picture(run: Run) -> RenderableType:
    sent, acked, delivered, failed = _sums(run)
    total = run.planned.messages or max(sent, 1)
    table = Table.grid(padding=(0, 2))
    for name, count in (("sent", sent), ("acknowledged", acked), ("consumed", delivered)):
        bar = ProgressBar(total=total, completed=min(count, total), width=BAR_WIDTH)
        table.add_row(name, bar, Text(f"{count:,}", justify="right"))
    if failed:
        table.add_row("failed", "", Text(f"{failed:,}", style="bold red", justify="right"))
    nodes = Text("nodes         ")
    for state in run.nodes:
        role, term = _role(state)
        nodes.append(f"{state.node.node} {role}{term}   ", style=STYLES[role])
    faults = Text("faults        " + ("; ".join(run.done[-6:]) or "none yet"))
    return Group(table, nodes, faults)


def _role(state: NodeState) -> tuple[str, str]:
    return ("down", "") if state.info is None else (state.info.role, f" (term {state.info.term})")


def print_report(report: Report, console: Console) -> None:
    """The final table, and one line of judgement."""
    table = Table(title=f"{report.scenario}, seed {report.seed}", title_justify="left")
    table.add_column("what")
    table.add_column("value", justify="right")
    for name, value, good in rows(report):
        table.add_row(name, value, style="" if good else "bold red")
    console.print(table)
    for each in report.properties:
        style = {"holds": "green", "violated": "bold red"}.get(each.word, "")
        line = Text.assemble(f"property {each.number:>2}  ", (each.word, style), f"  {each.title}")
        console.print(line, soft_wrap=True)
    for finding in report.findings:
        console.print(Text(one_line(finding), style="bold red"), soft_wrap=True)
    for note in report.notes:
        console.print(Text(one_line(f"note: {note}")), soft_wrap=True)
    if report.gap_median_s is not None and report.gap_worst_s is not None:
        console.print(
            f"gaps over {len(report.gaps)} faults: median {report.gap_median_s * 1000:.0f} ms, "
            f"worst {report.gap_worst_s * 1000:.0f} ms; "
            f"exceptions that reached the application: {report.exceptions}"
        )
