"""A packed history has the same verdict as its lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dledger.verdict.form import Property
from mqspark.auditing import judge_run
from mqspark.history.packing import pack
from mqspark.testing import planting
from mqspark.testing.planting import Event
from mqspark.testing.synthetic import Run, write_run
from mqspark.verdict import Verdict

RUN = Run(messages=120, queues=4, batch=20, segment_bytes=65_536, nodes=("n0", "n1"))


def what_was_found(verdict: Verdict) -> tuple[object, ...]:
    """Findings of a verdict; of an exhibit's lines the events without `rest`."""
    found = []
    for each in verdict.written().properties:
        shown = [
            (violation.what, violation.message_id, violation.detail, lines_of(each, number))
            for number, violation in enumerate(each.violations)
        ]
        found.append((each.number, each.checked, each.count, shown))
    return found, verdict.counts, verdict.notes


def lines_of(judged: Property, number: int) -> list[Event]:
    exhibit = judged.violations[number].exhibit
    events = [json.loads(line) for line in (exhibit.lines if exhibit else [])]
    return [{k: v for k, v in each.items() if k not in {"rest", "key", "size"}} for each in events]


@pytest.mark.long
def test_lines_and_parquet_have_one_verdict(tmp_path: Path, session: SparkSession) -> None:
    """Lines and Parquet give the same violations, counts, evidence and notes."""
    history, stores = write_run(RUN, tmp_path / "run")
    replicas = planting.replicas_of(stores)
    planting.flip(replicas[1], RUN.message_id(42), recompute=True)
    voted = {"kind": "vote", "t": 10**12, "broker": RUN.broker, "node": "n1", "term": 3}
    with (history / "harness.jsonl").open("a") as file:
        for vote in ("n0", "n1"):
            file.write(json.dumps(voted | {"vote": vote}) + "\n")
        file.write('{"kind":"vote","t":6')
    pack(history, tmp_path / "packed")

    by_lines, by_parquet = (
        judge_run(session, path, replicas, lambda _: None)
        for path in (history, tmp_path / "packed")
    )

    assert {each.number for each in by_lines.judgements if not each.holds} == {1, 2, 5, 6, 13}
    assert what_was_found(by_parquet) == what_was_found(by_lines)
