"""Fixtures of the pytest plugin, as a user's tests have them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mqclient import Message
from mqlocal import LocalCluster, ThreadedCluster

FAILING = """
import trio
from mqclient import Message

async def test_it(mq_cluster, autojump_clock):
    async with mq_cluster.producer("P") as producer:
        await mq_cluster.kill("namesrv-0")
        await trio.sleep(30)
        assert (await producer.send(Message("T", b"x"))).queue_id == 99
"""


@pytest.mark.mq_cluster(replicas=1, groups=2)
async def test_a_marker_says_what_the_cluster_is(
    mq_cluster: LocalCluster, autojump_clock: object
) -> None:
    """A marker sets the cluster's size, here one replica."""
    assert mq_cluster.servers == ("namesrv-0", "broker-a-n0", "broker-b-n0")
    async with mq_cluster.producer("P") as producer:
        assert (await producer.send(Message("T", b"x"))).topic == "T"


@pytest.mark.mq_cluster(replicas=1)
def test_any_test_has_one_in_a_thread(mq_cluster_in_thread: ThreadedCluster) -> None:
    """A plain test has a cluster in a thread, without an event loop."""
    with mq_cluster_in_thread.producer("P") as producer:
        assert producer.send(Message("T", b"x")).topic == "T"


@pytest.mark.slow
def test_a_test_that_fails_shows_what_the_servers_warned_of(tmp_path: Path) -> None:
    """A failing test shows the servers' warnings with their names."""
    (tmp_path / "test_it.py").write_text(FAILING)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "mqlocal.plugin", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1, done.stdout + done.stderr
    captured = done.stdout.partition("Captured log call")[2]
    warned = [line for line in captured.splitlines() if "name server not reached" in line]
    assert {line.partition("server='")[2].partition("'")[0] for line in warned} == {
        "broker-a-n0",
        "broker-a-n1",
        "broker-a-n2",
    }
