"""The demo's own decisions: its pace, and what it keeps of a run that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.demo import keep_evidence, rate_for


@pytest.mark.parametrize(
    ("messages", "rate_per_s"), [(100_000, 4_000.0), (100, 500.0), (1_000_000, 10_000.0)]
)
def test_the_pace_leaves_time_for_the_kills(messages: int, rate_per_s: float) -> None:
    """100,000 lines last 25 s; a few lines are not over before the kill, nor a million endless."""
    assert rate_for(messages) == rate_per_s


def test_a_failed_runs_files_are_kept(tmp_path: Path) -> None:
    """Replicas and history move beside the report, in place of an older failure's."""
    for attempt in ("first", "second"):
        run = tmp_path / "run"
        run.mkdir(exist_ok=True)
        (run / attempt).touch()

        keep_evidence(run, tmp_path / "report")

        assert list(run.iterdir()) == []
        assert [path.name for path in (tmp_path / "report" / "evidence").iterdir()] == [attempt]
