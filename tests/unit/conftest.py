"""What tests of single parts share."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature

import pytest
import trio

from dledger.testing.virtual import VirtualWorld
from dledger.world import in_world


@pytest.fixture
def virtual_world(
    request: pytest.FixtureRequest, autojump_clock: trio.testing.MockClock
) -> Iterator[None]:
    """Time is the event loop's and jumps; what would wait for a thread is done at once.

    The test takes `autojump_clock`, too: pytest-trio looks for the clock among its parameters only.
    """
    assert "autojump_clock" in signature(request.function).parameters, "its time would be real"
    with in_world(VirtualWorld(autojump_clock)):
        yield
