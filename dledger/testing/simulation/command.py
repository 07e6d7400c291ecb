"""The command that runs simulated seeds, and searches for those that catch a planted bug.

    python -m dledger.testing.simulation --seeds 0-2000 [--nodes 5] [--planted NAME]

prints the transcript of a seed that fails, shrunk to the faults that it needs, and the command that
replays it. Seeds run in one process a core; what is reported is the lowest seed that fails, as if
one process had run them all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial

import cyclopts

from dledger.testing.planted.catalogue import PLANTED, plant
from dledger.testing.simulation.group import run_seed
from dledger.testing.simulation.judge.client_history import Violation
from dledger.testing.simulation.odds import FAULTS

DURATION_S = 8.0
SEEDS_PER_TASK = 8

app = cyclopts.App(name="simulation", help="Simulate replicated logs under faults, by seed.")


def first_violation(
    seeds: Iterable[int],
    nodes: int = 3,
    planted: str | None = None,
    duration_s: float = DURATION_S,
    without: Collection[str] = (),
) -> tuple[int, Violation] | None:
    """The first of the seeds that breaks an invariant, and how."""
    for seed in seeds:
        try:
            with plant(planted) if planted is not None else nullcontext():
                run_seed(seed, nodes, duration_s, without)
        except Violation as violation:
            return seed, violation
    return None


def first_violation_of_many(
    seeds: range,
    nodes: int = 3,
    planted: str | None = None,
    duration_s: float = DURATION_S,
    jobs: int | None = None,
) -> tuple[int, Violation] | None:
    """The first of the seeds that breaks an invariant, looked for in `jobs` processes, by default
    one a core."""
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1 or len(seeds) <= SEEDS_PER_TASK:
        return first_violation(seeds, nodes, planted, duration_s)
    tasks = [
        range(start, min(start + SEEDS_PER_TASK, seeds.stop))
        for start in range(seeds.start, seeds.stop, SEEDS_PER_TASK)
    ]
    run = partial(first_violation, nodes=nodes, planted=planted, duration_s=duration_s)
    with ProcessPoolExecutor(jobs) as pool:
        try:
            return next((found for found in pool.map(run, tasks) if found), None)
        finally:
            pool.shutdown(cancel_futures=True)


def shrink(
    seed: int, nodes: int, planted: str | None, duration_s: float
) -> tuple[list[str], Violation]:
    """The faults without which a failing seed does not fail, and how it fails with no others."""

    def fails_without(without: Collection[str]) -> Violation | None:
        found = first_violation([seed], nodes, planted, duration_s, without)
        return None if found is None else found[1]

    left_out: set[str] = set()
    violation = fails_without(left_out)
    assert violation is not None, f"seed {seed} does not fail"
    for fault in FAULTS:
        found = fails_without({*left_out, fault})
        if found is not None:
            left_out.add(fault)
            violation = found
    return [fault for fault in FAULTS if fault not in left_out], violation


@app.default
def main(
    *,
    seeds: str = "0-100",
    nodes: int = 3,
    seconds: float = DURATION_S,
    planted: str | None = None,
    without: str = "",
    jobs: int | None = None,
) -> int:
    """Run seeds until one breaks an invariant; exit status 1 if one does.

    Parameters
    ----------
    seeds
        One seed, or a range such as 0-2000, its end not included.
    nodes
        The size of the group, 3 or 5.
    seconds
        Virtual seconds of faults in each run.
    planted
        The name of a bug to plant, or "all" to search for a seed for each of them; then exit
        status 1 means that one was not caught.
    without
        Faults that shall not come, separated by commas: how a shrunk run is replayed.
    jobs
        How many processes run seeds; by default one a core.
    """
    first, _, last = seeds.partition("-")
    wanted = range(int(first), int(last) if last else int(first) + 1)
    if planted == "all":
        return _search_for_all(wanted, seconds, jobs)
    started_at = time.monotonic()
    if without:
        found = first_violation(wanted, nodes, planted, seconds, without.split(","))
    else:
        found = first_violation_of_many(wanted, nodes, planted, seconds, jobs)
    took_s = time.monotonic() - started_at
    if found is None:
        print(f"{len(wanted)} seeds, {nodes} nodes: clean ({took_s:.0f} s)")
        return 0
    seed, violation = found
    calm = without.split(",")
    if not without:
        needed, violation = shrink(seed, nodes, planted, seconds)
        calm = [fault for fault in FAULTS if fault not in needed]
    print("\n".join(getattr(violation, "__notes__", [])))
    print(f"\n{violation}\nafter {seed - wanted.start + 1} seeds, {took_s:.0f} s; replay with")
    extra = "" if planted is None else f' --planted "{planted}"'
    extra += f" --without {','.join(calm)}" if calm else ""
    print(
        f"  python -m dledger.testing.simulation --seeds {seed} --nodes {nodes} "
        f"--seconds {seconds:g}{extra}"
    )
    return 1


def _search_for_all(seeds: range, duration_s: float, jobs: int | None) -> int:
    """Print the first seed that catches each planted bug."""
    missed = 0
    for bug in PLANTED:
        if bug.seed is None:
            continue
        found = first_violation_of_many(seeds, bug.nodes, bug.name, duration_s, jobs)
        missed += found is None
        seed = "not caught" if found is None else f"seed {found[0]}: {found[1]}"
        print(f"{bug.name} ({bug.nodes} nodes): {seed}", flush=True)
    return 1 if missed else 0
