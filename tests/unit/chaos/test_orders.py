"""Orders for a node's failpoints, and how long the harness waits until they are taken."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from dledger.program.arming import REACHED, Reached
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan
from mqchaos.cluster.processes import ClusterError
from mqchaos.faults.failpoints import orders
from mqchaos.limits import EFFECT_S, START_TIMEOUT_S

NODE = "broker-a-n0"
PID = 4711


class Starting:
    """A process that has read its orders once it has started, and then reads them when told."""

    def __init__(self, cluster: Cluster, *, answers: bool) -> None:
        self._cluster, self._answers = cluster, answers

    async def start(self, seconds: float) -> None:
        """Load modules for some seconds."""
        await trio.sleep(seconds)
        self.say(0)

    def signalled(self, pid: int, _signal: int) -> None:
        """Read the orders, if the process answers."""
        assert pid == PID
        if self._answers:
            self.say(orders.ordered(self._cluster, NODE).number)

    def say(self, number: int) -> None:
        """Write down which orders were taken."""
        told = Reached(number, "", "orders", PID)
        with (self._cluster.orders(NODE) / REACHED).open("ab") as file:
            file.write(msgspec.json.encode(told) + b"\n")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster with one node, whose process the test plays."""
    made = Cluster.create(tmp_path / "cluster", plan([*range(20_001, 20_012)], 3, 1, 1))
    made.orders(NODE).mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(made, "pid", lambda name: PID)
    monkeypatch.setattr(made, "stopped", lambda name: False)
    return made


async def test_a_process_that_takes_long_to_start_is_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A process that starts slowly is waited for, since it takes orders only then."""
    process = Starting(cluster, answers=True)
    monkeypatch.setattr(orders.os, "kill", process.signalled)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.start, START_TIMEOUT_S / 2)
        await orders.note_places(cluster, NODE)
    assert trio.current_time() < START_TIMEOUT_S / 2 + EFFECT_S


@pytest.mark.parametrize(("starts_after_s", "told_by_s"), [(10.0, 15.0), (1000.0, 60.0)])
async def test_a_process_that_takes_none_is_not_waited_for_for_ever(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
    starts_after_s: float,
    told_by_s: float,
) -> None:
    """A process that ignores orders, or never starts, is given up."""
    process = Starting(cluster, answers=False)
    monkeypatch.setattr(orders.os, "kill", process.signalled)
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.start, starts_after_s)
        with pytest.raises(ClusterError, match="took no orders"):
            await orders.note_places(cluster, NODE)
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began_s == pytest.approx(told_by_s, abs=1)
