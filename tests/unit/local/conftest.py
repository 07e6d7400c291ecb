"""Fixtures for tests of clusters in this process."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from mqclient import limits


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies from 1,000 bytes on are large, and a part has 400: for speed."""
    monkeypatch.setattr("mqclient.producing.producer.MESSAGE_BODY_BYTES_MAX", 1000)
    monkeypatch.setattr(limits, "LARGE_PART_BYTES", 400)


@pytest.fixture(autouse=True)
def _virtual_time(autojump_clock: MockClock) -> None:
    """Coroutines of these tests have virtual time; blocking clients, in threads, have real time."""
