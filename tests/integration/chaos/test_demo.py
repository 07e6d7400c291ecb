"""The demo, in its short form: it proves its claims, and leaves nothing, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.verdict.form import NUMBERS

pytestmark = pytest.mark.spark

MESSAGES = 2_000


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the demo puts what it removes in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def start_demo(temporary: Path, report: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mqchaos.demo", "--report", str(report), *arguments],
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def processes_below(folder: Path) -> Iterator[str]:
    """Command lines of running processes that name this folder."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            yield line


def test_the_main_job_loses_nothing_and_says_so(tmp_path: Path, temporary: Path) -> None:
    """The demo holds under two kills: in its table, its report and its status."""
    report = tmp_path / "report"

    demo = start_demo(temporary, report, "--messages", str(MESSAGES))
    printed, _ = demo.communicate(timeout=240)

    assert demo.returncode == 0, printed
    found = json.loads((report / "report.json").read_text())
    assert found["holds"]
    assert found["counts"]["acknowledged"] == found["counts"]["sent"] == MESSAGES
    assert set(found["counts"]["stored"].values()) == {MESSAGES}
    assert found["counts"]["lost"] == found["counts"]["duplicated"] == 0
    assert [each["number"] for each in found["properties"]] == [*NUMBERS]
    assert len(found["gaps"]) == 2
    assert "Every property that could be judged holds" in printed
    assert "nothing to judge" in printed
    assert "<svg" in (report / "report.html").read_text()
    assert list(temporary.iterdir()) == []
    assert list(processes_below(tmp_path)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_without_a_rest(
    tmp_path: Path, temporary: Path, number: signal.Signals
) -> None:
    """A signal in the middle of the load stops every server and worker, and removes the files."""
    demo = start_demo(temporary, tmp_path / "report", "--messages", str(MESSAGES))
    deadline = time.monotonic() + 30
    while sum("mqchaos.run.load.work" in line for line in processes_below(temporary)) < 4:
        assert time.monotonic() < deadline, "the workers did not start"
        time.sleep(0.05)

    demo.send_signal(number)
    printed, _ = demo.communicate(timeout=30)

    assert demo.returncode == 128 + number
    assert f"ended by {number.name}" in printed
    assert list(temporary.iterdir()) == []
    assert list(processes_below(tmp_path)) == []


def test_an_input_that_can_not_be_read_is_refused_before_anything_starts(
    tmp_path: Path, temporary: Path
) -> None:
    """The message names the file; nothing was started."""
    demo = start_demo(temporary, tmp_path / "report", "--input", str(tmp_path / "nowhere.txt"))
    printed, _ = demo.communicate(timeout=30)

    assert demo.returncode == 2
    assert (
        printed
        == f"the input {tmp_path / 'nowhere.txt'} can't be read: No such file or directory\n"
    )
