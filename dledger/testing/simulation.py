"""The command that runs simulated seeds, and searches for those that catch a planted bug.

    python -m dledger.testing.simulation --seeds 0-2000 [--nodes 5] [--planted NAME]

prints the transcript of a seed that fails, and the command that replays it. Seeds run in one
process a core; what is reported is the lowest seed that fails, as if one had run them all.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import cyclopts

from dledger.testing.client_history import Violation
from dledger.testing.group import run_seed
from dledger.testing.planted import PLANTED, plant

DURATION_S = 8.0
SEEDS_PER_TASK = 8

app = cyclopts.App(name="simulation", help="Simulate replicated logs under faults, by seed.")


def first_violation(
    seeds: Iterable[int], nodes: int = 3, planted: str | None = None, duration_s: float = DURATION_S
) -> tuple[int, Violation] | None:
    """The first of the seeds that breaks an invariant, and how."""
    for seed in seeds:
        try:
            if planted is None:
                run_seed(seed, nodes, duration_s)
            else:
                with plant(planted):
                    run_seed(seed, nodes, duration_s)
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
    """The same, in `jobs` processes, by default one a core."""
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


@app.default
def main(
    *,
    seeds: str = "0-100",
    nodes: int = 3,
    seconds: float = DURATION_S,
    planted: str | None = None,
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
    jobs
        How many processes run seeds; by default one a core.
    """
    first, _, last = seeds.partition("-")
    wanted = range(int(first), int(last) if last else int(first) + 1)
    if planted == "all":
        return _search_for_all(wanted, seconds, jobs)
    started_at = time.monotonic()
    found = first_violation_of_many(wanted, nodes, planted, seconds, jobs)
    took_s = time.monotonic() - started_at
    if found is None:
        print(f"{len(wanted)} seeds, {nodes} nodes: clean ({took_s:.0f} s)")
        return 0
    seed, violation = found
    print("\n".join(getattr(violation, "__notes__", [])))
    print(f"\n{violation}\nafter {seed - wanted.start + 1} seeds, {took_s:.0f} s; replay with")
    extra = "" if planted is None else f' --planted "{planted}"'
    print(
        f"  python -m dledger.testing.simulation --seeds {seed} --nodes {nodes} "
        f"--seconds {seconds:g}{extra}"
    )
    return 1


def _search_for_all(seeds: range, duration_s: float, jobs: int | None) -> int:
    """For each planted bug, print the first seed that catches it."""
    missed = 0
    for bug in PLANTED:
        if bug.seed is None:
            continue
        found = first_violation_of_many(seeds, bug.nodes, bug.name, duration_s, jobs)
        missed += found is None
        seed = "not caught" if found is None else f"seed {found[0]}: {found[1]}"
        print(f"{bug.name} ({bug.nodes} nodes): {seed}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(app())
