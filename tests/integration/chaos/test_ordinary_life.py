"""Consumers are deployed anew and topics get queues, under load: the group gets all, once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]


@pytest.mark.parametrize("scenario", ["calm", "leader-kill"])
@pytest.mark.parametrize(
    ("workload", "told"),
    [
        ("deploy", "consumers were deployed"),
        ("deploy-ordered", "consumers were deployed"),
        ("deploy-pop", "consumers were deployed"),
        ("deploy-broadcast", "consumers were deployed"),
        ("deploy-blocking", "consumers were deployed"),
        ("widened", "messages were sent to queues younger than the group"),
        ("forked", "forked producers had"),
        ("administered", "tools did"),
        ("administered-pop", "tools did"),
        ("resets", "tools did"),
        ("distant", " keys, of which"),
    ],
)
def test_a_group_is_given_all_that_was_acknowledged(
    tmp_path: Path, workload: str, told: str, scenario: str
) -> None:
    """A group gets each message, and without leader kills none twice and none late."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mqchaos.mqchaos", "run", "--scenario", scenario),
            *("--kills", "4", "--workload", workload, "--seed", "1"),
            *("--dir", str(tmp_path / "run")),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "run" / "report" / "report.json").read_text())
    (counted,) = [note for note in report["notes"] if told in note]
    assert not counted.startswith(("0 messages", "consumers were deployed 0")), counted
