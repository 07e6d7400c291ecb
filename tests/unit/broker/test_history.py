"""Figures of a broker's last hour are true, and all of them are documented."""

from __future__ import annotations

import re
from pathlib import Path

from dledger.net import Faults
from dledger.net.quota import ConnectionQuota
from dledger.remoting.bodies import HistoryBody, decode_body
from dledger.remoting.codes import RequestCode
from mqbroker.metrics.history import Recorder
from mqbroker.testing import served
from mqbroker.testing.requests import ask, heartbeat, produce_request
from mqnamesrv.config import NamesrvConfig
from mqnamesrv.metrics import Recorder as NamesrvRecorder
from mqnamesrv.requests.dispatch import Dispatcher
from mqnamesrv.saved.kv_file import KvStore

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def documented() -> set[str]:
    """The figures that the section names."""
    section = PAGE.read_text().partition("## An hour without Prometheus")[2].partition("\n## ")[0]
    return set(re.findall(r"`([a-z_]+)`", section))


async def test_a_broker_keeps_what_happened(tmp_path: Path) -> None:
    """A broker keeps a row of figures each time, and a follower answers, too."""
    async with served(tmp_path) as (running, peer):
        recorder = Recorder(running.broker.sources, None)
        recorder.take()
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        await peer.request(produce_request("a"), 5)
        recorder.take()
        running.ledger.follow("n1")
        recorder.take()
        answer = await ask(peer, RequestCode.VIEW_HISTORY)
        body = decode_body(HistoryBody, answer.payload)
        rows = [dict(zip(body.names, row, strict=True)) for row in body.rows]
        told = ("leads", "messages_in_total", "consumers", "connections", "topics")
        first, second, third = ([row[name] for name in told] for row in rows)
        assert first[:3] == [1, 0, 0]
        assert second[:3] == [1, 3, 1]
        assert third[:3] == [0, 3, 1]
        assert second[4] > first[4]
        assert 0 < rows[0]["disk_free_bytes"] < rows[0]["disk_total_bytes"]
        assert rows[0]["memory_bytes"] > 1 << 20
        assert 40 <= len(body.names) <= 60
        assert set(body.names) - documented() == set()


def test_a_name_server_keeps_figures_that_are_documented() -> None:
    """Figures that a name server keeps are documented on their page."""
    config = NamesrvConfig()
    dispatcher = Dispatcher(config, KvStore(None), lambda: 0.0, config.door(lambda: bytes(16)))
    figures = NamesrvRecorder(dispatcher, ConnectionQuota(), Faults()).figures()
    assert (figures["broker_groups"], figures["settled"]) == (0, False)
    assert set(figures) - documented() == set()
