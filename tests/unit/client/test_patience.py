"""Clients that wait for a broker group: they ask again and again, and not at once."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from dledger.errors import RemotingError
from dledger.remoting.json_dialect import MessageQueue
from mqclient import NoLeader, RangeReader
from mqclient import limits as client_limits
from mqclient.admin.session import SessionClient
from mqclient.bulk.deciding import BatchDecider
from mqclient.connection.leaders import LeaderFinder

PATIENCE_S = 10.0


@pytest.mark.parametrize("error", [NoLeader("", (), 0.0), RemotingError("refused")])
async def test_each_refused_try_is_followed_by_a_pause(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Until the client's patience ends: then the last error is the caller's."""
    asked = 0

    async def refuse(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise error

    monkeypatch.setattr(LeaderFinder, "ask", refuse)
    clients: list[tuple[SessionClient, Any]] = [
        (decider := BatchDecider("127.0.0.1:1", patience_s=PATIENCE_S),
         lambda: decider._decision("q", "broker-a")),
        (reader := RangeReader("127.0.0.1:1", patience_s=PATIENCE_S),
         lambda: reader.read(MessageQueue("T", "broker-a", 0), 0, 1)),
    ]  # fmt: skip
    for client, ask in clients:
        asked = 0
        async with client:
            begun_s = trio.current_time()
            with pytest.raises(type(error)):
                await ask()
        assert trio.current_time() - begun_s == pytest.approx(PATIENCE_S, abs=1)
        assert 10 < asked < 2 * PATIENCE_S / client_limits.FIND_BACKOFF_MAX_S
