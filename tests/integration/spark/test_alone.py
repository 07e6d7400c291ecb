"""Replicas without a history: findings, and what is reported as not judged.

One audit judges all groups of the short tests, each under a broker name of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from dledger.log.replica import MANIFEST_FILE, Manifest
from mqbroker.testing.leading import serve
from mqspark.auditing import judge_run
from mqspark.source.planning import Replica
from mqspark.testing import planting
from mqspark.testing.rewriting import StoredMessage, read_log, rewrite
from mqspark.testing.synthetic import LogWriter, Run, write_run
from mqspark.verdict import Verdict

RUN = Run(messages=200, queues=4, batch=20, segment_bytes=16_384)
#: The entry that has the index of the one before, which is of another term.
TWICE = 5
COMMITTED = 8
"""The entry where copies say that what was committed ends."""
Group = list[Replica]
#: Kinds of disorder: the property that shows it, and how offsets are changed to bring it about.
ORDERS: dict[str, tuple[str, Callable[[int], int]]] = {
    "left-out": ("hole", lambda offset: offset + (offset >= 20)),
    "given-twice": ("misplaced", lambda offset: offset - (offset >= 20)),
    "first-left-out": ("hole", lambda offset: offset + 1),
    "begun-anew": ("misplaced", lambda offset: offset if offset < 20 else offset - 20),
}


def folder_of(replica: Replica) -> Path:
    return Path(replica.directory)


def found(verdict: Verdict, broker: str = RUN.broker) -> set[tuple[object, ...]]:
    """Faults of a broker's replicas."""
    return {
        (judgement.number, row["what"], row["replica"])
        for judgement in verdict.judgements
        for row in judgement.violations
        if row["broker"] == broker
    }


def rewritten(replica: Replica, entries: int, *, term: int) -> None:
    """Cut the replica's log, and append another entry."""
    kept = read_log(replica)[:entries]
    shutil.rmtree(folder_of(replica) / "log")
    log = LogWriter(folder_of(replica), RUN.segment_bytes)
    for entry in kept:
        log.append(entry.kind, entry.body, entry.term)
    log.append(1, b"", term)
    log.close()


def renumbered(group: Group, number: Callable[[int], int]) -> None:
    """Renumber the offsets of queue 1 in all replicas alike."""
    for replica in group:

        def edit(message: StoredMessage) -> list[StoredMessage]:
            if message.queue_id != 1:
                return [message]
            return [message.moved_to(1, number(message.queue_offset))]

        rewrite(replica, edit)


def flipped(group: Group) -> None:
    """A bit turns, and another history has right checksums."""
    planting.flip(group[1], RUN.message_id(123), recompute=False)
    planting.flip(group[2], RUN.message_id(45), recompute=True)


def copies(group: Group) -> None:
    """Give all replicas a manifest with their commit index; one has another tail."""
    manifest = Manifest(1, 0, 0, read_log(group[0])[COMMITTED].position, 0, 0, 0, 0, 0, 0)
    for replica in group:
        (folder_of(replica) / MANIFEST_FILE).write_bytes(msgspec.json.encode(manifest))
    rewritten(group[1], 5, term=7)


def damaged(group: Group) -> None:
    """An offset is left out, and on one replica a bit turns."""
    renumbered(group, ORDERS["left-out"][1])
    planting.flip(group[0], RUN.message_id(45), recompute=False)


def twice(group: Group) -> None:
    """Give all replicas an index twice; one has another entry behind it."""
    for replica in group:
        entries = read_log(replica)
        shutil.rmtree(folder_of(replica) / "log")
        log = LogWriter(folder_of(replica), RUN.segment_bytes)
        for number, entry in enumerate(entries):
            log.next_index -= number == TWICE
            log.append(entry.kind, entry.body, entry.term + (number >= TWICE))
        log.append(1, replica.node.encode() if replica.node == "n1" else b"", entries[-1].term + 1)
        log.close()


def served(group: Group) -> None:
    """Make the files that the group's brokers derive from the log."""
    for replica in group:
        serve(folder_of(replica), RUN.segment_bytes)


def derived(group: Group) -> None:
    """Three damaged files: a turned bit, a cut, a snapshot of other bytes."""
    served(group)
    (queue, *_) = sorted(folder_of(group[0]).glob("queues/*/*/*"))
    raw = bytearray(queue.read_bytes())
    raw[5 * 32 + 3] ^= 8
    queue.write_bytes(raw)
    (index,) = sorted(folder_of(group[1]).glob("index/*"))
    index.write_bytes(index.read_bytes()[: 7 * 16])
    (folder_of(group[2]) / "snapshot.msgpack").write_bytes(b"DLGSNAP1")


PLANTS: dict[str, Callable[[Group], None]] = {
    each.__name__: each for each in (flipped, copies, damaged, twice, served, derived)
} | {
    name: lambda group, number=number: renumbered(group, number)
    for name, (_, number) in ORDERS.items()
}


@pytest.fixture(scope="module")
def verdict(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """An audit of a group for each plant, under the plant's name."""
    replicas: Group = []
    for name, plant in PLANTS.items():
        _, stores = write_run(replace(RUN, broker=name), tmp_path_factory.mktemp("alone"))
        plant(group := planting.replicas_of(stores))
        replicas += group
    return judge_run(session, None, planting.replicas_of(map(folder_of, replicas)), lambda _: None)


def test_what_replicas_show_by_themselves_is_found(verdict: Verdict) -> None:
    """A turned bit, and another history with right checksums: each by its property; the bytes are
    shown. What needs a history is named, with the reason."""
    assert found(verdict, "flipped") >= {
        *((2, "damaged", "n1"), (5, "damaged", "n1"), (5, "changed", "n2")),
        (13, "different", "n2"),
    }
    unjudged = {each.number for each in verdict.judgements if each.unjudged}
    assert unjudged == {1, 3, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17}
    (two,) = [each for each in verdict.written().properties if each.number == 2]
    (shown,) = [each.exhibit for each in two.violations if each.broker == "flipped"]
    assert shown is not None
    assert RUN.message_id(123) in {each.record.get("property UNIQ_KEY") for each in shown.held}


def test_what_copies_say_was_committed_must_be_in_all(verdict: Verdict) -> None:
    """Copies with manifests must all have the committed entries, and no others."""
    assert found(verdict, "copies") == {(5, "changed", "n1"), (13, "different", "n1")}
    (note,) = [note for note in verdict.notes if note.startswith("copies: ")]
    assert note.startswith("copies: compared from position 0 to ")


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_a_queue_is_seen_in_the_log(verdict: Verdict, name: str) -> None:
    """Disorder in a queue's log is found in replicas that are alike, without a deletion."""
    assert {each[:2] for each in found(verdict, name)} == {(4, ORDERS[name][0])}


def test_a_damaged_replica_is_not_asked_for_the_order(verdict: Verdict) -> None:
    """A damaged replica's gaps are not holes in the order, and others' faults are found."""
    assert (5, "damaged", "n0") in found(verdict, "damaged")
    assert {each for each in found(verdict, "damaged") if each[0] == 4} == {(4, "hole", "n1, n2")}


def test_replicas_are_compared_beyond_an_index_that_all_have_twice(verdict: Verdict) -> None:
    """Differences behind an index that all replicas have twice are found."""
    expected = {(5, "disordered", "n0, n1, n2"), (13, "different", "n1")}
    assert found(verdict, "twice") >= expected


def test_files_that_are_made_from_the_log_are_compared_with_it(verdict: Verdict) -> None:
    """Derived files are compared with the log; a fault has its file, replica and range."""
    assert found(verdict, "served") == set()
    judged = verdict.judgements[17]
    assert judged.checked > 2 * 3 * 2 * RUN.messages
    assert found(verdict, "derived") == {(18, "derived", f"n{number}") for number in range(3)}
    shown = {row["replica"]: str(row["detail"]) for row in judged.violations}
    assert shown["n0"].startswith("queues/")
    assert ", 5 to 5: " in shown["n0"]
    assert shown["n1"].startswith("index/")
    assert f", 7 to {2 * RUN.messages - 1}: " in shown["n1"]
    assert "snapshot.msgpack" in shown["n2"]


def alone(directory: Path) -> Group:
    """A sound group of replicas."""
    return planting.replicas_of(write_run(RUN, directory)[1])


@pytest.mark.long
def test_tails_that_may_be_replaced_prove_nothing(tmp_path: Path, session: SparkSession) -> None:
    """A replica that was copied earlier is shorter, and may end with an entry of a leader that was
    replaced since."""
    group = alone(tmp_path)
    rewritten(group[1], 5, term=7)

    verdict = judge_run(session, None, planting.replicas_of(map(folder_of, group)), lambda _: None)

    assert found(verdict) == set()
    assert verdict.counts["entries"] == {"broker-a/n0": 11, "broker-a/n1": 6, "broker-a/n2": 11}


@pytest.mark.long
def test_one_replica_has_nothing_to_be_compared_with(tmp_path: Path, session: SparkSession) -> None:
    """A single replica's own bytes are judged."""
    verdict = judge_run(session, None, alone(tmp_path)[:1], lambda _: None)

    assert verdict.holds
    assert [each.number for each in verdict.judgements if not each.unjudged] == [2, 4, 5, 18, 19]
