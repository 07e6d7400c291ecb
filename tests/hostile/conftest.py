"""Imports and assertion messages for the helpers beside these tests."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from trio.testing import MockClock

pytest.register_assert_rewrite("replicas")
sys.path.insert(0, str(Path(__file__).parent))

from replicas import Group, group  # noqa: E402 -- beside this file, which is no package


@pytest.fixture
async def found(tmp_path: Path, mock_clock: MockClock) -> AsyncIterator[Group]:
    """A group that serves; whatever a test did to it, it does so in the end, and replicas agree."""
    async with group(tmp_path) as found:
        yield found
        found.agree()
        await found.serves()
        found.agree()
