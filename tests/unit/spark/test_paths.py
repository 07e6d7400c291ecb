"""Errors about an audit's paths, before Spark starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mqspark import mqaudit
from mqspark.testing.synthetic import Run, write_run


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a start of Spark fail the test."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("mqspark.auditing.open_session", started)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("make", [_pipe, _loop, _device])
@pytest.mark.parametrize("where", ["history", "history/c.jsonl", "store", "store/log/0.seg"])
def test_what_can_not_be_read_twice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], None], where: str
) -> None:
    """A pipe would be waited for, a device has no end, a loop of links leads nowhere."""
    place = tmp_path / where
    place.parent.mkdir(parents=True, exist_ok=True)
    make(place)
    for name in ("history", "store"):
        (tmp_path / name).is_symlink() or (tmp_path / name).exists() or (tmp_path / name).mkdir()
    history, store = tmp_path / "history", tmp_path / "store"
    assert mqaudit.audit(history=history, store=[store]) == mqaudit.EXIT_UNUSABLE
    said = capsys.readouterr().err
    assert str(place) in " ".join(said.split())
    assert said.count("\n") == 1


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("name", ["c.jsonl", "c.parquet"])
def test_a_directory_where_a_history_has_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A directory among the history's files is named and refused."""
    _, stores = write_run(Run(messages=10, nodes=("n0",)), tmp_path / "run")
    history = tmp_path / "run" / "history"
    (history / name).mkdir()
    assert mqaudit.audit(history=history, store=stores) == mqaudit.EXIT_UNUSABLE
    assert f"{name} is a directory" in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("make", [_pipe, _loop, Path.touch])
@pytest.mark.parametrize("where", ["report", "report/verdict.json", "above"])
def test_a_report_that_can_not_be_written_is_refused_before_the_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], None], where: str
) -> None:
    """Half a minute later it would be too late; an earlier report may be written over."""
    place = tmp_path / where
    place.parent.mkdir(exist_ok=True)
    (tmp_path / "log").mkdir()
    make(place)
    report = tmp_path / ("above/report" if where == "above" else "report")
    history = tmp_path / "c.jsonl"
    history.touch()
    status = mqaudit.audit(history=history, store=[tmp_path / "log"], report=report)
    said = " ".join(capsys.readouterr().err.split())
    assert status == mqaudit.EXIT_UNUSABLE
    is_earlier = (make, where) == (Path.touch, "report/verdict.json")
    assert (str(tmp_path / "above") in said or str(place) in said) is not is_earlier
