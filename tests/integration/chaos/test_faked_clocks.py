"""Clocks of whole processes: a broker's are moved, but for the one that never jumps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from clusters import serving_cluster

from mqchaos.cluster import faked_clock
from mqchaos.cluster.cluster import Cluster
from mqchaos.faults.fault import FAULTS
from mqchaos.faults.kinds import CLOCK_AHEAD, CLOCK_BEHIND, CLOCK_STROBE
from mqchaos.limits import CLOCK_JUMP_S, FAKED_SEEN_S, STROBE_JUMP_S
from mqclient import Consumer, Message, Producer

LOOKS = """
import sys, time
for line in sys.stdin:
    print(time.time(), time.monotonic(), flush=True)
"""
TOPIC = "Timed"


@pytest.fixture(autouse=True)
def skip_without() -> None:
    """Where libfaketime is not installed, or does not work."""
    problem = faked_clock.no_faked_clocks()
    if problem is not None:
        pytest.skip(problem)


def test_a_process_sees_each_jump_within_a_second_and_time_goes_on(tmp_path: Path) -> None:
    """A process sees each jump of its wall clock, and its waits do not."""
    faked_clock.put_ahead(tmp_path, 0.0)
    environment = {**os.environ, **faked_clock.environment(tmp_path)}
    argv = [sys.executable, "-c", LOOKS]
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for ahead_s in (0.0, 60.0, -60.0, 0.5, 0.0):
            faked_clock.put_ahead(tmp_path, ahead_s)
            time.sleep(FAKED_SEEN_S)
            process.stdin.write("\n")
            process.stdin.flush()
            wall, steady = map(float, process.stdout.readline().split())
            assert wall - time.time() == pytest.approx(ahead_s, abs=0.3)
            assert steady - time.monotonic() == pytest.approx(0.0, abs=0.3)
            assert faked_clock.ahead_s(tmp_path, process.pid) == ahead_s
        process.stdin.close()
    assert faked_clock.ahead_s(tmp_path, os.getpid()) is None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and a single broker whose clock can be moved."""
    with serving_cluster(tmp_path_factory.mktemp("chaos"), nodes=1, clocks=True) as cluster:
        yield cluster


async def stored_ahead_s(cluster: Cluster) -> float:
    """Seconds by which a message's store time is ahead of our clock."""
    address = cluster.layout.namesrv_addr
    async with (
        Producer(address, "clocks") as producer,
        Consumer(address, "clocks", {TOPIC: "*"}) as consumer,
    ):
        sent = await producer.send(Message(TOPIC, b"x"))
        while True:
            for message in await consumer.poll(64, timeout_s=0.5):
                if message.message_id == sent.message_id:
                    return message.store_timestamp_ms / 1000 - time.time()


@pytest.mark.parametrize(
    ("kind", "jump_s"), [(CLOCK_AHEAD, CLOCK_JUMP_S), (CLOCK_BEHIND, None), (CLOCK_STROBE, None)]
)
def test_a_brokers_clock_jumps_for_all_of_it(
    cluster: Cluster, kind: object, jump_s: float | None
) -> None:
    """A broker's clock jumps without an order, as the store times of messages show."""
    fault, nodes = FAULTS[kind.name], cluster.layout.nodes  # type: ignore[attr-defined]

    async def run() -> None:
        with trio.fail_after(60):
            assert fault.why_not(cluster, nodes) is None
            await fault.inject(cluster, nodes)
            assert await fault.took_effect(cluster, nodes)
            if jump_s is not None:
                assert await stored_ahead_s(cluster) == pytest.approx(jump_s, abs=10)
            elif fault.kind is CLOCK_STROBE:
                seen = set()
                while len(seen) < 2:
                    pid = cluster.pid(nodes[0].name)
                    assert pid is not None
                    seen.add(faked_clock.ahead_s(cluster.folder(nodes[0].name), pid))
                    await trio.sleep(0.01)
                assert seen == {STROBE_JUMP_S, -STROBE_JUMP_S}
            await fault.heal(cluster, nodes)
            assert not await fault.took_effect(cluster, nodes)

    trio.run(run)
