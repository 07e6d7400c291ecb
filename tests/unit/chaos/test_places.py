"""Failpoints in plans and clusters: which nodes are hurt where, and how they are told."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dledger.errors import ConfigError
from dledger.failpoints import PLACES, By, When
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import broker_toml, plan
from mqchaos.faults.failpoints.provoking import PROVOCATIONS
from mqchaos.faults.fault import FAULTS, fault_of
from mqchaos.faults.generator import Phase, at_places
from mqchaos.faults.kinds import (
    AT_PLACES,
    FAILPOINT_HOLD,
    FAILPOINT_KILL,
    OF_MEMBERS,
    OF_NETWORK,
    ORDERED,
)
from mqchaos.faults.targets import Target
from mqchaos.run.planned import read_plan, write_plan
from mqchaos.run.scenarios import SCENARIOS, planned_of, random_plan

KINDS = [FAILPOINT_KILL, FAILPOINT_HOLD]
seeds = st.integers(0, 1 << 32)


def test_each_work_that_comes_by_places_can_be_provoked() -> None:
    """A kind of work that passes places can be provoked, or a node would be waited for in vain."""
    assert PROVOCATIONS.keys() == {*When}


@given(seeds, st.sets(st.sampled_from(When), min_size=1))
def test_every_place_comes_before_one_comes_again(seed: int, when: set[When]) -> None:
    """Places come in an order that the seed draws, each once, and hurt the node that passes."""
    wanted = {place.name for place in PLACES.values() if place.when in when}
    steps = at_places(KINDS, when, len(wanted), random.Random(seed).uniform)
    injected = [step for step in steps if step.phase is Phase.INJECT]

    assert {step.place for step in injected} == wanted
    for step in injected:
        by = PLACES[step.place].by
        assert by is not By.LEADER or step.target is Target.LEADER
        assert by is not By.FOLLOWER or step.target is Target.FOLLOWER


@given(seeds)
def test_a_random_plan_has_faults_that_its_links_allow(seed: int) -> None:
    """Members change where links pass no proxy, and links are broken where they do."""
    planned = random_plan(seed, 60.0)
    faults = {step.fault for step in planned.steps}

    assert not faults & (OF_MEMBERS if planned.network else OF_NETWORK)


def test_a_fault_at_a_place_is_one_of_that_place_only() -> None:
    """A fault at a place is in no other table of faults."""
    assert fault_of("failpoint-kill", "log.staged") != FAULTS["failpoint-kill"]
    assert fault_of("kill") is FAULTS["kill"]
    assert AT_PLACES < ORDERED <= FAULTS.keys()


@pytest.mark.parametrize(
    ("fault", "place"), [("failpoint-kill", ""), ("failpoint-kill", "none"), ("kill", "log.staged")]
)
def test_a_plan_with_a_fault_at_no_place_is_refused(tmp_path: Path, fault: str, place: str) -> None:
    """A fault at an unknown place is refused, and a place without a fault, too."""
    planned = planned_of(SCENARIOS["failpoints"], 1, 1)
    step = replace(planned.steps[0], fault=fault, place=place)
    write_plan(tmp_path, replace(planned, steps=(step, *planned.steps[1:])))

    with pytest.raises(ConfigError, match=repr(place)):
        read_plan(tmp_path)


def test_only_a_cluster_for_that_has_folders_for_orders(tmp_path: Path) -> None:
    """A cluster with failpoints has a folder of orders for each broker, and others have none."""
    layout = plan(range(12_000, 12_007))
    without = Cluster.create(tmp_path / "without", layout)
    having = Cluster.create(tmp_path / "with", replace(layout, failpoints=True))

    for node in layout.nodes:
        assert having.orders(node.name).is_dir()
        assert not without.orders(node.name).exists()


def test_short_logs_are_a_brokers_own_config(tmp_path: Path) -> None:
    """Short logs are set by the keys of a broker's config."""
    layout = replace(plan(range(12_000, 12_007)), retain_bytes=1 << 20, segment_bytes=1 << 18)
    config = tomllib.loads(broker_toml(layout, layout.nodes[0], tmp_path))

    assert (config["commitLogSizeMax"], config["mappedFileSizeCommitLog"]) == (1 << 20, 1 << 18)
    assert "commitLogSizeMax" not in broker_toml(
        replace(layout, retain_bytes=0), layout.nodes[0], tmp_path
    )


def test_a_strange_name_server_has_a_secret_of_its_own(tmp_path: Path) -> None:
    """A strange name server has a secret of its own, and later the others' again."""
    cluster = Cluster.create(tmp_path / "c", plan(range(12_000, 12_007)))
    config = cluster.folder("namesrv-0") / "namesrv.toml"
    before = config.read_text()

    for _ in range(2):
        cluster.estrange("namesrv-0", strange=True)
        other = Path(tomllib.loads(config.read_text())["secretFile"])
        assert cluster.secret_file is not None
        assert other.read_text() != cluster.secret_file.read_text()
        assert other.stat().st_mode & 0o077 == 0

    cluster.estrange("namesrv-0", strange=False)
    assert config.read_text() == before


def test_plans_of_before_have_no_places() -> None:
    """A step of an older plan has no place, and is written as it was."""
    raw = (
        b'{"when":{"type":"after","seconds":1.0},"phase":"inject","target":"leader","fault":"kill"}'
    )
    step = msgspec.json.decode(raw, type=type(planned_of(SCENARIOS["leader-kill"], 1, 1).steps[0]))

    assert step.place == ""
    assert b"place" not in msgspec.json.encode(step)
