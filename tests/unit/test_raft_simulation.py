"""Whole groups under faults, by seed: the invariants hold, and a planted bug breaks them.

A short form; `python -m dledger.testing.simulation` runs any number of seeds, and searches for one
that catches each planted bug, those that need more seeds than fit here included.
"""

from __future__ import annotations

import pytest

from dledger.testing.group import run_seed
from dledger.testing.simulation import DURATION_S, first_violation

#: Caught within a few seeds each. The others take up to hundreds: see docs/dledger.md.
CAUGHT_SOON = [
    "truncate matching entries",
    "send again and truncate matching entries",
    "acknowledge before the sync",
    "count the leader's copy before its sync",
    "trust a commit index beyond the log",
    "never check the quorum",
    "never tell of lost leadership",
    "vote for a shorter log",
    "commit an older term's entry by counting",
    "keep conflicting entries",
    "serve before the no-op is applied",
    "answer before the commit",
    "apply before the commit",
    "sync nothing",
    "vouch for what a killed process left",
    "forget the folder's sync",
    "cut what was durable",
    "skip the body's checksum",
]


@pytest.mark.parametrize(("seed", "nodes"), [(seed, 3 if seed % 4 else 5) for seed in range(20)])
def test_a_group_keeps_its_promises_under_faults(seed: int, nodes: int) -> None:
    """Eight virtual seconds of cuts, crashes, power losses, pauses; then all logs are equal."""
    print(f"seed {seed}, {nodes} nodes")
    run_seed(seed, nodes, DURATION_S)


@pytest.mark.parametrize("planted", CAUGHT_SOON)
def test_a_planted_bug_is_caught(planted: str) -> None:
    """With a fix taken out, one of the first seeds breaks an invariant."""
    assert first_violation(range(30), 3, planted) is not None
