"""Two judges that share no line of judging must find the same in the same files.

One audit judges many small runs, each under a broker name of its own.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from dledger.log.segment import segment_path
from mqspark.auditing import gather, judge_run
from mqspark.testing import planting, reference, small_plants
from mqspark.testing.reference import Finding
from mqspark.testing.rewriting import read_log
from mqspark.testing.small_making import small_run
from mqspark.testing.small_plants import FAULTS, INNOCENT
from mqspark.testing.small_runs import (
    GROUP,
    OUTPUTS,
    QUEUES,
    SEGMENT_BYTES,
    TOPIC,
    SmallRun,
    write_runs,
)
from mqspark.verdict import PROPERTIES

pytestmark = [pytest.mark.slow, pytest.mark.spark]

RUNS_PER_AUDIT = 48
AUDITS = int(os.environ.get("AUDITS", "1"))
Found = dict[str, set[Finding]]

#: Which of message, replica, queue and offset each property's findings are compared by; the others
#: the audit chooses among equals.
COMPARED = {
    1: "mr", 2: "mr", 3: "qo", 4: "qom", 5: "r", 6: "r", 7: "mr",
    8: "qo", 9: "mr", 10: "mr", 11: "m", 12: "qo", 13: "r", 14: "mqo", 15: "mrqo",
    16: "qo", 17: "m", 18: "rqo",
}  # fmt: skip


def audited(session: SparkSession, history: Path, stores: Sequence[Path]) -> Found:
    """What the audit finds, by broker."""
    replicas = planting.replicas_of(stores)
    evidence = gather(session, history, replicas)
    found: Found = {replica.broker: set() for replica in replicas}
    for item in PROPERTIES:
        for row in item.judge(evidence).collect():
            finding = (
                *(item.number, row.what),
                *(row.message_id, row.replica, row.queue_id, row.queue_offset),
            )
            found[row.broker].add(compared(finding))
    evidence.close()
    return found


def referred(history: Path, stores: Sequence[Path]) -> Found:
    """What the reference judge finds in the same files, by broker."""
    events = [json.loads(line) for line in history.read_text().splitlines()]
    found: Found = {}
    replicas = planting.replicas_of(stores)
    for broker in {replica.broker for replica in replicas}:
        own = [
            event
            for event in events
            if event.get("broker", broker) == broker
            and str(event.get("id", broker)).startswith(broker)
        ]
        logs = {replica.node: read_log(replica) for replica in replicas if replica.broker == broker}
        begins = {each.node: each.begin for each in replicas if each.broker == broker}
        inputs = reference.Inputs(
            (TOPIC, OUTPUTS), TOPIC, GROUP, 1, own, logs, {TOPIC: QUEUES}, begins
        )
        found[broker] = {compared(finding) for finding in reference.findings(inputs)}
    return found


def compared(finding: Finding) -> Finding:
    """A finding with only what it is compared by."""
    number, what, message_id, replica, queue_id, offset = finding
    by = COMPARED[number]
    if what in {"skipped", "late"} and number == 4:
        message_id = None
    return (
        number,
        what,
        message_id if "m" in by else None,
        replica if "r" in by else None,
        queue_id if "q" in by and what != "vanished" else None,
        offset if "o" in by and what != "vanished" else None,
    )


def without_ties(found: set[Finding]) -> set[Finding]:
    """Where an offset is contested, who of the two is out of order is the audit's choice."""
    queues = {finding[4] for finding in found if finding[0] == 3}
    return {finding for finding in found if finding[0] != 4 or finding[4] not in queues}


def assert_equal(found: Found, second: Found, planted: dict[str, list[str]], seed: object) -> None:
    """Both judges found the same, run by run."""
    for name, plants in planted.items():
        first, other = without_ties(found[name]), without_ties(second[name])
        assert first == other, (seed, name, plants, first ^ other)


def broker(number: int) -> str:
    return f"b{number:04}"


def test_each_planted_fault_is_found_by_both_judges(session: SparkSession, tmp_path: Path) -> None:
    """Every fault by its property and its word, and nothing in a run that only looks odd."""
    runs: list[SmallRun] = []
    for number, plant in enumerate([*(fault.plant for fault in FAULTS), *INNOCENT]):
        runs.append(planted(plant, broker(number)))
    written = write_runs(runs, tmp_path / "runs")
    found, second = audited(session, *written), referred(*written)
    for number, fault in enumerate(FAULTS):
        of_audit = {finding[:2] for finding in found[broker(number)]}
        assert (fault.number, fault.what) in of_audit, (fault.name, of_audit)
        of_reference = {finding[:2] for finding in second[broker(number)]}
        assert (fault.number, fault.what) in of_reference, (fault.name, of_reference)
    assert_equal(found, second, {run.broker: [] for run in runs}, "planted")
    for number, plant in enumerate(INNOCENT, start=len(FAULTS)):
        assert found[broker(number)] == set(), plant.__name__
        assert second[broker(number)] == set(), plant.__name__


@settings(
    max_examples=AUDITS,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32))
def test_two_judges_agree_on_random_runs(session: SparkSession, tmp_path: Path, seed: int) -> None:
    """Runs with up to three faults at random places; AUDITS=50 judges a thousand and more."""
    draw = random.Random(seed)
    groups = draw.choice([(GROUP,), (GROUP, "others")])
    pops = draw.random() < 0.5
    runs, planted = [], {}
    plants = [*(fault.plant for fault in FAULTS), *INNOCENT]
    for number in range(RUNS_PER_AUDIT):
        run = small_run(f"{seed} {number}", broker(number), groups, pops=pops)
        chosen = [draw.choice(plants) for _ in range(draw.randint(0, 3))]
        planted[run.broker] = [plant.__name__ for plant in chosen]
        for plant in chosen:
            try_to(plant, run, draw)
        runs.append(run)
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    written = write_runs(runs, tmp_path / "runs")
    found, second = audited(session, *written), referred(*written)
    assert_equal(found, second, planted, seed)


#: The fields of an entry's header: first byte, and bytes.
HEADER_FIELDS = [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4), (40, 4), (44, 4)]


def test_a_bit_in_any_field_of_a_header_is_named(session: SparkSession, tmp_path: Path) -> None:
    """With the replica and the place, and of no other replica anything is said."""
    flips = [(first, byte) for first, size in HEADER_FIELDS for byte in {0, size // 2, size - 1}]
    runs = [small_run(f"rot {number}", broker(number)) for number in range(len(flips))]
    history, stores = write_runs(runs, tmp_path / "runs")
    for replica in planting.replicas_of(stores):
        if replica.node == "n1":
            first, byte = flips[int(replica.broker[1:])]
            log = read_log(replica)
            entry = log[len(log) // 2]
            at = entry.position + first + byte
            folder, base = Path(replica.directory) / "log", at // SEGMENT_BYTES * SEGMENT_BYTES
            raw = segment_path(folder, base).read_bytes()[at - base]
            planting.patch(replica, at, bytes([raw ^ (1 << first % 8)]))
    verdict = judge_run(session, history, planting.replicas_of(stores), lambda _: None)
    damaged = [row for row in verdict.judgements[4].violations if row["what"] == "damaged"]
    assert {row["broker"] for row in damaged} == {run.broker for run in runs}
    others = [row for each in verdict.judgements for row in each.violations]
    assert {row["replica"] for row in others} == {"n1"}


def planted(plant: small_plants.Plant, name: str) -> SmallRun:
    """A run with this plant: the first one in which there is something to plant it in."""
    for attempt in range(100):
        draw = random.Random(f"{plant.__qualname__} {attempt}")
        run = small_run(f"planted {plant.__qualname__} {attempt}", name, pops=True)
        if try_to(plant, run, draw):
            return run
    raise AssertionError(plant)


def try_to(plant: small_plants.Plant, run: SmallRun, draw: random.Random) -> bool:
    """Plant it, unless there is nothing to plant it in, as after what was planted before."""
    try:
        plant(run, draw)
    except (IndexError, StopIteration, AssertionError, ValueError):
        return False
    return True
