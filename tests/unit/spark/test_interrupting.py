"""Ctrl-C in the middle of an audit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import subprocess, sys, tempfile, time
from mqspark.processes.interrupting import end_on_interrupt, own_temporary_files, was_interrupted

end_on_interrupt()
try:
    with own_temporary_files():
        child = subprocess.Popen(["sleep", "600"])
        tempfile.mkdtemp()
        print(child.pid, tempfile.gettempdir(), flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    sys.exit(f"{was_interrupted()} {child.wait()}")
"""


def test_ctrl_c_leaves_no_child_and_no_file(tmp_path: Path) -> None:
    """Ctrl-C leaves no child and no file, also twice, and raises an error of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as program:
        assert program.stdout is not None
        child, folder = program.stdout.readline().split()
        assert any(Path(folder).iterdir())
        for _ in range(2):
            program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=60)
    assert said == f"True {-signal.SIGKILL}\n"
    assert not Path(f"/proc/{child}").exists()
    assert not any(tmp_path.iterdir())
