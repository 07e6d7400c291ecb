"""What holds for every test: examples have no deadline, logs can be read, time is real.

The suites run in an order: what fails within seconds first, and last the stock clients, whose
cluster of six brokers stands as long as they run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from dledger.raft.library import monotonic, use_clock

# A shared machine may stop a process for half a second: that says nothing about an example.
settings.register_profile("dledger", deadline=None, print_blob=True)
settings.register_profile("long", settings.get_profile("dledger"), max_examples=20_000)
settings.load_profile("dledger")

SUITES = ("tidy", "unit", "contracts", "hostile", "fuzz", "integration", "conformance")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the suites in their order; within one all stays as it is."""
    here = Path(__file__).parent
    items.sort(key=lambda item: SUITES.index(item.path.relative_to(here).parts[0]))


def log_everything() -> None:
    """Every level, and no logger kept from another configuration: `capture_logs` sees it all."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(0), cache_logger_on_first_use=False
    )


log_everything()


@pytest.fixture(autouse=True)
def _logs_can_be_read() -> None:
    """Some tests configure logging as a command does."""
    log_everything()


@pytest.fixture(autouse=True)
def _time_is_real() -> None:
    """The Raft library's clock is a module global: tests on virtual time leave theirs behind."""
    use_clock(monotonic)
