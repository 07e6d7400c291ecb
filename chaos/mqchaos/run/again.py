"""Runs of a plan that is there: replayed, and made smaller while its violation stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
from rich.console import Console

from dledger.errors import ConfigError
from mqchaos.cluster.faked_clock import no_faked_clocks
from mqchaos.faults.machine import machine_lacks, no_own_disks
from mqchaos.network.needs import no_namespaces
from mqchaos.run.load.workload import WORKLOADS
from mqchaos.run.others.stock import stock_lacks
from mqchaos.run.outcome import Outcome, outcome_of
from mqchaos.run.perform import Order
from mqchaos.run.planned import Planned, read_plan, write_plan
from mqchaos.run.shrinking import smaller, units

SMALLEST = "smallest"


def order_of(planned: Planned, directory: Path) -> Order:
    """To run a plan in a new or empty directory. Raises ConfigError for one that is not, and for a
    plan that this machine can't do."""
    refuse_lacking(planned)
    own(directory)
    replay = planned.drawn_by or f"mqchaos replay {directory} --dir NEW-DIR"
    return Order(planned, directory, directory / "report", replay)


def plan_of(source: Path, busy: int | None) -> Planned:
    """The plan of a run, beside so many busy processes; None: beside as many as it names. Raises
    ConfigError for one that is none, or that this machine can't do."""
    planned = read_plan(source)
    try:
        refuse_lacking(planned)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    if busy is None:
        return planned
    again = f"mqchaos replay {source} --busy {busy} --dir NEW-DIR"
    return msgspec.structs.replace(planned, busy=busy, drawn_by=again)


def refuse_lacking(planned: Planned) -> None:
    """A fault that can't be done is never taken for one that held. Raises ConfigError."""
    lacks = no_namespaces() if planned.namespaces else None
    if lacks is not None:
        raise ConfigError(f"--network namespaces is not available here: {lacks}")
    lacks = no_own_disks() if planned.disks else None
    if lacks is not None:
        raise ConfigError(f"--disks own is not available here: {lacks}")
    lacks = no_faked_clocks() if planned.clocks else None
    if lacks is not None:
        raise ConfigError(f"--clocks processes is not available here: {lacks}")
    stock = WORKLOADS[planned.workload].stock
    if stock and planned.users:
        raise ConfigError(
            f"the client of the workload {planned.workload} signs nothing here: it can't be run "
            "where rights are enforced (--users, or a scenario that has users)"
        )
    lacks = stock_lacks(stock) if stock else None
    if lacks is not None:
        raise ConfigError(f"the workload {planned.workload} is not available here: {lacks}")
    for fault in dict.fromkeys(step.fault for step in planned.steps if step.fault):
        lacks = machine_lacks(fault, namespaces=planned.namespaces)
        if lacks is not None and planned.strict:
            raise ConfigError(f"{fault} is not available here: {lacks}")


def own(directory: Path) -> Path:
    """The directory, made if it is not there. Raises ConfigError if it holds anything."""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty: this needs a directory of its own")
    return directory


async def shrink(source: Path, directory: Path, repeat: int, runs_max: int) -> int:
    """Find a smaller plan than that of `source` with the same violation; its exit status.

    What is left lies in `directory`: the smallest plan that failed, and all of its run.
    """
    console, trial = Console(), Trial(directory, repeat, runs_max)
    planned = read_plan(source)
    console.print(f"first the plan as it is, {len(units(planned.steps))} faults and waits")
    if not await trial.fails(planned):
        console.print(f"the violation did not come again in {repeat} runs; --repeat tries more")
        return 1
    console.print(f"it fails: {', '.join(sorted(trial.signs))}. {trial.summary}", soft_wrap=True)
    candidates = smaller(planned)
    try:
        candidate = next(candidates)
        while trial.runs < runs_max:
            failed = await trial.fails(candidate)
            line = f"{len(units(candidate.steps)):3d} faults and waits, "
            console.print(line + ("still fails" if failed else "holds"))
            candidate = candidates.send(failed)
    except StopIteration:
        pass
    console.print(f"replay: mqchaos replay {directory / SMALLEST} --dir NEW-DIR", soft_wrap=True)
    return 0


class Trial:
    """Runs candidates, and keeps the directory of the last one that failed."""

    def __init__(self, directory: Path, repeat: int, runs_max: int) -> None:
        self._directory = directory
        self._repeat = repeat
        self._runs_max = runs_max
        self.runs = 0
        self.signs: frozenset[str] = frozenset()
        self.summary = ""

    async def fails(self, planned: Planned) -> bool:
        """Whether one of so many runs shows the violation; the first to fail says which it is."""
        for _ in range(self._repeat):
            if self.runs >= self._runs_max:
                return False
            self.runs += 1
            directory = self._directory / f"run-{self.runs}"
            outcome = await outcome_of(order_of(planned, directory), self.signs)
            if self._is_it(outcome):
                shutil.rmtree(self._directory / SMALLEST, ignore_errors=True)
                directory.rename(self._directory / SMALLEST)
                write_plan(self._directory / SMALLEST, planned)
                return True
            shutil.rmtree(directory)
        return False

    def _is_it(self, outcome: Outcome) -> bool:
        if not self.signs and not outcome.holds:
            self.signs, self.summary = outcome.signs, outcome.summary
        return bool(self.signs & outcome.signs)
