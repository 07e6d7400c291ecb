"""Seeds of the simulation: fixed ones, and twice as many that were never tried.

The fixed ones tell whether a change broke something; the new ones look for what nobody has seen,
more with every run. A run says at its end which they were. `--all` runs 1,960 more, on all cores.
Overnight: `python -m dledger.testing.simulation --seeds 0-100000`.
"""

from __future__ import annotations

import secrets

import pytest

from dledger.testing.simulation.command import first_violation_of_many

FIXED = {3: 30, 5: 10}
NEW = {3: 60, 5: 20}
"""How many, by the size of the group: a minute for all on a slow core."""
FIRST = 100
"""The first seed here; `tests/unit/dledger/raft/test_simulation.py` runs those before it."""
NEW_SEED_MIN, NEW_SEED_MAX = 10**6, 10**9


@pytest.mark.parametrize("nodes", FIXED, ids="{}-nodes".format)
def test_no_fixed_seed_breaks_an_invariant(nodes: int) -> None:
    """Whatever faults a run draws, nothing acknowledged is lost, and every group heals."""
    assert_clean(range(FIRST, FIRST + FIXED[nodes]), nodes)


def test_a_node_that_dies_while_the_judge_looks_has_died_like_others() -> None:
    """The judge's look writes what a step had staged, and the power may fail at that."""
    assert_clean(range(733105514, 733105515), 5)


def test_a_repair_that_a_crash_has_cut_short_is_begun_anew() -> None:
    """A lost file was made again; of what was written there the power took the first entries."""
    assert_clean(range(604452897, 604452898), 5)


@pytest.mark.parametrize("nodes", NEW, ids="{}-nodes".format)
def test_no_new_seed_breaks_an_invariant(nodes: int, say_at_the_end: list[str]) -> None:
    """New seeds break no invariant."""
    first = NEW_SEED_MIN + secrets.randbelow(NEW_SEED_MAX - NEW_SEED_MIN)
    seeds = range(first, first + NEW[nodes])
    say_at_the_end.append(f"new seeds of {nodes} nodes: {seeds.start}-{seeds.stop}")
    assert_clean(seeds, nodes)


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize(
    ("nodes", "seeds"), [(3, range(130, 1700)), (5, range(110, 500))], ids=["3-nodes", "5-nodes"]
)
def test_no_seed_of_many_breaks_an_invariant(nodes: int, seeds: range) -> None:
    """Many seeds, hard ones and their neighbours among them, break no invariant."""
    assert_clean(seeds, nodes, jobs=None)


def assert_clean(seeds: range, nodes: int, jobs: int | None = 1) -> None:
    """Run the seeds; fail with the first that breaks something, and with what replays it.

    One process has one core, as other tests have the others; None has all.
    """
    print(f"seeds {seeds.start}-{seeds.stop}, {nodes} nodes")
    found = first_violation_of_many(seeds, nodes, jobs=jobs)
    if found is not None:
        seed, violation = found
        print("\n".join(getattr(violation, "__notes__", [])))
        pytest.fail(
            f"{violation}; replay: python -m dledger.testing.simulation --seeds {seed} "
            f"--nodes {nodes}"
        )
