"""Two judges that share no code find the same in the same files.

One audit judges all the small runs of this file, each under a broker name of its own: Spark's cost
is one of jobs, not of rows.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dledger.log.entry import Kind
from dledger.log.segments.segment import segment_path
from mqspark.auditing import gather
from mqspark.exhibits.collecting import exhibits
from mqspark.source.planning import Replica
from mqspark.testing import planting, reference
from mqspark.testing.declaring import Plant
from mqspark.testing.reference import Finding
from mqspark.testing.rewriting import read_log
from mqspark.testing.small_making import small_run
from mqspark.testing.small_plants import FAULTS, INNOCENT
from mqspark.testing.small_runs import (
    GROUP,
    HALF_TOPIC,
    OUTPUTS,
    QUEUES,
    SCHEDULE_TOPIC,
    SEGMENT_BYTES,
    TOPIC,
    SmallRun,
    write_runs,
)
from mqspark.verdict import PROPERTIES

RUNS_PER_AUDIT = 24
SEEDS_PER_AUDIT = 10
#: Seeds of random runs: 0 is judged with all others, ten of these together. AUDITS=6 is 1 to 6.
_FIRST, _, _LAST = os.environ.get("AUDITS", "0").rpartition("-")
SEEDS = range(int(_FIRST or 1), int(_LAST) + 1)
AUDITS = [SEEDS[begin : begin + SEEDS_PER_AUDIT] for begin in range(0, len(SEEDS), SEEDS_PER_AUDIT)]
Found = dict[str, set[Finding]]
#: A property, its word, and the row.
Rows = list[tuple[int, dict[str, Any]]]

#: Which of message, replica, queue and offset each property's findings are compared by; the others
#: the audit chooses among equals.
COMPARED = {
    1: "mr", 2: "mr", 3: "qo", 4: "qom", 5: "r", 6: "r", 7: "mr",
    8: "qo", 9: "mr", 10: "mr", 11: "m", 12: "qo", 13: "r", 14: "mqo", 15: "mrqo",
    16: "qo", 17: "m", 18: "rqo", 19: "o",
}  # fmt: skip

#: The fields of an entry's header: first byte, and bytes.
HEADER_FIELDS = [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4), (40, 4), (44, 4)]
#: Bytes of an entry in which a bit is turned: of its header, and of what follows that.
FLIPPED = [
    *(first + number % size for number, (first, size) in enumerate(HEADER_FIELDS)),
    *range(48, 160, 16),
]


@dataclass(frozen=True)
class Judged:
    """Findings of both judges; the second looks at sound bytes alone."""

    rows: Rows
    second: Found
    history: Path
    replicas: list[Replica]

    @cached_property
    def found(self) -> Found:
        """The audit's findings by broker."""
        found: Found = defaultdict(set)
        for number, row in self.rows:
            names = ("message_id", "replica", "queue_id", "queue_offset")
            finding = (number, row["what"], *(row[name] for name in names))
            found[row["broker"]].add(compared(finding))
        return found


def judged_runs(
    session: SparkSession, runs: Sequence[SmallRun], folder: Path, rotten: Sequence[str] = ()
) -> Judged:
    """Judge the runs by one audit, and those that are not rotten by the other judge.

    Of a rotten run a bit of the log of n1 turns.
    """
    history, stores = write_runs(runs, folder)
    replicas = planting.replicas_of(stores)
    own = defaultdict(list)
    for replica in replicas:
        own[replica.broker].append(replica)
    for number, name in enumerate(rotten):
        turn_a_bit(own[name][1], FLIPPED[number])
    evidence = gather(session, history, replicas)
    rows = [
        (item.number, row.asDict()) for item in PROPERTIES for row in item.judge(evidence).collect()
    ]
    evidence.close()
    second = {
        name: referred(own[name], events)
        for name, events in events_of(history, [run.broker for run in runs])
        if name not in rotten
    }
    return Judged(rows, second, history, replicas)


def events_of(history: Path, brokers: Sequence[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Events of a history by broker, each with the events about all."""
    of_all, own = [], defaultdict(list)
    for line in history.read_text().splitlines():
        event = json.loads(line)
        name = event.get("broker", str(event.get("id", "")).partition("-")[0])
        own[name].append(event) if name else of_all.append(event)
    for name in brokers:
        yield name, sorted([*of_all, *own[name]], key=lambda event: int(event["t"]))


def referred(replicas: Sequence[Replica], events: Sequence[dict[str, Any]]) -> set[Finding]:
    """The reference judge's findings in one broker's run."""
    logs = {replica.node: read_log(replica) for replica in replicas}
    begins = {replica.node: replica.begin for replica in replicas}
    topics, levels = (TOPIC, OUTPUTS), {TOPIC: QUEUES}
    name = replicas[0].broker
    inputs = reference.Inputs(topics, TOPIC, GROUP, 1, events, logs, levels, begins, name)
    return {compared(finding) for finding in reference.findings(inputs)}


def compared(finding: Finding) -> Finding:
    """A finding with only the fields in which both judges must agree."""
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


def disagreements(judged: Judged, planted: dict[str, list[str]]) -> list[str]:
    """Findings of one judge alone, run by run."""
    told = []
    for name, plants in planted.items():
        first, other = without_ties(judged.found[name]), without_ties(judged.second[name])
        if first != other:
            told.append(
                f"{name} {plants}: the audit alone {first - other}, "
                f"the reference alone {other - first}"
            )
    return told


def random_runs(seed: int) -> dict[str, tuple[SmallRun, list[str]]]:
    """Runs with up to three faults, or things that only look odd, at random places."""
    draw = random.Random(seed)
    groups = draw.choice([(GROUP,), (GROUP, "others")])
    pops = draw.random() < 0.5
    runs = {}
    plants = [*(fault.plant for fault in FAULTS), *INNOCENT]
    for number in range(RUNS_PER_AUDIT):
        name = f"r{seed:04}n{number:02}"
        run = small_run(f"{seed} {number}", name, groups, pops=pops)
        chosen = [draw.choice(plants) for _ in range(draw.randint(0, 3))]
        for plant in chosen:
            try_to(plant, run, draw)
        runs[name] = (run, [plant.__name__ for plant in chosen])
    return runs


def turn_a_bit(replica: Replica, byte: int) -> None:
    """Turn a bit of a byte of an entry of messages in the middle of a log."""
    entries = [entry for entry in read_log(replica) if entry.kind == Kind.MESSAGES]
    at = entries[len(entries) // 2].position + byte
    base = at // SEGMENT_BYTES * SEGMENT_BYTES
    raw = segment_path(Path(replica.directory) / "log", base).read_bytes()[at - base]
    planting.patch(replica, at, bytes([raw ^ 1 << byte % 8]))


def planted(plant: Plant[SmallRun], name: str) -> SmallRun:
    """A run with this plant: the first one in which there is something to plant it in."""
    for attempt in range(100):
        draw = random.Random(f"{plant.__qualname__} {attempt}")
        run = small_run(f"planted {plant.__qualname__} {attempt}", name, pops=True)
        if try_to(plant, run, draw):
            return run
    raise AssertionError(plant)


def try_to(plant: Plant[SmallRun], run: SmallRun, draw: random.Random) -> bool:
    """Plant it, unless there is nothing to plant it in, as after what was planted before."""
    try:
        plant(run, draw)
    except (IndexError, StopIteration, AssertionError, ValueError):
        return False
    return True


def lacks_what_a_node_has_lower(run: SmallRun, draw: random.Random) -> None:
    """A new leader's log ended where a message waits, and a node that lost another one before has
    it below that."""
    before, lost = run.of("ack", waiting=True)[:2]
    run.drop("n2", before["id"], SCHEDULE_TOPIC)
    run.drop("n2", before["id"], HALF_TOPIC)
    lead = run.of("lead")[1]
    assert lost["t"] < lead["began"]
    lead["end_position"] = lost["position"]


LOWER = "k0000"
FAULTY = {f"f{number:04}": fault for number, fault in enumerate(FAULTS)}
ODD = {f"i{number:04}": plant for number, plant in enumerate(INNOCENT)}
ROTTEN = [f"d{number:04}" for number in range(len(FLIPPED))]


@pytest.fixture(scope="module")
def judged(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A single audit of all runs that these tests look at."""
    runs = [planted(fault.plant, name) for name, fault in FAULTY.items()]
    runs += [planted(plant, name) for name, plant in ODD.items()]
    runs += [planted(lacks_what_a_node_has_lower, LOWER)]
    runs += [small_run(name, name) for name in ROTTEN]
    runs += [run for run, _ in random_runs(0).values()]
    return judged_runs(session, runs, tmp_path_factory.mktemp("judged") / "runs", ROTTEN)


@pytest.mark.parametrize("name", FAULTY)
def test_each_planted_fault_is_found_by_both_judges(judged: Judged, name: str) -> None:
    """A planted fault is found by both judges, who also agree on the rest."""
    fault = FAULTY[name]
    for by_one in (judged.found[name], judged.second[name]):
        assert (fault.number, fault.what) in {finding[:2] for finding in by_one}, fault.name
    assert disagreements(judged, {name: [fault.name]}) == []


@pytest.mark.parametrize("name", ODD)
def test_what_only_looks_odd_is_found_by_neither(judged: Judged, name: str) -> None:
    """A run that only looks odd has no finding at all."""
    assert (judged.found[name], judged.second[name]) == (set(), set()), ODD[name].__name__


def test_what_a_leader_lacked_is_judged_where_its_acknowledgement_says(judged: Judged) -> None:
    """Though a node has it lower: both judges name that message."""
    (named,) = {finding[2] for finding in judged.found[LOWER] if finding[0] == 7}
    assert named == second_that_waits(judged.history)
    assert disagreements(judged, {LOWER: [lacks_what_a_node_has_lower.__name__]}) == []


def second_that_waits(history: Path) -> str:
    """The second message that was acknowledged to wait."""
    ((_, events),) = events_of(history, [LOWER])
    waiting = [event for event in events if event["kind"] == "ack" and event.get("waiting")]
    return str(waiting[1]["id"])


def test_two_judges_agree_on_random_runs(judged: Judged) -> None:
    """Random runs of seed 0, which are judged with all others."""
    runs = random_runs(0)
    assert disagreements(judged, {name: plants for name, (_, plants) in runs.items()}) == []


@pytest.mark.parametrize("seeds", AUDITS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_two_judges_agree_on_more_random_runs(
    session: SparkSession, tmp_path: Path, seeds: range
) -> None:
    """AUDITS=50 has seeds 1 to 50, AUDITS=51-99 these; each of 24 runs."""
    runs = {name: drawn for seed in seeds for name, drawn in random_runs(seed).items()}
    found = judged_runs(session, [run for run, _ in runs.values()], tmp_path / "runs")
    assert disagreements(found, {name: plants for name, (_, plants) in runs.items()}) == []


def test_a_bit_anywhere_in_an_entry_is_named(judged: Judged) -> None:
    """A flipped bit is named with its replica and place, and no other replica is accused."""
    own = [(number, row) for number, row in judged.rows if row["broker"] in ROTTEN]
    damaged = {row["broker"] for number, row in own if (number, row["what"]) == (5, "damaged")}
    assert damaged == {*ROTTEN}
    assert {row["replica"] for _, row in own} - {None} == {"n1"}


def test_whatever_is_found_can_be_shown(judged: Judged, session: SparkSession) -> None:
    """The first finding of each property and word has its lines or its bytes."""
    first = {(number, row["what"]): (number, row) for number, row in judged.rows}
    shown = exhibits(session, judged.history, judged.replicas, [*first.values()])
    assert len(shown) == len(first) > 50
    for (number, what), exhibit in zip(first, shown, strict=True):
        assert exhibit.lines or exhibit.held, (number, what)
