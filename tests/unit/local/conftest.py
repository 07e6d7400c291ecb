"""Fixtures for tests of clusters in this process."""

from __future__ import annotations

import pytest

from mqclient import limits


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies from 1,000 bytes on are large, and a part has 400: for speed."""
    monkeypatch.setattr("mqclient.producing.producer.MESSAGE_BODY_BYTES_MAX", 1000)
    monkeypatch.setattr(limits, "LARGE_PART_BYTES", 400)
