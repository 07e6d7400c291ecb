"""What holds for every test: examples are searched without a clock, and logs can be read."""

from __future__ import annotations

import pytest
import structlog
from hypothesis import settings

# A shared machine may stop a process for half a second: that says nothing about an example.
settings.register_profile("dledger", deadline=None, print_blob=True)
settings.load_profile("dledger")


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
