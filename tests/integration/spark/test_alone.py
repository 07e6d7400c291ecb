"""Replicas without a history: what they show, and what is said not to be judged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
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

pytestmark = [pytest.mark.slow, pytest.mark.spark]

RUN = Run(messages=200, queues=4, batch=20, segment_bytes=16_384)
#: The entry that has the index of the one before, which is of another term.
TWICE = 5


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("clean")
    write_run(RUN, directory)
    return directory


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Path:
    return shutil.copytree(clean, tmp_path / "copy")


def replicas(directory: Path) -> list[Replica]:
    return planting.replicas_of(sorted(directory.glob("broker-*")))


def audited(directory: Path, session: SparkSession) -> Verdict:
    return judge_run(session, None, replicas(directory), lambda _: None)


def found(verdict: Verdict) -> set[tuple[object, ...]]:
    return {
        (judgement.number, row["what"], row["replica"])
        for judgement in verdict.judgements
        for row in judgement.violations
    }


def as_copy(store: Path, end_position: int) -> None:
    """Say that a replica is a copy that was committed up to there."""
    manifest = Manifest(1, 0, 0, end_position, 0, 0, 0, 0, 0, 0)
    (store / MANIFEST_FILE).write_bytes(msgspec.json.encode(manifest))


def rewritten(store: Path, entries: int, *, term: int) -> int:
    """The replica with so many of its entries, and another one behind; the end of the former."""
    (replica,) = replicas_of(store)
    kept = read_log(replica)[:entries]
    shutil.rmtree(store / "log")
    log = LogWriter(store, RUN.segment_bytes)
    for entry in kept:
        log.append(entry.kind, entry.body, entry.term)
    end = log.position
    log.append(1, b"", term)
    log.close()
    return end


def replicas_of(store: Path) -> list[Replica]:
    return planting.replicas_of([store])


def test_what_replicas_show_by_themselves_is_found(copy: Path, session: SparkSession) -> None:
    """A turned bit, and another history with right checksums: each by its property; the bytes are
    shown. What needs a history is named, with the reason."""
    _, n1, n2 = replicas(copy)
    planting.flip(n1, RUN.message_id(123), recompute=False)
    planting.flip(n2, RUN.message_id(45), recompute=True)

    verdict = audited(copy, session)

    assert found(verdict) >= {(2, "damaged", "n1"), (5, "damaged", "n1"), (5, "changed", "n2")}
    assert (13, "different", "n2") in found(verdict)
    unjudged = {each.number for each in verdict.judgements if each.unjudged}
    assert unjudged == {1, 3, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17}
    (two,) = [each for each in verdict.written().properties if each.number == 2]
    exhibit = two.violations[0].exhibit
    assert exhibit is not None
    assert RUN.message_id(123) in {each.record.get("property UNIQ_KEY") for each in exhibit.held}


@pytest.mark.long
def test_tails_that_may_be_replaced_prove_nothing(copy: Path, session: SparkSession) -> None:
    """A replica that was copied earlier is shorter, and may end with an entry of a leader that was
    replaced since."""
    rewritten(copy / "broker-a-n1", 5, term=7)

    verdict = audited(copy, session)

    assert found(verdict) == set()
    assert verdict.counts["entries"] == {"broker-a/n0": 11, "broker-a/n1": 6, "broker-a/n2": 11}


def test_what_copies_say_was_committed_must_be_in_all(copy: Path, session: SparkSession) -> None:
    """By their manifests: then a lost tail is a loss, and another one is a difference."""
    (whole, *_) = replicas(copy)
    end = read_log(whole)[8].position
    for node in RUN.nodes:
        as_copy(copy / f"broker-a-{node}", end)
    rewritten(copy / "broker-a-n1", 5, term=7)

    verdict = audited(copy, session)

    assert {each[:2] for each in found(verdict)} == {(5, "changed"), (13, "different")}
    assert {replica for *_, replica in found(verdict)} == {"n1"}
    assert f"broker-a: compared from position 0 to {end}" in verdict.notes


def renumbered(copy: Path, number: Callable[[int], int]) -> None:
    """In all replicas alike, queue 1's offsets are others."""
    for replica in replicas(copy):

        def edit(message: StoredMessage) -> list[StoredMessage]:
            if message.queue_id != 1:
                return [message]
            return [message.moved_to(1, number(message.queue_offset))]

        rewrite(replica, edit)


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (lambda offset: offset + (offset >= 20), {"hole"}),
        (lambda offset: offset - (offset >= 20), {"misplaced"}),
        (lambda offset: offset + 1, {"hole"}),
        (lambda offset: offset if offset < 20 else offset - 20, {"misplaced"}),
    ],
    ids=["left out", "given twice", "the first left out", "begun anew"],
)
def test_the_order_of_a_queue_is_seen_in_the_log(
    copy: Path, session: SparkSession, number: Callable[[int], int], what: set[str]
) -> None:
    """Though all replicas are alike. A queue begins anew only where its topic was deleted."""
    renumbered(copy, number)

    verdict = audited(copy, session)

    assert {(each, name) for each, name, _ in found(verdict)} == {(4, name) for name in what}


def test_a_damaged_replica_is_not_asked_for_the_order(copy: Path, session: SparkSession) -> None:
    """What it can't show is no hole; and what is wrong on the others is still found."""
    n0, *_ = replicas(copy)
    renumbered(copy, lambda offset: offset + (offset >= 20))
    planting.flip(n0, RUN.message_id(45), recompute=False)

    verdict = audited(copy, session)

    assert (5, "damaged", "n0") in found(verdict)
    assert {each for each in found(verdict) if each[0] == 4} == {(4, "hole", "n1, n2")}


def test_replicas_are_compared_beyond_an_index_that_all_have_twice(
    copy: Path, session: SparkSession
) -> None:
    """Such an index is no place where terms of replicas differ: what differs behind it is found."""
    for replica in replicas(copy):
        entries = read_log(replica)
        shutil.rmtree(Path(replica.directory) / "log")
        log = LogWriter(Path(replica.directory), RUN.segment_bytes)
        for number, entry in enumerate(entries):
            log.next_index -= number == TWICE
            log.append(entry.kind, entry.body, entry.term + (number >= TWICE))
        log.append(1, replica.node.encode() if replica.node == "n1" else b"", entries[-1].term + 1)
        log.close()

    verdict = audited(copy, session)

    assert found(verdict) >= {(5, "disordered", "n0, n1, n2"), (13, "different", "n1")}


@pytest.mark.long
def test_one_replica_has_nothing_to_be_compared_with(copy: Path, session: SparkSession) -> None:
    """The bytes of the replica itself are judged."""
    for name in ("n1", "n2"):
        shutil.rmtree(copy / f"broker-a-{name}")

    verdict = audited(copy, session)

    assert verdict.holds
    assert [each.number for each in verdict.judgements if not each.unjudged] == [2, 4, 5, 18, 19]


def test_files_that_are_made_from_the_log_are_compared_with_it(
    copy: Path, session: SparkSession
) -> None:
    """A turned bit, a cut file, a snapshot of other bytes: by file, replica and range."""
    for replica in replicas(copy):
        serve(Path(replica.directory), RUN.segment_bytes)
    clean = audited(copy, session).judgements[17]
    assert clean.holds
    assert clean.checked > 3 * 2 * RUN.messages
    stores = [Path(replica.directory) for replica in replicas(copy)]
    (queue, *_) = sorted(stores[0].glob("queues/*/*/*"))
    raw = bytearray(queue.read_bytes())
    raw[5 * 32 + 3] ^= 8
    queue.write_bytes(raw)
    (index,) = sorted(stores[1].glob("index/*"))
    index.write_bytes(index.read_bytes()[: 7 * 16])
    (stores[2] / "snapshot.msgpack").write_bytes(b"DLGSNAP1")
    verdict = audited(copy, session)
    assert found(verdict) == {(18, "derived", f"n{number}") for number in range(3)}
    shown = {row["replica"]: row["detail"] for row in verdict.judgements[17].violations}
    assert f"queues/{queue.relative_to(stores[0] / 'queues')}, 5 to 5: " in str(shown["n0"])
    assert f"index/{index.name}, 7 to {2 * RUN.messages - 1}: " in str(shown["n1"])
    assert "snapshot.msgpack" in str(shown["n2"])
