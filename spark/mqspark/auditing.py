"""An audit from end to end: from the paths of its inputs to the files of its report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from mqspark.history import find_history, read_history, read_meta, read_notes
from mqspark.judge.evidence import Evidence
from mqspark.judge.members import Members
from mqspark.limits import BRIEF_HISTORY_BYTES_MAX
from mqspark.report import html_report
from mqspark.session import open_session
from mqspark.source.planning import Replica, find_replicas
from mqspark.verdict import Verdict, judge


def run_audit(
    history: Path,
    stores: list[Path],
    say: Callable[[str], None],
    *,
    cores: int | None = None,
) -> Verdict:
    """The verdict. Starts Spark, and stops it again. Raises ConfigError for unusable input."""
    replicas = find_replicas([str(store) for store in stores])
    say("starting Spark")
    session = open_session("mqaudit", cores=cores, brief=is_brief(history))
    try:
        return judge_run(session, history, replicas, say)
    finally:
        session.stop()


def judge_run(
    session: SparkSession, history: Path, replicas: list[Replica], say: Callable[[str], None]
) -> Verdict:
    """The verdict, with a session that is there already. Raises ConfigError for unusable input."""
    evidence = gather(session, history, replicas)
    try:
        return judge(evidence, say)
    finally:
        evidence.close()


def gather(session: SparkSession, history: Path, replicas: list[Replica]) -> Evidence:
    """All that there is to judge. Raises ConfigError for an unusable history."""
    events = read_history(session, history)
    return Evidence(
        session,
        Members(replicas),
        events,
        read_notes(session, history),
        read_meta(history, events),
        brief=is_brief(history),
    )


def is_brief(history: Path) -> bool:
    """Whether there is so little that dividing the work costs more than it saves."""
    events_bytes = sum(file.stat().st_size for file in find_history(history))
    return events_bytes <= BRIEF_HISTORY_BYTES_MAX


def write_report(verdict: Verdict, directory: Path) -> None:
    """Write `verdict.json` and `report.html`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "verdict.json").write_text(json.dumps(verdict.as_json(), indent=2) + "\n")
    (directory / "report.html").write_text(html_report(verdict))
