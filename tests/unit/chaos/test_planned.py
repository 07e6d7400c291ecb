"""A plan as a file can be run again; a wrong one is refused by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import ConfigError
from mqchaos.limits import SEED_MAX
from mqchaos.run import again
from mqchaos.run.again import plan_of
from mqchaos.run.load.workload import WORKLOADS
from mqchaos.run.planned import PLAN_FILE, Made, Planned, read_plan, write_plan
from mqchaos.run.scenarios import MAIN_JOB, SCENARIOS, planned_of, random_plan


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_plan_that_is_read_is_the_one_that_was_written(tmp_path: Path, name: str) -> None:
    """A scenario's plan is read as it was written."""
    planned = planned_of(SCENARIOS[name], 7, 3)
    write_plan(tmp_path, planned)

    assert read_plan(tmp_path) == read_plan(tmp_path / PLAN_FILE) == planned


@given(st.integers(0, SEED_MAX), st.sampled_from(sorted(WORKLOADS)))
def test_random_plans_are_files_too(
    tmp_path_factory: pytest.TempPathFactory, seed: int, workload: str
) -> None:
    """A random plan is read as it was written, whatever the seed."""
    planned = random_plan(seed, 30.0, workload)
    folder = tmp_path_factory.getbasetemp()
    write_plan(folder, planned)

    assert read_plan(folder) == planned


def test_a_plan_knows_the_command_that_draws_it() -> None:
    """A plan has the command that draws it, with all that is not the default."""
    strikes = planned_of(SCENARIOS["leader-kill"], 7, 3)

    assert strikes.drawn_by == "mqchaos run --scenario leader-kill --seed 7 --kills 3 --dir NEW-DIR"
    assert random_plan(8, 30.0, "churn").drawn_by == (
        "mqchaos run --scenario random --seed 8 --duration 30.0 --workload churn --dir NEW-DIR"
    )


def test_a_plan_can_be_run_again_on_a_busier_machine(tmp_path: Path) -> None:
    """A plan may run on a busier machine, which no seed draws, so its command says so.

    By itself it is as busy as it says.
    """
    quiet = random_plan(8, 30.0)
    busy = random_plan(8, 30.0, made=Made(busy=4))

    assert "--busy" not in quiet.drawn_by
    assert "--busy 4" in busy.drawn_by
    folders = tmp_path / "quiet", tmp_path / "busy"
    for folder, planned in zip(folders, (quiet, busy), strict=True):
        folder.mkdir()
        write_plan(folder, planned)
    redrawn = [
        f"mqchaos replay {folder} --busy {processes} --dir NEW-DIR"
        for folder, processes in zip(folders, (4, 0), strict=True)
    ]
    assert plan_of(folders[1], None) == busy
    assert plan_of(folders[0], 4) == msgspec.structs.replace(busy, drawn_by=redrawn[0])
    assert plan_of(folders[1], 0) == msgspec.structs.replace(quiet, drawn_by=redrawn[1])


def test_a_plan_says_whether_all_is_encrypted_and_signed() -> None:
    """A plan knows whether all is encrypted and signed, and draws renewals of certificates only
    then.

    A scenario of renewals brings them; a stock client, which signs nothing, is refused there by
    name.
    """
    guarded = [random_plan(seed, 60.0, made=Made(tls=True, users=True)) for seed in range(40)]
    plain = [random_plan(seed, 60.0) for seed in range(40)]
    renewals = planned_of(SCENARIOS["renewals"], 1, 2)

    def faults(plans: list[Planned]) -> set[str]:
        return {step.fault for planned in plans for step in planned.steps}

    assert all("--tls --users" in planned.drawn_by for planned in guarded)
    assert "renew-certificates" in faults(guarded)
    assert "renew-certificates" not in faults(plain)
    assert "renew-secret" in faults(plain)
    assert renewals.tls
    assert renewals.users
    assert faults(guarded) >= {"clock-ahead", "clock-behind", "clock-strobe"}
    assert faults([renewals]) == {"", "kill", "renew-certificates", "renew-secret"}
    with pytest.raises(ConfigError, match="the client of the workload java5 signs nothing"):
        again.refuse_lacking(msgspec.structs.replace(renewals, workload="java5"))
    again.refuse_lacking(planned_of(SCENARIOS["clock-jumps"], 1, 3, made=Made(users=True)))


def test_a_plan_that_this_machine_can_not_do_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that this machine can't run is named, of several replayed ones, too."""
    monkeypatch.setattr(again, "no_own_disks", lambda: "it needs root")
    write_plan(tmp_path, msgspec.structs.replace(random_plan(8, 30.0), disks=True))
    with pytest.raises(ConfigError, match=f"{tmp_path}: --disks own is not available here"):
        plan_of(tmp_path, None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"workload": "mud"}, "workload 'mud'"),
        ({"seed": -1}, "seed -1; it must be from 0"),
        ({"seed": 2**64}, "seed 18446744073709551616; it must be from 0"),
        ({"nodes": 0}, "nodes 0; it must be from 1 to 7"),
        ({"namesrvs": 99}, "namesrvs 99"),
        ({"rate_per_s": 0}, "rate_per_s 0"),
        ({"busy": -1}, "busy -1; it must be from 0 to 64"),
        ({"busy": 65}, "busy 65"),
        ({"busy": 1.5}, "is not a plan"),
        ({"version": 2}, "version 2"),
        ({"send_timeout_s": -1}, "send_timeout_s -1"),
        ({"steps": "no"}, "is not a plan"),
        ({"steps": [{"phase": "inject"}]}, "is not a plan"),
        ({"color": "red"}, "is not a plan"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    """A file that is not a plan is refused with the wrong value."""
    good = msgspec.to_builtins(random_plan(1, 10.0))
    (tmp_path / PLAN_FILE).write_bytes(msgspec.json.encode(good | change))

    with pytest.raises(ConfigError, match=words):
        read_plan(tmp_path)


def test_a_fault_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    """An unknown fault, as in a later version's plan, is refused."""
    planned = msgspec.to_builtins(random_plan(1, 10.0))
    planned["steps"][0]["fault"] = "meteor"
    (tmp_path / PLAN_FILE).write_bytes(msgspec.json.encode(planned))

    with pytest.raises(ConfigError, match="faults that do not exist: meteor"):
        read_plan(tmp_path)


def test_a_directory_without_a_plan_is_refused(tmp_path: Path) -> None:
    """A directory without a plan is an error that says what is missing."""
    with pytest.raises(ConfigError, match="name a run's directory"):
        read_plan(tmp_path)


def test_certificates_are_not_renewed_where_there_are_none(tmp_path: Path) -> None:
    """A plan that renews certificates without TLS contradicts itself."""
    renewals = planned_of(SCENARIOS["renewals"], 1, 1)
    write_plan(tmp_path, msgspec.structs.replace(renewals, tls=False))

    with pytest.raises(ConfigError, match="renews certificates, and has no TLS"):
        read_plan(tmp_path)


def test_moments_that_never_come_are_refused(tmp_path: Path) -> None:
    """A step at a share of the messages is refused if their number is not given."""
    planned = planned_of(MAIN_JOB, 1, 2)
    write_plan(tmp_path, planned)

    with pytest.raises(ConfigError, match="but no number of messages"):
        read_plan(tmp_path)
    write_plan(tmp_path, msgspec.structs.replace(planned, messages=100))
    assert read_plan(tmp_path).messages == 100
