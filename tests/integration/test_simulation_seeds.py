"""The simulation's form for continuous integration: two thousand seeds on all cores.

Overnight: `python -m dledger.testing.simulation --seeds 0-100000`.
"""

from __future__ import annotations

import pytest

from dledger.testing.simulation.command import first_violation_of_many

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("nodes", "seeds"), [(3, range(100, 1700)), (5, range(100, 500))], ids=["3-nodes", "5-nodes"]
)
def test_no_seed_of_many_breaks_an_invariant(nodes: int, seeds: range) -> None:
    """Whatever the weather, nothing acknowledged is lost, and every group heals."""
    found = first_violation_of_many(seeds, nodes)
    if found is not None:
        seed, violation = found
        print("\n".join(getattr(violation, "__notes__", [])))
        pytest.fail(
            f"{violation}; replay: python -m dledger.testing.simulation --seeds {seed} "
            f"--nodes {nodes}"
        )
