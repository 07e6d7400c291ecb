"""Standstills of processes, for tests whose result must not depend on the machine's speed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from dledger.testing.standstills import STANDS_S, processes_of, runs, standing_still

PROGRAM = """
import time
from dledger.testing.standstills import standing_still

with standing_still(seed=1):
    gaps, before, ends = [], time.monotonic(), time.monotonic() + 60
    while time.monotonic() < ends and len(gaps) < 3:
        now = time.monotonic()
        if now - before >= {least_s}:
            gaps.append(now - before)
        before = now
print(len(gaps))
"""


@pytest.mark.slow
def test_a_process_stands_still_again_and_again_and_its_helper_ends_with_it() -> None:
    """A process is stopped again and again for a tenth of a second or more."""
    program = PROGRAM.format(least_s=STANDS_S[0])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "3\n"
    assert done.stderr == ""


@pytest.mark.slow
def test_what_somebody_else_has_stopped_stays_stopped() -> None:
    """A test of pauses would meet a node that goes on too early."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as paused:
        try:
            paused.send_signal(signal.SIGSTOP)
            while runs(paused.pid):
                time.sleep(0.001)
            with standing_still(seed=2):
                ends_s = time.monotonic() + 1.5
                while time.monotonic() < ends_s:
                    assert not runs(paused.pid)
        finally:
            paused.kill()


def test_a_process_and_all_that_it_started_stand_still_together() -> None:
    """A process is stopped with its children, and with theirs."""
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as shell:
        try:
            ends_s = time.monotonic() + 30
            while len(processes_of(shell.pid)) < 2 and time.monotonic() < ends_s:
                time.sleep(0.001)
            assert len(processes_of(shell.pid)) == 2
        finally:
            for pid in reversed(processes_of(shell.pid)):
                os.kill(pid, signal.SIGKILL)
