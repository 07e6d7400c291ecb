"""A query's lag behind its topics, from positions and ends; and lines of long jobs."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.remoting.json_dialect import MessageQueue
from mqclient import Bounds
from mqspark.topics.planning import Range
from mqspark.topics.positions import Position, to_json
from mqspark.topics.watching.listener import Figures
from mqspark.topics.watching.progress import Lag, Sample, lags, positions_in, unread
from mqspark.topics.watching.watch import JobLines

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)


def test_the_lag_of_a_topic_is_that_of_its_queues() -> None:
    """Messages are counted, bytes taken from the first ones, and the oldest says the seconds; a
    topic that is read up to its end has a lag of 0."""
    waiting = unread(
        {A: Position(3, 7), B: Position(5, 7)}, {A: Bounds(0, 10, 7), B: Bounds(0, 9, 7)}
    )
    assert waiting == [Range(A, 3, 10, 7), Range(B, 5, 9, 7)]
    samples = {A: Sample(100.0, 8_000), B: Sample(50.5, 4_000)}
    assert lags(["T", "U"], waiting, samples, 10_000) == [
        Lag("T", 11, 902, 6.0), Lag("U", 0, 0, 0.0),
    ]  # fmt: skip
    assert lags(["T"], waiting, {}, 10_000) == [Lag("T", 11, 0, 0.0)]


@pytest.mark.parametrize(
    ("at", "ends", "begin"),
    [
        (Position(4, 7), Bounds(0, 10, 8), 0),  # the topic was made again
        (Position(4, 0), Bounds(0, 10, 8), 4),  # a checkpoint that knows no lives
        (Position(4, 7), Bounds(6, 10, 7), 6),  # retention has removed some
        (Position(12, 7), Bounds(0, 10, 7), None),  # an old leader was asked
    ],
)
def test_what_is_gone_is_no_lag(at: Position, ends: Bounds, begin: int | None) -> None:
    """The lag counts only messages that can still be read."""
    found = unread({A: at}, {A: ends})
    assert found == ([] if begin is None else [Range(A, begin, ends.end, ends.life)])


@given(
    st.none() | st.text()
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ).map(json.dumps)
)  # fmt: skip
def test_positions_of_another_source_are_none(told: str | None) -> None:
    """Whatever it writes: Kafka's are partitions by topic, a rate's is a number."""
    found = positions_in(told)
    assert found is None or positions_in(json.dumps(to_json(found))) == found
    assert positions_in('{"orders": {"0": 17}}') is None
    assert positions_in(json.dumps(to_json({A: Position(3, 7)}))) == {A: Position(3, 7)}


def test_a_query_that_ended_is_shown_no_more() -> None:
    """An ended query, and a topic that is read no more, are not shown."""
    figures = Figures()
    registry = figures.registry
    labels = {"query": "q", "topic": "T"}
    figures.show("q", (3, 100, 0.5), [Lag("T", 11, 902, 6.0), Lag("U", 0, 0, 0.0)])
    assert registry.get_sample_value("mqspark_lag_bytes", labels) == 902
    assert registry.get_sample_value("mqspark_batch", {"query": "q"}) == 3
    figures.show("q", (4, 0, 0.5), [Lag("U", 0, 0, 0.0)])
    assert registry.get_sample_value("mqspark_lag_bytes", labels) is None
    assert registry.get_sample_value("mqspark_lag_seconds", labels | {"topic": "U"}) == 0
    figures.forget("q")
    figures.forget("never seen")
    assert [sample for family in registry.collect() for sample in family.samples] == []


def test_a_long_job_prints_a_line_every_so_often() -> None:
    """A short one none; one that ended and another of the same number begin anew."""
    jobs: dict[int, tuple[int, ...]] = {}
    stages = {
        7: SimpleNamespace(numTasks=8, numCompletedTasks=3, numFailedTasks=1),
        8: SimpleNamespace(numTasks=2, numCompletedTasks=0, numFailedTasks=0),
    }
    tracker: Any = SimpleNamespace(
        getActiveJobsIds=lambda: [*jobs],
        getJobInfo=lambda job: SimpleNamespace(stageIds=jobs[job]),
        getStageInfo=stages.get,
    )
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    out = io.StringIO()
    lines = JobLines(session, 5.0, out)
    for now_s in range(20):
        jobs.clear()
        if now_s != 14:
            jobs[1] = (7, 8, 9)
        if now_s in (3, 4, 5, 6):
            jobs[2] = (8,)
        lines.look(float(now_s))
    assert out.getvalue() == (
        "job 1: 3 of 10 tasks, 5 s, 1 failures\njob 1: 3 of 10 tasks, 10 s, 1 failures\n"
    )
