"""Ctrl-C at the command `mqaudit`, with a real Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mqspark.testing.synthetic import Run, write_run

RUN = Run(messages=200, queues=4, batch=20, segment_bytes=65_536)


@pytest.mark.parametrize("step", ["starting Spark", "reading the history"])
def test_ctrl_c_ends_an_audit_with_one_line_and_leaves_nothing(tmp_path: Path, step: str) -> None:
    """Ctrl-C reaches Java, too, and leaves one line, no traceback, no process and no file."""
    history, stores = write_run(RUN, tmp_path / "run")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = [sys.executable, "-m", "mqspark.mqaudit", "--history", str(history)]
    words += [word for store in stores for word in ("--store", str(store))]
    with subprocess.Popen(
        words,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    ) as audit:
        assert audit.stderr is not None
        while step not in (line := audit.stderr.readline()):
            assert line, f"it ended before {step!r}"
        os.killpg(audit.pid, signal.SIGINT)
        said = audit.stderr.read()
    assert audit.returncode == 130
    *steps, last = said.splitlines()
    assert last == "mqaudit: interrupted; nothing was judged"
    assert [line for line in steps if " s  " not in line] == []
    deadline = time.monotonic() + 60
    while living := _in_group(audit.pid):
        assert time.monotonic() < deadline, f"{living} live on"
        time.sleep(0.05)
    assert not any(temporary.iterdir())


def _in_group(group: int) -> list[str]:
    """Names of processes in a group, without zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().rpartition(")")
            state, _parent, its_group = rest.split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(name)
    return found
