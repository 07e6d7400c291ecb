"""Rules for every test, how tests share a machine, and the summary at a run's end.

Tests marked `long` run with `--all` only. `./dev test` has two parts. In the first, several workers
take one file of tests after the other, what takes longest first; all that stock clients do is one
worker's, which their waiting leaves nearly idle, so that there is a worker more than cores. In the
second, tests marked `alone` have the machine for themselves. A run ends with what each suite cost,
the forty slowest tests, and a figure for the machine's speed, so that two machines can be compared.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from dledger.raft.library.adapter import use_clock
from dledger.testing.standstills import standing_still
from dledger.world import steady_s

# Tables are as wide as the terminal says: none is, unless a test says it.
os.environ.pop("COLUMNS", None)

# Tests of the pages read their blocks by `docs/blocks.py`; several suites share `clusters.py`.
sys.path[:0] = [str(Path(__file__).parents[1] / "docs"), str(Path(__file__).parent)]

# A shared machine may stop a process for half a second: that says nothing about an example.
settings.register_profile("dledger", deadline=None, print_blob=True)
settings.register_profile("long", settings.get_profile("dledger"), max_examples=20_000)
settings.load_profile("dledger")

SUITES = ("tidy", "unit", "contracts", "hostile", "fuzz", "integration", "conformance")
WAITING = "conformance"
"""The suite whose tests share one cluster of six brokers, and mostly wait."""
SHARE_SPARK = "integration/spark"
"""The suite whose tests share one Spark session: to start one takes as long as two audits."""
TOGETHER = (WAITING, SHARE_SPARK)
"""Each of them is one worker's."""
MARKS = (
    *(("integration", "slow"), (SHARE_SPARK, "spark")),
    *((WAITING, "slow"), (WAITING, "conformance")),
)
"""Folders, and a mark of all tests in each."""
CLOCKS = {"autojump_clock", "mock_clock"}
SLOWEST_SHOWN = 40
ADDITIONS = 2_000_000
"""The loop that tells a machine's speed: 0.2 s on a slow core of 2020."""


SAID = pytest.StashKey[list[str]]()


@pytest.fixture
def say_at_the_end(request: pytest.FixtureRequest) -> list[str]:
    """Lines that the run prints at its end, though the test passes: seeds that it chose."""
    return request.config.stash.setdefault(SAID, [])


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all`: the long forms, too. `--part`: what one part of a run has. `--standstills`: a slow,
    shared machine."""
    parser.addoption("--all", action="store_true", dest="all_forms", help="run long forms, too")
    parser.addoption("--part", choices=["shared", "alone"], help="one part of the tests only")
    parser.addoption("--standstills", type=int, metavar="SEED", help="stop workers now and then")


@pytest.fixture(scope="session", autouse=True)
def _standstills(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--standstills` only; each worker has a seed of its own."""
    seed = request.config.getoption("--standstills")
    worker = getattr(request.config, "workerinput", {"workerid": "gw0"})["workerid"]
    with nullcontext() if seed is None else standing_still(seed + int(worker.removeprefix("gw"))):
        yield


def suite_order(item: pytest.Item) -> int:
    """The suite's place in the order: the first, the second, ..."""
    return SUITES.index(suite_of(item.nodeid))


def dearest_first(nodeid: str) -> int:
    """The tests that keep one worker longest begin first, beside them those that soonest find a
    fault; small files come last, so that all workers end together."""
    begin = (*(f"tests/{folder}/" for folder in TOGETHER), "tests/tidy/", "tests/integration/")
    return next((at for at, folder in enumerate(begin) if nodeid.startswith(folder)), len(begin))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The few files with tests marked `alone` are known by the word; no other is imported."""
    if config.getoption("--part") == "alone" and collection_path.name.startswith("test_"):
        return "mark.alone" not in collection_path.read_text() or None
    return None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test as its folder says, and run it on the clock that it, its module or a fixture
    takes: pytest-trio by itself looks among the test's parameters only."""
    for folder, mark in MARKS:
        if item.nodeid.startswith(f"tests/{folder}/"):
            item.add_marker(mark)

    def run(test: Any, *, clock: Any, instruments: Any) -> Any:
        (name,) = clocks
        return trio.run(test, clock=clock or item.funcargs[name], instruments=instruments)

    is_test = isinstance(item, pytest.Function) and iscoroutinefunction(item.obj)
    if is_test and (clocks := CLOCKS.intersection(item.fixturenames)):
        item.add_marker(pytest.mark.trio(run=run))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the suites in their order, and leave out what this run has no room for."""
    items.sort(key=suite_order)
    shared = config.getoption("--part") == "shared"
    if shared:
        items.sort(key=lambda item: dearest_first(item.nodeid))
    left_out = set[pytest.Item]()
    if not config.option.all_forms:
        left_out |= {item for item in items if item.get_closest_marker("long")}
    if config.getoption("--part") is not None:
        left_out |= {item for item in items if bool(item.get_closest_marker("alone")) == shared}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=[*left_out])


def pytest_collection_finish() -> None:
    """Keep the collector from what stays: modules and five thousand tests, half a second each time.

    Tests with a clock in them would meet that as a standstill.
    """
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Workers take whole files; one takes all tests of the suite that waits most, and one all tests
    that share a Spark session."""
    return FileByFile(config, log)


class FileByFile(LoadScopeScheduling):
    """A module's fixtures are made once, on one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return next(
            (folder for folder in TOGETHER if nodeid.startswith(f"tests/{folder}/")),
            nodeid.partition("::")[0],
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each suite's cost, and the slowest tests with their fixtures."""
    costs_s = Counter[str]()
    for report in reports(terminalreporter):
        costs_s[report.nodeid] += report.duration
    suites_s = Counter[str]()
    for nodeid, cost_s in costs_s.items():
        suites_s[suite_of(nodeid)] += cost_s
    say = terminalreporter.write_line
    terminalreporter.section(f"costs; {ADDITIONS:,} additions take {additions_s():.2f} s here")
    say(", ".join(f"{suite} {cost_s:.0f} s" for suite, cost_s in suites_s.items()))
    for nodeid, cost_s in costs_s.most_common(SLOWEST_SHOWN):
        say(f"{cost_s:7.1f} s  {nodeid}")
    for line in terminalreporter.config.stash.get(SAID, []):
        say(line)


def reports(terminalreporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    """Reports of the setup, the call and the teardown of every test that ran."""
    for found in terminalreporter.stats.values():
        yield from (report for report in found if isinstance(report, pytest.TestReport))


def suite_of(nodeid: str) -> str:
    """The folder of `tests` that a test lies in."""
    return nodeid.removeprefix("tests/").partition("/")[0]


def additions_s() -> float:
    """How long a fixed loop of Python takes, at best: a machine's speed."""
    best_s = float("inf")
    for _ in range(3):
        started_s, total = time.perf_counter(), 0
        for number in range(ADDITIONS):
            total += number
        best_s = min(best_s, time.perf_counter() - started_s)
    return best_s


# py4j tells of each call that it makes, which takes longer than the calls.
logging.getLogger("py4j").setLevel(logging.WARNING)


@pytest.fixture(autouse=True)
def _logging_is_configured_by_none() -> Iterator[None]:
    """Some tests run a command in this process, which configures logging as its own."""
    root = logging.getLogger()
    before = [*root.handlers]
    yield
    root.handlers = [handler for handler in root.handlers if handler in before]


@pytest.fixture(autouse=True)
def _time_is_real() -> None:
    """The Raft library's clock is a module global: tests on virtual time leave theirs behind."""
    use_clock(steady_s)
