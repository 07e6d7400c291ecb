"""The examples run as they stand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def python(*arguments: str) -> str:
    """Run Python and return what it printed; its errors are shown if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_log_works_without_a_broker() -> None:
    """examples/ledger.py: three nodes hold the same entries."""
    printed = python("examples/ledger.py").splitlines()

    assert [line.endswith("key-9 = value-999") for line in printed].count(True) == 3


def test_the_quickstart_sends_and_reads_ten_messages(tmp_path: Path) -> None:
    """examples/quickstart.py against a cluster that mqcluster started."""
    directory = str(tmp_path / "cluster")
    up = python("-m", "chaos.mqcluster", "up", "--dir", directory, "-o", "json")
    try:
        printed = python("examples/quickstart.py", json.loads(up)["namesrv_addr"])
    finally:
        python("-m", "chaos.mqcluster", "down", "--dir", directory)

    assert printed.count("sent ") == printed.count("read ") == 10


def test_a_failover_is_a_pause(tmp_path: Path) -> None:
    """examples/failover.py: all 300 sends are acknowledged, by two leaders."""
    printed = python("examples/failover.py")

    assert "300 messages acknowledged" in printed
    assert "leader before: broker-a-n" in printed
    assert "(term 1)" in printed
