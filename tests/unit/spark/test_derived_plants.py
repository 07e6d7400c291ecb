"""Planted faults in files that a broker makes from its log: both judges find each unit."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dledger.log.entry import Kind
from mqbroker.testing.leading import serve
from mqspark.source.derived import look_at
from mqspark.source.planning import find_replicas
from mqspark.testing.declaring import Plant
from mqspark.testing.derived.plants import BESIDE, PLANTS
from mqspark.testing.derived.served import Served
from mqspark.testing.reference.derived import Unlike, unlike
from mqspark.testing.rewriting import read_log
from mqspark.testing.small_making import small_run
from mqspark.testing.small_runs import SEGMENT_BYTES, TOPIC, write_runs
from mqspark.testing.synthetic import LogWriter

SEEDS = range(40)
FOUND = [fault.plant for fault in PLANTS.faults]
PLANTS_MAX = 3


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica that has served: its log has messages of two topics beside each other."""
    run = small_run("derived", "derived", pops=True)
    found = next(m for entry in run.logs["n0"] for m in entry.messages if m.topic == TOPIC)
    last = run.next_offset(0)
    for offset in range(last + 1):
        run.add(replace(found, topic=BESIDE, queue_id=0, offset=offset))
    beside = replace(found, topic=BESIDE, queue_id=0, offset=last + 1)
    run.add(replace(found, queue_id=0, offset=last), beside)
    run.add(replace(found, queue_id=0, offset=last + 1))
    _, (store, *_) = write_runs([run], tmp_path_factory.mktemp("served") / "runs")
    as_sends(store)
    serve(store, SEGMENT_BYTES)
    made = Served(store)
    assert len(made.messages(TOPIC, 0)) == made.queue(TOPIC, 0).end == last + 2
    return store


def as_sends(store: Path) -> None:
    """Entries of several topics become of the kind that may be so."""
    (replica,) = find_replicas([str(store)])
    entries = read_log(replica)
    shutil.rmtree(store / "log")
    log = LogWriter(store, SEGMENT_BYTES)
    for entry in entries:
        topics = {message.topic for message in entry.messages}
        log.append(Kind.SENDS if len(topics) > 1 else entry.kind, entry.body, entry.term)
    log.close()


def found_by_both(store: Path) -> tuple[set[Unlike], set[Unlike]]:
    """Units that the audit finds, and units that the second judge finds."""
    (replica,) = find_replicas([str(store)])
    _, differences = look_at(replica)
    units = {(d.file, number) for d in differences for number in range(d.first, d.last + 1)}
    return units, unlike(replica)


@pytest.mark.parametrize("plant", [*FOUND, *PLANTS.innocents], ids=lambda plant: plant.__name__)
def test_each_fault_of_a_derived_file_is_found_by_both_judges(
    served: Path, tmp_path: Path, plant: Plant[Served]
) -> None:
    """Both judges find a fault's units, and none beyond the snapshot's claim."""
    for seed in range(2):
        store = shutil.copytree(served, tmp_path / str(seed))
        plant(Served(store), random.Random(seed))
        first, second = found_by_both(store)
        assert first == second
        assert bool(first) is (plant in FOUND)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_judges_agree_on_random_faults_of_derived_files(
    served: Path, tmp_path: Path, seed: int
) -> None:
    """Both judges agree on up to three random faults in one store."""
    draw = random.Random(seed)
    store = shutil.copytree(served, tmp_path / "store")
    for plant in draw.sample([*FOUND, *PLANTS.innocents], draw.randint(1, PLANTS_MAX)):
        with suppress(OSError, ValueError, IndexError, KeyError, StopIteration):
            plant(Served(store), draw)
    first, second = found_by_both(store)
    assert first == second
