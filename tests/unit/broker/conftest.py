"""A broker on a ledger in memory, for tests of its requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger.net import Peer
from mqbroker.testing import MemoryBroker, served


@pytest.fixture
async def broker_and_peer(tmp_path: Path) -> AsyncIterator[tuple[MemoryBroker, Peer]]:
    """A broker that keeps its queues in `tmp_path`, and a connection to it."""
    async with served(tmp_path) as both:
        yield both


@pytest.fixture
def broker(broker_and_peer: tuple[MemoryBroker, Peer]) -> MemoryBroker:
    return broker_and_peer[0]


@pytest.fixture
def peer(broker_and_peer: tuple[MemoryBroker, Peer]) -> Peer:
    """A connection to the broker."""
    return broker_and_peer[1]
