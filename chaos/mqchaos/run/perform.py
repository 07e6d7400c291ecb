"""A scenario from start to verdict: run, audit, report. What demo and mqchaos share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trio
from rich.console import Console

from mqchaos.cluster import busy
from mqchaos.history.reading import read_history
from mqchaos.limits import CUT_AGAIN
from mqchaos.report.judge import audit
from mqchaos.report.measure import Timeline, timeline
from mqchaos.report.report import AUDIT_FOLDER, make_report, write_report
from mqchaos.report.verdict import Report
from mqchaos.run.display import print_report, show
from mqchaos.run.load.workload import WORKLOADS
from mqchaos.run.planned import Planned, write_plan
from mqchaos.run.run import BROKER, Run
from mqchaos.run.scenarios import library_lines


@dataclass(frozen=True, slots=True)
class Order:
    """A run that is to be performed, and where its files go. `directory`: everything of the run;
    `report`: the files that are kept of it.

    `replay` is the command that does it again; `input` None means the standard library's sources.
    """

    planned: Planned
    directory: Path
    report: Path
    replay: str
    input: Path | None = None


async def perform(order: Order, console: Console) -> Report:
    """Do it all, and print the table. The report says whether everything holds."""
    run = await execute(order, console)
    return await assess(order, run, console)


async def execute(order: Order, console: Console) -> Run:
    """The run itself: what it leaves is to be judged."""
    write_plan(order.directory, order.planned)
    run = Run(order.directory, order.planned, _lines(order))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(show, run, console, lambda: run.phase)
        await run.execute()
        nursery.cancel_scope.cancel()
    return run


async def assess(order: Order, run: Run, console: Console) -> Report:
    """The audit of a run, and the report."""
    planned = order.planned
    run.phase = "auditing the history and the replicas' files with Spark"
    audited = order.report / AUDIT_FOLDER
    audited.mkdir(parents=True, exist_ok=True)
    nodes = run.cluster.layout.group(BROKER)
    stores = [run.cluster.store(node) for node in run.cluster.layout.nodes]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(show, run, console, lambda: run.phase)
        verdict = await audit(run.history, stores, audited, order.directory / "audit.log")
        run.phase = "reading the times off the history"
        found = await measured(run.history)
        nursery.cancel_scope.cancel()
    factor = (CUT_AGAIN if planned.namespaces else 1.0) * busy.slowdown(planned.busy)
    report = make_report(
        found,
        verdict,
        planned.scenario,
        planned.seed,
        order.replay,
        run.findings,
        pauses_judged=planned.strict and WORKLOADS[planned.workload].paused_by_faults_alone,
        pauses_factor=factor * run.machine_speed.slowness,
        slowness=run.machine_speed.slowness,
        notes=run.notes,
    )
    write_report(order.report, report, found, [node.node for node in nodes])
    print_report(report, console)
    return report


async def measured(history: Path) -> Timeline:
    """The times in a history. A long one takes minutes: meanwhile the loop goes on."""
    return await trio.to_thread.run_sync(
        lambda: timeline(read_history(history)), abandon_on_cancel=True
    )


def _lines(order: Order) -> Path:
    if order.input is not None:
        return order.input.resolve()
    lines = order.directory / "lines.txt"
    lines.write_bytes(library_lines())
    return lines
