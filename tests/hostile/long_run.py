"""The packets and entries of `test_packets`, as many as there is time for; by hand.

    python tests/hostile/long_run.py --cases 1000000

A round is a run of the two properties under a seed of its own, printed before it. A failure ends
the run with hypothesis's report and the seed: `--seed N` begins there.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import test_packets  # noqa: E402 -- a file beside this one

EXAMPLES_PER_ROUND = 500
PROPERTIES: tuple[tuple[Any, Any], ...] = (
    (test_packets.test_no_packet_ends_a_group, test_packets.PACKETS),
    (test_packets.test_no_entry_ends_a_group, st.data()),
)


def main() -> None:
    """Run rounds until `cases` cases were tried."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable()
    wanted = options.cases // (len(PROPERTIES) * test_packets.PACKETS_PER_EXAMPLE)
    examples = max(1, min(EXAMPLES_PER_ROUND, wanted))
    profile = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    tried, number, began_s = 0, options.seed, time.monotonic()
    while tried < options.cases:
        for test, cases in PROPERTIES:
            sys.stdout.write(f"seed {number}: {test.__name__}\n")
            sys.stdout.flush()
            seed(number)(profile(given(cases)(test.hypothesis.inner_test)))()
            gc.unfreeze()  # of its garbage: each start of a group freezes all that there is
            gc.collect()
            tried += examples * test_packets.PACKETS_PER_EXAMPLE
        number += 1
        sys.stdout.write(f"{tried} cases in {time.monotonic() - began_s:.0f} s\n")


if __name__ == "__main__":
    main()
