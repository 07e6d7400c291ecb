"""Fixtures for tests of real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from .prometheus import tools_or_skip


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder with prometheus and promtool."""
    return tools_or_skip()
