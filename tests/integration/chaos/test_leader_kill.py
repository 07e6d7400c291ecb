"""mqchaos as a person types it: leaders die under load, and the verdict is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mqchaos.run.scenarios import SCENARIOS

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def mqchaos(*arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mqchaos.mqchaos", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_two_leaders_die_and_nothing_is_lost(tmp_path: Path) -> None:
    """The short form of the twenty kills: no loss, short gaps, no exception in the application."""
    directory = tmp_path / "run"
    scenario = ("--scenario", "leader-kill", "--kills", "2", "--seed", "7")

    done = mqchaos("run", *scenario, "--dir", str(directory), timeout_s=240)

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((directory / "report" / "report.json").read_text())
    assert found["counts"]["lost"] == 0
    assert found["counts"]["replicas_equal"]
    assert found["exceptions"] == 0
    assert len(found["gaps"]) == 2
    assert f"replay: mqchaos run {' '.join(('--scenario', 'leader-kill'))} --seed 7" in done.stdout


@pytest.mark.long
def test_a_leader_that_stands_still_is_replaced_and_none_the_wiser(tmp_path: Path) -> None:
    """SIGSTOP while sends go on: another leads, the old one wakes up, and nothing is lost."""
    directory = tmp_path / "run"

    done = mqchaos(
        *("run", "--scenario", "leader-pause", "--times", "1", "--seed", "3"),
        *("--dir", str(directory)),
        timeout_s=240,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((directory / "report" / "report.json").read_text())
    assert found["counts"]["lost"] == found["exceptions"] == 0
    assert [gap["fault"] for gap in found["gaps"]] == ["pause"]
    page = (directory / "report" / "report.html").read_text()
    assert "stands still (SIGSTOP)" in page
    assert "goes on (SIGCONT)" in page


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["rolling-restart", "follower-kill"])
def test_other_scenarios_hold_too(tmp_path: Path, scenario: str) -> None:
    """A rolling restart pauses sends for moments only, and a follower's death for none."""
    directory = tmp_path / "run"

    done = mqchaos(
        "run", "--scenario", scenario, "--kills", "1", "--dir", str(directory), timeout_s=240
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_scenarios_are_listed() -> None:
    """`mqchaos list` names what `mqchaos run` takes."""
    done = mqchaos("list")

    assert done.returncode == 0
    for name in SCENARIOS:
        assert name in done.stdout


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """Two runs are never mixed up."""
    (tmp_path / "old").touch()

    done = mqchaos("run", "--scenario", "leader-kill", "--dir", str(tmp_path))

    assert done.returncode == 2
    assert done.stderr == f"{tmp_path} is not empty: a run needs a directory of its own\n"


def test_an_unknown_scenario_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    """A typing error starts nothing."""
    done = mqchaos("run", "--scenario", "laeder-kill", "--dir", str(tmp_path / "run"))

    assert done.returncode == 2
    assert done.stderr == (
        f"there is no scenario 'laeder-kill'; there are {', '.join(SCENARIOS)}\n"
    )
