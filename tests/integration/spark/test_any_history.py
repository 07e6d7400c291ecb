"""A history with any lines is judged, and its wrong lines are counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dledger.errors import ConfigError
from mqspark.auditing import judge_run, write_report
from mqspark.history.events import EVENT
from mqspark.testing import planting
from mqspark.testing.plants import life
from mqspark.testing.plants.plain import sent_again
from mqspark.testing.small_making import small_run
from mqspark.testing.small_runs import TOPIC, SmallRun, write_runs
from mqspark.verdict import PROPERTIES

#: JSON that is no value of its field, or one that nobody would write.
VALUES = [
    *("null", '""', '"x"', '"\\u0000"', '"\\ud800"', '"<b>\\u202e"', "true", "false", "0", "-1"),
    *("2147483647", "-2147483648", str(2**61 - 1), str(1 - 2**61), str(2**63), "1" + "0" * 400),
    *("0.5", "1e999", "NaN", "-Infinity", "[]", "[[1]]", "{}", '{"t":1}', "", "'x'"),
]
#: A broker that there is no store of ends an audit, with its reason.
REFUSED = ("ack", "deliver")


def a_run(name: str) -> SmallRun:
    """A run with events of each kind that judges read."""
    draw = Random(name)
    run = small_run(name, name, pops=True)
    sent_again(run, draw)
    life.lives(run, draw)
    life.set_forward(run, draw)
    life.served(run, draw)
    life.group_made_again(run, draw)
    return run


def odd_lines(run: SmallRun) -> Iterator[bytes]:
    """Events of the run with each field set to each value, some twice."""
    draw = Random(7)
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for event in run.events:
        by_kind.setdefault(event["kind"], []).append(event)
    for kind, events in by_kind.items():
        for field in EVENT.names:
            for value in VALUES:
                if field == "broker" and kind in REFUSED and value.startswith('"'):
                    continue
                event = {k: v for k, v in draw.choice(events).items() if k != field}
                yield f'{json.dumps(event)[:-1]},"{field}":{value}}}'.encode()
            event = {k: v for k, v in draw.choice(events).items() if k != field}
            yield json.dumps(event).encode()
        yield from [json.dumps(draw.choice(events)).encode()] * 2
    yield from (b"", b"{}", b"null", b"[", b"\xff\xfe", b"\x00" * 9, b'{"kind":"sned","t":1}')


def test_no_line_ends_an_audit(session: SparkSession, tmp_path: Path) -> None:
    """Odd lines, in order of time or out of it, are counted, and all properties are judged."""
    runs = [a_run("aa"), a_run("bb")]
    history, stores = write_runs(runs, tmp_path / "runs")
    folder = tmp_path / "history"
    folder.mkdir()
    history.rename(folder / "harness.jsonl")
    lines = [*odd_lines(runs[0])]
    (folder / "odd.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    verdict = judge_run(session, folder, planting.replicas_of(stores), lambda _: None)
    notes = "\n".join(verdict.notes)
    assert "lines of odd.jsonl can't be read" in notes
    assert "harness.jsonl" not in notes
    assert "the clock of odd fell" in notes
    assert verdict.is_undecided or not verdict.holds
    write_report(verdict, tmp_path / "report", "mqaudit", 1.0)
    told = json.loads((tmp_path / "report" / "verdict.json").read_text())
    assert len(told["properties"]) == len(PROPERTIES)


def test_a_broker_without_a_store_is_named(session: SparkSession, tmp_path: Path) -> None:
    """A broker without a store is named, since its acknowledgements can't be judged."""
    run = small_run("cc", "cc")
    (ack, *_) = run.of("ack", waiting=None, topic=TOPIC)
    ack["broker"] = "strange"
    run.events = [e for e in run.events if (e["kind"], e.get("id")) != ("deliver", ack["id"])]
    run.drop_all(ack["id"])
    history, stores = write_runs([run], tmp_path / "runs")
    with pytest.raises(ConfigError, match="1 messages were acknowledged or delivered by brokers"):
        judge_run(session, history, planting.replicas_of(stores), lambda _: None)
