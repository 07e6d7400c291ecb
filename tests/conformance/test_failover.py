"""A leader dies under steady sends of stock Java producers; the long form is in `failover`."""

from __future__ import annotations

import io
import time
from pathlib import Path

import failover
import trio
from clients import CLIENTS, ready

from mqchaos.cluster.cluster import Cluster

POLL_MS = 10_000
"""An application may shorten the route poll of 30 s: so the suite waits less."""


def test_a_leader_dies_and_stock_applications_go_on(cluster: Cluster, tmp_path: Path) -> None:
    """Two groups cause no exception and no send above 3 s; one serves after the route poll."""
    for client in CLIENTS[:2]:
        ready(client)
    trio.run(failover.make_topics, cluster)
    with failover.steady(("java4", "java5"), cluster, tmp_path, POLL_MS) as runs:
        time.sleep(2)
        failover.kill_leader(
            cluster, cluster.layout.brokers[0], io.StringIO(), down_s=POLL_MS / 1000
        )
        time.sleep(3)
        for run in runs:
            run.drain(POLL_MS / 1000 + failover.DRAIN_MARGIN_S)
    failover.report(runs)
    assert failover.verdicts(runs, POLL_MS / 1000 + failover.LEADERLESS_S) == []


def test_a_message_that_is_sent_until_it_is_acknowledged_is_stored_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Each kill leaves sends that are stored and unanswered: sent again, they are retries."""
    client = CLIENTS[1]
    ready(client)
    trio.run(failover.make_topics, cluster)
    with failover.impatient(client, cluster, tmp_path) as run:
        for _ in range(4):
            time.sleep(2)
            failover.kill_leader(cluster, cluster.layout.brokers[0], io.StringIO(), down_s=3)
        time.sleep(2)
        run.drain(failover.DRAIN_MARGIN_S)
    failover.report([run])
    assert run.of("again")
    assert failover.verdicts([run], failover.STOCK_POLL_MS / 1000) == []
