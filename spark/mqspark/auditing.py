"""An audit from end to end: from the paths of its inputs to the files of its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from dledger.errors import ConfigError
from dledger.log.replica import is_held
from dledger.verdict.form import write_verdict
from dledger.verdict.junit import cases, junit
from mqspark.exhibits.collecting import exhibits
from mqspark.history.files import Meta, read_meta, size_bytes
from mqspark.judge.evidence import Evidence
from mqspark.limits import BRIEF_HISTORY_BYTES_MAX, EXHIBITS_MAX
from mqspark.processes.interrupting import end_on_interrupt, was_interrupted
from mqspark.report import html_report
from mqspark.screening.parts import HistoryPart, history_parts
from mqspark.screening.screened import Screened
from mqspark.screening.tasks import sent_topics
from mqspark.session import open_session
from mqspark.source.members import Members
from mqspark.source.planning import Replica, find_replicas
from mqspark.verdict import Verdict, judge, judge_alone


def run_audit(
    history: Path | None,
    stores: list[Path],
    say: Callable[[str], None],
    *,
    cores: int | None = None,
    keep_classes: bool = False,
) -> Verdict:
    """Judge a history and replicas' files by a Spark that runs meanwhile. Raises ConfigError for
    unusable input.

    `keep_classes`: later audits shall start sooner.
    """
    replicas = find_replicas([str(store) for store in stores])
    for store in stores:
        if is_held(store):
            raise ConfigError(
                f"{store} is in use by a process, and changes while it is read: stop the node, or "
                "judge a copy (mqadmin exportReplica)"
            )
    if history is not None:
        history_parts(history)  # refuses what is no history before Java starts
    say("starting Spark")
    end_on_interrupt()
    brief = history is None or is_brief(history)
    session = open_session(
        "mqaudit", cores=cores, brief=brief, keep_classes=keep_classes, source=False
    )
    end_on_interrupt()
    try:
        return judge_run(session, history, replicas, say)
    finally:
        if not was_interrupted():
            session.stop()


def judge_run(
    session: SparkSession, history: Path | None, replicas: list[Replica], say: Callable[[str], None]
) -> Verdict:
    """The verdict, with a session that is there already. Raises ConfigError for unusable input.

    Without a history only what replicas alone can show is judged.
    """
    evidence = (
        gather_alone(session, replicas) if history is None else gather(session, history, replicas)
    )
    try:
        verdict = judge_alone(evidence, say) if history is None else judge(evidence, say)
    finally:
        if not was_interrupted():
            evidence.close()
    if not verdict.holds:
        say("gathering what shows the violations")
    return shown(verdict, session, history, replicas)


def shown(
    verdict: Verdict, session: SparkSession, history: Path | None, replicas: list[Replica]
) -> Verdict:
    """The verdict, with exhibits of the first violations of each property."""
    rows = [
        (judgement.number, row)
        for judgement in verdict.judgements
        for row in judgement.violations[:EXHIBITS_MAX]
    ]
    found = exhibits(session, history, replicas, rows)
    judgements = []
    for judgement in verdict.judgements:
        mine = [
            exhibit
            for (number, _), exhibit in zip(rows, found, strict=True)
            if number == judgement.number
        ]
        judgements.append(replace(judgement, exhibits=mine))
    return replace(verdict, judgements=judgements)


def gather(session: SparkSession, history: Path, replicas: list[Replica]) -> Evidence:
    """All that there is to judge. Raises ConfigError for an unusable history."""
    parts, brief = history_parts(history), is_brief(history)
    meta = read_meta(history, lambda: _sent_topics(session, parts))
    members = Members(replicas)
    screened = Screened(
        session,
        members,
        parts,
        size_bytes(history),
        meta.topics,
        brief,
        properties="properties" in meta.tells,
    )
    if falls := screened.falls:
        screened.close()
        screened = replace(screened, unsure=falls)
    if screened.silent:
        raise ConfigError(
            f"{history}: no file of {', '.join(screened.silent)} is there, and the run had "
            f"{'them' if len(screened.silent) > 1 else 'it'}: what is missing would look like the "
            "broker's faults"
        )
    return Evidence(session, members, screened, meta, brief=brief)


def gather_alone(session: SparkSession, replicas: list[Replica]) -> Evidence:
    """The replicas, and a history in which nothing is said."""
    members = Members(replicas)
    screened = Screened(session, members, (), 0, (), brief=True)
    meta = Meta(topics=(), idempotent=True, retries=0, brokers={})
    return Evidence(session, members, screened, meta, brief=True, alone=True)


def _sent_topics(session: SparkSession, parts: Sequence[HistoryPart]) -> set[str]:
    """The topics of all sends."""
    count = max(1, len(parts))
    found = session.range(0, len(parts), 1, count).mapInArrow(sent_topics(parts), "topic string")
    return {row.topic for row in found.distinct().collect()}


def is_brief(history: Path) -> bool:
    """Whether there is so little that dividing the work costs more than it saves."""
    return size_bytes(history) <= BRIEF_HISTORY_BYTES_MAX


def write_report(verdict: Verdict, directory: Path, replay: str, seconds: float) -> None:
    """Write `verdict.json`, `report.html` and `junit.xml`. `replay`: the command that judges so."""
    directory.mkdir(parents=True, exist_ok=True)
    written = verdict.written()
    write_verdict(directory, written)
    (directory / "report.html").write_text(html_report(written, replay), encoding="utf-8")
    (directory / "junit.xml").write_bytes(junit("mqaudit", seconds, cases(written.properties)))
