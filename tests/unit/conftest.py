"""Fixtures for tests of single parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from trio.testing import MockClock

from dledger.testing.virtual import VirtualWorld
from dledger.world import in_world


@pytest.fixture
def virtual_world(autojump_clock: MockClock) -> Iterator[None]:
    """Time is the event loop's and jumps; what would wait for a thread is done at once."""
    with in_world(VirtualWorld(autojump_clock)):
        yield
