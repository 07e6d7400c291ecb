"""Commands whose output is not read to the end."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Runs a command into a pipe whose reader has gone, and says its status.
SCRIPT = '{ sleep 0.2; "$0" -P -m "$@"; echo "status $?" >&2; } | true'


@pytest.mark.parametrize(
    "command",
    [
        "mqclient.commands --help",
        "mqchaos.mqchaos list",
        "mqchaos.mqcluster --help",
        "mqbroker --help",
    ],
)
def test_a_reader_may_leave(command: str) -> None:
    """A command keeps its own status when `| head` leaves, and says nothing of a broken pipe."""
    ran = subprocess.run(
        ["bash", "-c", SCRIPT, sys.executable, *command.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.stderr == "status 0\n"
