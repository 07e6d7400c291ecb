"""Neighbour processes make a machine busy, and end with the run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from mqchaos.cluster.busy import busy_machine, slowdown
from mqchaos.cluster.processes import Process, kill

WAIT_S = 30.0
TICKS = 10
"""Ticks of processor time, some 10 ms each."""


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition of other processes holds, or raise TimeoutError."""
    until = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.01)


def used_ticks(process: Process) -> int:
    """Processor time: fields 14 and 15 of /proc/PID/stat, proc(5)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_neighbours_use_a_processor_until_the_run_is_over() -> None:
    """Each neighbour uses a processor until the run is over."""
    with busy_machine(2) as pids:
        neighbours = [Process.of(pid) for pid in pids]
        assert len(neighbours) == 2
        for neighbour in neighbours:
            wait_until(lambda neighbour=neighbour: used_ticks(neighbour) >= TICKS)

    assert not any(neighbour.alive for neighbour in neighbours)


def test_neighbours_end_when_the_run_fails() -> None:
    """Neighbours end with any exception of the run."""
    with suppress(KeyError), busy_machine(1) as pids:
        neighbour = Process.of(pids[0])
        raise KeyError

    assert not neighbour.alive


def test_neighbours_end_when_the_harness_is_killed() -> None:
    """Neighbours end by themselves when the harness is killed."""
    code = (
        "import time; from mqchaos.cluster.busy import busy_machine\n"
        "with busy_machine(1) as pids: print(pids[0], flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as harness:
        assert harness.stdout is not None
        neighbour = Process.of(int(harness.stdout.readline()))
        assert neighbour.alive
        kill([Process.of(harness.pid)])
        harness.returncode = 0

    wait_until(lambda: not neighbour.alive)


def test_bounds_grow_as_cores_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds grow as cores are shared: with four neighbours on two, threefold."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)

    assert [slowdown(processes) for processes in (0, 2, 4)] == [1.0, 2.0, 3.0]


def test_a_quiet_machine_has_none() -> None:
    """A plan has no neighbours by default."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    with busy_machine(0) as pids:
        assert pids == []
        assert children.read_text() == before
