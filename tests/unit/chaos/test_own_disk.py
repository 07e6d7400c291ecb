"""Disks of nodes' own: who may mount them, whose they are, and which plans want them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan
from mqchaos.cluster.own_disk import _is_ownerless
from mqchaos.cluster.processes import Process
from mqchaos.faults.disk import is_gone, wipe
from mqchaos.faults.fault import FAULTS
from mqchaos.faults.kinds import OF_OWN_DISKS
from mqchaos.run import again
from mqchaos.run.planned import Made
from mqchaos.run.scenarios import SCENARIOS, planned_of, random_plan


def test_an_image_is_ownerless_if_its_harness_is_gone() -> None:
    """An image is ownerless if its harness's process is gone; other files are left alone."""
    this = Process.of(os.getpid())
    owned = f"/a/mqchaos-disks-{this.pid}-{this.started_ticks}/n0.img"
    assert not _is_ownerless(owned)
    assert _is_ownerless(f"/a/mqchaos-disks-{this.pid}-{this.started_ticks + 1}/n0/disk.img")
    for other in ("/a/n0.img", "/a/mqchaos-disks-x-1/n0.img", "/a/mqchaos-disks-/n0.img", ""):
        assert not _is_ownerless(other)


def test_without_such_disks_no_node_has_one_that_can_be_wrecked(tmp_path: Path) -> None:
    """A fault of such disks says why it is not possible, instead of doing nothing."""
    cluster = Cluster.create(tmp_path / "c", plan(range(12_000, 12_007)))
    for name in OF_OWN_DISKS:
        why = FAULTS[name].why_not(cluster, cluster.layout.nodes[:1])
        assert why == "the nodes of this cluster have no file systems of their own"


def test_a_scenario_that_wrecks_disks_brings_its_own() -> None:
    """A scenario that wrecks disks brings them; others, and random plans, have them if asked."""
    assert planned_of(SCENARIOS["wrecked-disks"], 1, 1).disks
    assert "--disks" not in planned_of(SCENARIOS["wrecked-disks"], 1, 1).drawn_by
    asked = planned_of(SCENARIOS["leader-kill"], 1, 1, made=Made(disks=True))
    assert asked.disks
    assert "--disks own" in asked.drawn_by
    drawn = [random_plan(seed, 300.0, made=Made(disks=True)) for seed in range(10)]
    assert {step.fault for planned in drawn for step in planned.steps} >= OF_OWN_DISKS
    assert not OF_OWN_DISKS & {step.fault for step in random_plan(1, 3000.0).steps}


def test_who_may_not_mount_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that may not mount is told so before anything starts."""
    monkeypatch.setattr(again, "no_own_disks", lambda: "only root may mount file systems")
    for planned in (
        planned_of(SCENARIOS["wrecked-disks"], 1, 1),
        random_plan(1, 10.0, made=Made(disks=True)),
    ):
        with pytest.raises(ConfigError, match="--disks own is not available here: only root may"):
            again.order_of(planned, tmp_path / "run")


def test_a_mounted_store_is_wiped_and_stays_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is new, and the mount point is where it was."""
    store = tmp_path / "store"
    for made in (store / "log", store / "lost+found"):
        made.mkdir(parents=True)
    (store / "term").touch()
    assert not is_gone(store)
    monkeypatch.setattr(Path, "is_mount", lambda self: self == store)
    wipe(store)
    assert store.exists()
    assert is_gone(store)
    monkeypatch.undo()
    wipe(store)
    assert not store.exists()
    assert is_gone(store)
