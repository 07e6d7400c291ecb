"""The main job: `./dev demo`, or `python -m mqchaos.demo`.

A name server and a broker group of three, each a process of its own; two producers send the lines
of a text, keyed, to a topic of eight queues; a consumer group of two reads along. The leader is
killed with SIGKILL at a third of the sends and is back at half of them; a follower is killed at two
thirds. Then Spark audits the history and the three replicas' own files. Only the report is kept.
Everything else is removed and every process ended, even after an error.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import cyclopts
from msgspec.structs import replace
from rich.console import Console

from dledger.errors import StorageError
from dledger.program.console import let_reader_leave
from dledger.program.extras import require
from dledger.program.whole import Whole
from dledger.verdict.form import headline
from mqchaos import limits
from mqchaos.command_line import refuse_outside, run_command
from mqchaos.report.verdict import Report
from mqchaos.run.load.workload import read_lines, split
from mqchaos.run.perform import Order, perform
from mqchaos.run.scenarios import MAIN_JOB, planned_of

MESSAGES = 100_000
PRODUCERS = 2
REPLICAS = 3

app = cyclopts.App(name="demo", help="Kill the leader under load, and prove that nothing was lost.")


@app.default
def demo(
    *,
    source: Annotated[Path | None, cyclopts.Parameter(name="--input")] = None,
    messages: Whole = MESSAGES,
    seed: Whole = 1,
    report: Path = Path("demo-report"),
) -> int:
    """Run the main job; exit status 0 only if every property holds.

    Parameters
    ----------
    source
        A text file whose lines are sent, over and over; by default Python's own library sources.
    messages
        How many lines to send.
    seed
        Chooses which follower is killed.
    report
        Where report.html, report.json and the audit's own files are kept.
    """
    return run_command(partial(_demo, source, messages, seed, report))


async def _demo(source: Path | None, messages: int, seed: int, report: Path) -> int:
    require("the demo's audit", "spark")
    split(messages, PRODUCERS)
    refuse_outside("seed", seed, 0, limits.SEED_MAX)
    lines = [] if source is None else read_lines(source)
    line_bytes = sum(map(len, lines)) / max(1, len(lines))
    console = Console()
    words = ["./dev demo", f"--seed {seed}", f"--messages {messages}"]
    words += [] if source is None else [f"--input {source}"]
    with tempfile.TemporaryDirectory(prefix="dledger-demo-") as directory:
        _refuse_full_disk(Path(directory), round(messages * line_bytes))
        order = Order(
            planned=replace(
                planned_of(MAIN_JOB, seed, 2), rate_per_s=rate_for(messages), messages=messages
            ),
            directory=Path(directory),
            report=report,
            replay=" ".join(words),
            input=source,
        )
        console.print(
            f"{messages:,} lines of {source or 'the Python library'} go through a group of "
            f"three brokers; {MAIN_JOB.story}. Then Spark looks for what is missing.",
            soft_wrap=True,
        )
        try:
            result = await perform(order, console)
        except Exception:
            keep_evidence(order.directory, report)
            raise
        if not result.holds:
            keep_evidence(order.directory, report)
    console.print(f"report: {report / 'report.html'}", soft_wrap=True)
    console.print(f"[bold {'green' if result.holds else 'red'}]{in_short(result)}[/]")
    return 0 if result.holds else 1


def in_short(result: Report) -> str:
    """The last line of the demo. A busy machine may make pauses longer; a lost message is never
    excused."""
    if result.holds:
        return headline(result.properties)
    if all(each.holds for each in result.properties) and not result.exceptions:
        return (
            "no message was lost, changed or reordered, but not all was in time: see above. Other "
            "work on this machine makes the pauses longer"
        )
    return "NOT everything holds: see above"


def keep_evidence(directory: Path, report: Path) -> None:
    """Keep the replicas, logs and history of a run that failed."""
    kept = report / "evidence"
    shutil.rmtree(kept, ignore_errors=True)
    report.mkdir(parents=True, exist_ok=True)
    shutil.move(directory, kept)
    directory.mkdir()
    print(f"the replicas, logs and history are kept in {kept}", file=sys.stderr)


def rate_for(messages: int) -> float:
    """The rate at which the load lasts long enough to tell the kills apart."""
    return min(
        max(messages / limits.DEMO_LOAD_S, limits.DEMO_RATE_PER_S_MIN), limits.DEMO_RATE_PER_S_MAX
    )


def _refuse_full_disk(directory: Path, text_bytes: int) -> None:
    free = shutil.disk_usage(directory).free
    needed = limits.DEMO_DISK_BYTES_MIN + REPLICAS * text_bytes
    if free < needed:
        raise StorageError(
            f"{free >> 20} MiB is free in {directory.parent}; the demo needs {needed >> 20} MiB "
            "for three replicas. Make room, set TMPDIR, or send fewer --messages."
        )


def main() -> None:
    """Entry point of the demo's command line."""
    let_reader_leave()
    sys.exit(app())


if __name__ == "__main__":
    main()
