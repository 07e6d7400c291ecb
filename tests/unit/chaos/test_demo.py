"""The demo's own decisions: its rate, and what it keeps of a failed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.verdict.form import Property
from mqchaos.demo import in_short, keep_evidence, rate_for
from mqchaos.report.verdict import Counts, Report


@pytest.mark.parametrize(
    ("messages", "rate_per_s"), [(100_000, 4_000.0), (100, 500.0), (1_000_000, 10_000.0)]
)
def test_the_pace_leaves_time_for_the_kills(messages: int, rate_per_s: float) -> None:
    """100,000 lines last 25 s; a few lines are not over before the kill, nor a million endless."""
    assert rate_for(messages) == rate_per_s


@pytest.mark.parametrize(
    ("nothing_lost", "in_time", "said"),
    [
        (True, True, "Every property holds"),
        (True, False, "no message was lost, changed or reordered, but not all was in time"),
        (False, True, "NOT everything holds"),
        (False, False, "NOT everything holds"),
    ],
)
def test_a_slow_machine_is_not_taken_for_a_lost_message(
    nothing_lost: bool, in_time: bool, said: str
) -> None:
    """The last line tells a slow machine from a lost message, though both have status 1."""
    report = Report(
        holds=nothing_lost and in_time,
        scenario="main-job",
        seed=1,
        replay="./dev demo",
        seconds=30.0,
        counts=Counts(3, 3, {"n0": 3}, 3, 0, 0, 0, 0, True),
        properties=[Property(1, "nothing is lost", nothing_lost, 3)],
        gaps=[],
        gap_median_s=None,
        gap_worst_s=None,
        exceptions=0,
        findings=[] if in_time else ["the worst gap is 2.05 s, above 1.5 s"],
    )
    assert in_short(report).startswith(said)


def test_a_failed_runs_files_are_kept(tmp_path: Path) -> None:
    """Replicas and history move beside the report, in place of an older failure's."""
    for attempt in ("first", "second"):
        run = tmp_path / "run"
        run.mkdir(exist_ok=True)
        (run / attempt).touch()

        keep_evidence(run, tmp_path / "report")

        assert list(run.iterdir()) == []
        assert [path.name for path in (tmp_path / "report" / "evidence").iterdir()] == [attempt]
