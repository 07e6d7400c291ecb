"""Runs one after the other, of new seeds or of plans that are there, until time is up or a
violation is found.

Of a run that holds its report is kept and nothing else, so the disk that a soak needs does not grow
with its hours. The first violation stops it: its directory stays whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator
from itertools import count, cycle
from pathlib import Path

import msgspec
import trio
from rich.console import Console

from dledger.errors import StorageError
from mqchaos.limits import SOAK_DISK_BYTES_MIN
from mqchaos.report.report import FILES
from mqchaos.report.soaked import PAGE, RunLine, render
from mqchaos.run.again import order_of
from mqchaos.run.outcome import Outcome, outcome_of
from mqchaos.run.planned import PLAIN, Made, Planned
from mqchaos.run.scenarios import random_plan

LINES, REPORTS = "soak.jsonl", "reports"


def plans(
    seed: int,
    duration_s: float,
    workloads: Iterable[str],
    made: Made = PLAIN,
    lacking: Collection[str] = (),
) -> Iterator[Planned]:
    """A plan for each seed from the first on, the workloads in turn."""
    for number, workload in zip(count(seed), cycle(workloads), strict=False):
        yield random_plan(number, duration_s, workload, made, lacking)


async def soak(directory: Path, hours: float, some: Iterable[Planned]) -> int:
    """Run plans for so many hours, or until there are no more; exit status 1 at a violation."""
    console, until = Console(), trio.current_time() + hours * 3600
    (directory / REPORTS).mkdir(parents=True, exist_ok=True)
    lines: list[RunLine] = []
    titles: dict[str, str] = {}
    for planned in some:
        began = trio.current_time()
        if began >= until:
            break
        _refuse_full_disk(directory)
        run = directory / _name(planned, lines)
        outcome = await outcome_of(order_of(planned, run))
        lines.append(line_of(planned, outcome, trio.current_time() - began))
        judged = outcome.report.properties if outcome.report else []
        titles |= {str(each.number): each.title for each in judged}
        _write(directory, lines, titles)
        console.print(
            f"seed {planned.seed}, {planned.workload}: {lines[-1].acknowledged:,} acknowledged, "
            f"{sum(lines[-1].faults.values())} faults, {outcome.summary}",
            soft_wrap=True,
        )
        if not outcome.holds:
            console.print(f"replay: mqchaos replay {run} --dir NEW-DIR", soft_wrap=True)
            console.print(f"make it smaller: mqchaos shrink {run} --dir NEW-DIR", soft_wrap=True)
            break
        _keep_report(run, directory / REPORTS)
    console.print(f"summary: {directory / PAGE}", soft_wrap=True)
    return 0 if all(not line.signs for line in lines) else 1


def _name(planned: Planned, lines: Iterable[RunLine]) -> str:
    """The name of a run's directory: by its seed, which several plans may have."""
    before = sum(line.seed == planned.seed for line in lines)
    return f"seed-{planned.seed}" + (f"-{before + 1}" if before else "")


def line_of(planned: Planned, outcome: Outcome, seconds: float) -> RunLine:
    """The summary's line about one run."""
    report = outcome.report
    faults: dict[str, int] = {}
    for gap in report.gaps if report else []:
        faults[gap.fault] = faults.get(gap.fault, 0) + 1
    return RunLine(
        seed=planned.seed,
        workload=planned.workload,
        seconds=round(seconds, 1),
        sent=report.counts.sent if report else 0,
        acknowledged=report.counts.acknowledged if report else 0,
        faults=faults,
        gap_worst_s=report.gap_worst_s if report else None,
        checked={str(each.number): each.checked for each in report.properties} if report else {},
        signs=sorted(outcome.signs),
        summary=outcome.summary,
    )


def _write(directory: Path, lines: list[RunLine], titles: dict[str, str]) -> None:
    with (directory / LINES).open("ab") as file:
        file.write(msgspec.json.encode(lines[-1]) + b"\n")
    (directory / PAGE).write_text(render(lines, titles), encoding="utf-8")


def _keep_report(run: Path, reports: Path) -> None:
    for name in FILES:
        suffix = Path(name).suffix
        (run / "report" / name).rename(reports / f"{run.name}{suffix}")
    shutil.rmtree(run)


def _refuse_full_disk(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < SOAK_DISK_BYTES_MIN:
        raise StorageError(
            f"{free >> 20} MiB is free in {directory}; a run needs {SOAK_DISK_BYTES_MIN >> 20} MiB"
        )
