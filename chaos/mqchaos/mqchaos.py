"""The `mqchaos` command: break a cluster on purpose, by name and seed, and have it audited."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import cyclopts
from rich.console import Console
from rich.table import Table

from dledger.errors import ConfigError
from dledger.program.console import let_reader_leave
from dledger.program.extras import require_spark
from mqchaos.command_line import run_app, run_command
from mqchaos.limits import KILLS_MAX
from mqchaos.run.perform import Order, perform
from mqchaos.run.scenarios import SCENARIOS

Directory: TypeAlias = Annotated[Path, cyclopts.Parameter(name="--dir")]
Times: TypeAlias = Annotated[int, cyclopts.Parameter(name=["--kills", "--times"])]

app = cyclopts.App(name="mqchaos", help="Break a broker group on purpose and audit what is left.")


@app.command(name="list")
def list_scenarios() -> None:
    """Name the scenarios."""
    table = Table("scenario", "what happens")
    for scenario in SCENARIOS.values():
        table.add_row(scenario.name, scenario.story)
    Console().print(table)


@app.command
def run(*, scenario: str, directory: Directory, seed: int = 1, kills: Times = 5) -> int:
    """Run a scenario; exit status 0 only if every property holds and no bound was exceeded.

    Parameters
    ----------
    scenario
        One of those that `mqchaos list` names.
    directory
        A new or empty directory: history, replicas, logs and reports stay there.
    seed
        The same seed makes the same plan.
    kills
        How many nodes are killed or paused, one after the other; how many rounds of a restart.
    """
    return run_command(partial(_run, scenario, directory, seed, kills))


async def _run(scenario: str, directory: Path, seed: int, kills: int) -> int:
    order = _order(scenario, directory, seed, kills)
    console = Console()
    report = await perform(order, console)
    console.print(f"report: {order.report / 'report.html'}", soft_wrap=True)
    console.print(f"replay: {order.replay}", soft_wrap=True)
    return 0 if report.holds else 1


def _order(scenario: str, directory: Path, seed: int, kills: int) -> Order:
    """What to perform; refuses what can't be, by name."""
    if scenario not in SCENARIOS:
        raise ConfigError(f"there is no scenario {scenario!r}; there are {', '.join(SCENARIOS)}")
    if not 1 <= kills <= KILLS_MAX:
        raise ConfigError(f"--kills is {kills}; it must be from 1 to {KILLS_MAX}")
    require_spark("the audit at the end of a run")
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty: a run needs a directory of its own")
    chosen = SCENARIOS[scenario]
    return Order(
        scenario=chosen,
        seed=seed,
        kills=kills,
        rate_per_s=chosen.rate_per_s,
        directory=directory,
        report=directory / "report",
        replay=f"mqchaos run --scenario {scenario} --seed {seed} --kills {kills} --dir NEW-DIR",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The console command."""
    let_reader_leave()
    sys.exit(run_app(app, arguments))


if __name__ == "__main__":
    main()
