"""mqchaos as a person types it: leaders die under load, and the verdict is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from mqchaos.faults.generator import After, Phase, Step
from mqchaos.faults.targets import Target
from mqchaos.network import needs
from mqchaos.run.load.workload import WORKLOADS
from mqchaos.run.planned import read_plan
from mqchaos.run.scenarios import SCENARIOS, random_plan

pytestmark = pytest.mark.spark


def mqchaos(*arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mqchaos.mqchaos", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.mark.long
def test_two_leaders_die_and_nothing_is_lost(tmp_path: Path) -> None:
    """Two leaders' deaths cause no loss, short gaps, and no exception.

    The short form is the demo's test.
    """
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
    """A leader under SIGSTOP is replaced while sends go on, and nothing is lost."""
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("workload", "judged"),
    [
        ("delayed", (6, 7, 8, 11, 12)),
        ("transactional", (6, 7, 8, 10, 12)),
        ("exactly-once", (1, 2, 8, 9, 14)),
        ("pop", (1, 2, 9, 11, 15)),
        ("priority", (1, 2, 9, 15, 16)),
        ("parts", (1, 2, 4, 8)),
    ],
)
def test_each_workload_survives_a_leader(
    tmp_path: Path, workload: str, judged: tuple[int, ...]
) -> None:
    """A workload's messages are done once, though the leader dies and clients are killed."""
    directory = tmp_path / "run"

    done = mqchaos(
        *("run", "--scenario", "leader-kill", "--workload", workload, "--kills", "1"),
        *("--dir", str(directory)),
        timeout_s=240,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    verdict = json.loads((directory / "report" / "audit" / "verdict.json").read_text())
    checked = {item["number"]: item["checked"] for item in verdict["properties"]}
    assert all(checked[number] for number in judged)


@pytest.mark.long
def test_no_send_is_lost_or_refused_while_all_is_renewed(tmp_path: Path) -> None:
    """Certificates and the secret are renewed under sends, and the leader dies in the middle."""
    directory = tmp_path / "run"

    done = mqchaos(
        *("run", "--scenario", "renewals", "--kills", "2", "--dir", str(directory)), timeout_s=300
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((directory / "report" / "report.json").read_text())
    assert found["counts"]["acknowledged"] == found["counts"]["sent"] > 0
    assert found["exceptions"] == 0
    assert [gap["fault"] for gap in found["gaps"]] == [
        "renew-certificates",
        "kill",
        "renew-secret",
        "kill",
    ]


@pytest.mark.long
def test_each_cut_of_clients_meets_their_traffic(tmp_path: Path) -> None:
    """Four cuts of clients meet their traffic, in the kernel's network, where TCP waits long."""
    lacks = needs.no_namespaces()
    if lacks is not None:
        pytest.skip(lacks)
    directory = tmp_path / "run"

    done = mqchaos(
        *("run", "--scenario", "clients-cut", "--network", "namespaces", "--seed", "5"),
        *("--kills", "4", "--dir", str(directory)),
        timeout_s=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((directory / "report" / "report.json").read_text())
    assert [gap["fault"] for gap in found["gaps"]] == ["cut-clients"] * 4


def test_an_unknown_workload_is_refused(tmp_path: Path) -> None:
    """A typing error starts nothing."""
    arguments = ("--scenario", "leader-kill", "--workload", "delaid", "--dir", str(tmp_path / "r"))

    done = mqchaos("run", *arguments)

    assert done.returncode == 2
    assert done.stderr == (
        f"mqchaos: there is no workload 'delaid'; there are {', '.join(WORKLOADS)}\n"
    )


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
    assert done.stderr == f"{tmp_path} is not empty: this needs a directory of its own\n"


def test_an_unknown_scenario_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    """A typing error starts nothing."""
    done = mqchaos("run", "--scenario", "laeder-kill", "--dir", str(tmp_path / "run"))

    assert done.returncode == 2
    assert done.stderr == (
        f"mqchaos: there is no scenario 'laeder-kill'; there are {', '.join(SCENARIOS)}, random\n"
    )


def test_what_can_not_be_run_is_refused(tmp_path: Path) -> None:
    """A wrong workload, duration or plan is refused by name and value before any start."""
    here = ("--dir", str(tmp_path / "run"))
    wrong_workload = mqchaos("run", "--scenario", "random", "--workload", "mud", *here)
    wrong_duration = mqchaos("run", "--scenario", "random", "--duration", "0", *here)
    wrong_seed = mqchaos("run", "--scenario", "random", "--seed", str(2**62), *here)
    no_plan = mqchaos("replay", str(tmp_path), *here)
    no_source = mqchaos("replay", *here)
    too_busy = mqchaos("replay", str(tmp_path), "--busy", "65", *here)
    no_hours = mqchaos("soak", "--hours", "-1", *here)
    no_runs = mqchaos("shrink", str(tmp_path), "--repeat", "0", *here)

    refused = (wrong_workload, wrong_duration, wrong_seed, no_plan, no_source, too_busy)
    assert {each.returncode for each in refused} == {2}
    assert "there is no workload 'mud'; there are keyed, spread, large, churn" in (
        wrong_workload.stderr
    )
    assert "--duration is 0.0; it must be from 1.0 to" in wrong_duration.stderr
    assert f"--seed is {2**62}; it must be from 0 to" in wrong_seed.stderr
    assert f"{tmp_path}/plan.json: No such file" in no_plan.stderr
    assert no_source.stderr == "mqchaos: name the run or the plan to replay\n"
    assert too_busy.stderr == "mqchaos: --busy is 65; it must be from 0 to 64\n"
    assert "--hours is -1.0" in no_hours.stderr
    assert "--repeat is 0" in no_runs.stderr


@pytest.mark.long
def test_a_random_run_is_replayed(tmp_path: Path) -> None:
    """A replay has the same plan, step by step, from the run's file."""
    first, second = tmp_path / "first", tmp_path / "second"

    ran = mqchaos(
        *("run", "--scenario", "random", "--seed", "11", "--duration", "15"),
        *("--workload", "churn", "--dir", str(first)),
        timeout_s=300,
    )
    replayed = mqchaos("replay", str(first), "--dir", str(second), timeout_s=300)

    assert ran.returncode == replayed.returncode == 0, ran.stdout + replayed.stdout
    assert (first / "plan.json").read_bytes() == (second / "plan.json").read_bytes()


@pytest.mark.long
def test_several_plans_are_replayed_on_a_busy_machine(tmp_path: Path) -> None:
    """Plans are replayed one after the other, until one fails, whose run is kept."""
    holds, fails = tmp_path / "holds.json", tmp_path / "fails.json"
    quiet = replace(random_plan(1, 10.0), steps=(), messages=500, rate_per_s=500.0)
    steps = (
        Step(After(0.5), Phase.INJECT, Target.ALL, 0.0, "kill-all", "a"),
        Step(After(2.0), Phase.HEAL, Target.HURT, name="a"),
        Step(After(0.0), Phase.LEVEL, Target.GROUP),
    )
    deadly = replace(quiet, steps=steps, messages=None, send_timeout_s=1.0)
    holds.write_bytes(msgspec.json.encode(quiet))
    fails.write_bytes(msgspec.json.encode(deadly))
    directory = tmp_path / "replays"

    done = mqchaos(
        *("replay", str(holds), str(holds), str(fails), str(holds), "--busy", "1"),
        *("--dir", str(directory)),
        timeout_s=600,
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert [line.split(",")[0] for line in done.stdout.splitlines()[:3]] == ["seed 1"] * 3
    assert "ended in an exception" in (directory / "soak.html").read_text()
    left = sorted(path.name for path in directory.iterdir())
    assert left == ["reports", "seed-1-3", "soak.html", "soak.jsonl"]
    assert read_plan(directory / "seed-1-3").busy == 1


@pytest.mark.long
def test_a_plan_is_made_smaller_while_its_violation_stays(tmp_path: Path) -> None:
    """Sends that wait a second at most fail when all nodes die; the rest of the plan goes."""
    plan, small = tmp_path / "plan.json", tmp_path / "small"
    steps = (
        Step(After(1.0), Phase.INJECT, Target.LEADER, 0.0, "transfer", "a"),
        Step(After(0.5), Phase.INJECT, Target.ALL, 0.0, "kill-all", "b"),
        Step(After(2.0), Phase.HEAL, Target.HURT, name="b"),
        Step(After(0.0), Phase.LEVEL, Target.GROUP),
    )
    random = random_plan(1, 10.0)
    planned = replace(random, steps=steps, send_timeout_s=1.0, rate_per_s=500.0)
    plan.write_bytes(msgspec.json.encode(planned))

    done = mqchaos("shrink", str(plan), "--repeat", "1", "--dir", str(small), timeout_s=900)

    assert done.returncode == 0, done.stdout + done.stderr
    found = read_plan(small / "smallest")
    assert [step.name for step in found.steps] == ["b", "b"]
    assert "an exception reached the application" in done.stdout
    assert (small / "smallest" / "history").is_dir()


@pytest.mark.long
def test_a_soak_leaves_its_reports_and_one_page(tmp_path: Path) -> None:
    """A soak finishes one run, whatever the hours, and leaves reports and a page."""
    done = mqchaos(
        *("soak", "--hours", "0.001", "--duration", "5", "--seed", "5"),
        *("--dir", str(tmp_path / "soak")),
        timeout_s=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    left = sorted(path.name for path in (tmp_path / "soak").iterdir())
    assert left == ["reports", "soak.html", "soak.jsonl"]
    assert "Every property held in every run" in (tmp_path / "soak" / "soak.html").read_text()
