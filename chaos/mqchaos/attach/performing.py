"""A run against an attached cluster from start to verdict."""

from __future__ import annotations

from pathlib import Path

import trio
from rich.console import Console

from dledger.verdict.form import write_verdict
from mqchaos.attach.attached import Attach, Attached
from mqchaos.attach.readback import judge
from mqchaos.history.reading import read_history
from mqchaos.limits import LINE_S, REFRESH_S
from mqchaos.report.report import make_report, write_report
from mqchaos.report.verdict import Report
from mqchaos.run.display import print_report
from mqchaos.run.perform import measured
from mqchaos.run.scenarios import library_lines


async def perform_attached(order: Attach, directory: Path, replay: str, console: Console) -> Report:
    """Do it all, and print the table."""
    lines = directory / "lines.txt"
    lines.write_bytes(library_lines())
    run = Attached(order, directory, lines)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_show, run, console)
        await run.execute()
        run.phase = "judging what was read back"
        verdict = await trio.to_thread.run_sync(
            lambda: judge(read_history(run.history)), abandon_on_cancel=True
        )
        found = await measured(run.history)
        nursery.cancel_scope.cancel()
    title = f"attach: {order.fault} of {'whoever leads' if order.on == 'leader' else 'a node'}"
    report = make_report(
        found, verdict, title, order.seed, replay, run.findings, pauses_judged=False
    )
    folder = directory / "report"
    folder.mkdir()
    write_verdict(folder, verdict)
    write_report(folder, report, found, list(order.hooks.nodes))
    print_report(report, console)
    return report


async def _show(run: Attached, console: Console) -> None:
    """A line when a phase begins, and every few seconds."""
    started, next_line, shown = trio.current_time(), 0.0, ""
    while True:
        now = trio.current_time()
        if run.phase != shown or now >= next_line:
            news = f" ({len(run.done)} faults and ends so far)" if run.done else ""
            console.print(f"{now - started:5.0f} s  {run.phase}{news}", soft_wrap=True)
            shown, next_line = run.phase, now + LINE_S
        await trio.sleep(REFRESH_S)
