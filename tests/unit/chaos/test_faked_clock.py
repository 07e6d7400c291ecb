"""Plans that move clocks of whole processes, and machines that can't."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.errors import ConfigError
from mqchaos.cluster import faked_clock
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan
from mqchaos.faults.fault import FAULTS
from mqchaos.run import again
from mqchaos.run.planned import Made
from mqchaos.run.scenarios import SCENARIOS, planned_of, random_plan


def test_a_plan_says_which_clocks_it_moves() -> None:
    """A plan says which clocks it moves, and its command does, too."""
    for planned in (
        planned_of(SCENARIOS["clock-jumps"], 1, 3, made=Made(clocks=True)),
        random_plan(1, 10.0, made=Made(clocks=True)),
    ):
        assert planned.clocks
        assert "--clocks processes" in planned.drawn_by
    assert "--clocks" not in planned_of(SCENARIOS["clock-jumps"], 1, 3).drawn_by


def test_without_the_library_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing library is an error with its package, before anything starts."""
    monkeypatch.setattr(faked_clock, "library", lambda: None)
    why = faked_clock.no_faked_clocks.__wrapped__()
    assert why == "libfaketime is not installed (Debian: faketime)"
    monkeypatch.setattr(again, "no_faked_clocks", lambda: why)
    planned = planned_of(SCENARIOS["clock-jumps"], 1, 3, made=Made(clocks=True))
    with pytest.raises(ConfigError, match="--clocks processes is not available here: libfaketime"):
        again.order_of(planned, tmp_path / "run")


def test_a_library_that_does_not_load_is_no_faked_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader warns and goes on: so the clock is looked at, which does not move."""
    monkeypatch.setattr(faked_clock, "library", lambda: tmp_path / "none.so")
    why = faked_clock.no_faked_clocks.__wrapped__()
    assert why is not None
    assert "does not move the clock" in why


def test_a_cluster_without_either_can_have_no_clock_moved(tmp_path: Path) -> None:
    """A cluster needs orders or the library for its clocks to be moved."""
    cluster = Cluster.create(tmp_path / "c", plan(range(12_000, 12_007)))
    why = FAULTS["clock-ahead"].why_not(cluster, cluster.layout.nodes[:1])
    assert why is not None
    assert "orders" in why
