"""Every planted fault is caught: by the right property, with the message and the replica named."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark import planting
from spark.mqaudit import judge_run
from spark.planning import Replica
from spark.session import open_session
from spark.synthetic import Run, write_run
from spark.verdict import Verdict

pytestmark = [pytest.mark.slow, pytest.mark.spark]

RUN = Run(messages=400, queues=4, batch=20, segment_bytes=65_536)
VICTIM = RUN.message_id(123)
#: In the same entry and so of the same size, but in another queue.
NEIGHBOUR = RUN.message_id(125)
GHOST = "F" * 32
NODES = ["n0", "n1", "n2"]


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    session = open_session("test", cores=2)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("clean")
    write_run(RUN, directory)
    return directory


@dataclass
class Copy:
    """A copy of the clean run, to break."""

    directory: Path

    @property
    def history(self) -> Path:
        return self.directory / "history"

    @property
    def replicas(self) -> list[Replica]:
        return planting.replicas_of(self.directory.glob("broker-*"))

    def on(self, nodes: list[str], plant: Callable[[Replica], None]) -> None:
        for replica in self.replicas:
            if replica.node in nodes:
                plant(replica)

    def audited(self, session: SparkSession) -> Verdict:
        return judge_run(session, self.history, self.replicas, lambda _: None)


@pytest.fixture
def copy(clean_run: Path, tmp_path: Path) -> Copy:
    shutil.copytree(clean_run, tmp_path / "copy")
    return Copy(tmp_path / "copy")


def found(verdict: Verdict) -> dict[int, set[str]]:
    """The violated properties, and the kinds of violations of each."""
    return {
        judgement.number: {str(row["what"]) for row in judgement.violations}
        for judgement in verdict.judgements
        if not judgement.holds
    }


def named(verdict: Verdict, number: int, what: str) -> set[tuple[object, object]]:
    """The (message id, replicas) that violations of one kind name."""
    return {
        (row["message_id"], row["replica"])
        for judgement in verdict.judgements
        if judgement.number == number
        for row in judgement.violations
        if row["what"] == what
    }


def text(nodes: list[str]) -> str:
    return ", ".join(nodes)


def test_a_clean_run_has_no_violation(copy: Copy, session: SparkSession) -> None:
    """Nothing is found in a run as it should be, and everything in it is counted."""
    verdict = copy.audited(session)
    assert found(verdict) == {}
    assert verdict.counts == {
        "sent": 400,
        "acknowledged": 400,
        "stored": {f"broker-a/{node}": 400 for node in NODES},
        "consumed": 400,
        "lost": 0,
        "phantom": 0,
        "duplicated": 0,
        "reordered": 0,
        "replicas_equal": True,
    }


@pytest.mark.parametrize("nodes", [["n1"], NODES], ids=text)
def test_a_flipped_bit_on_a_disk_is_found(
    nodes: list[str], copy: Copy, session: SparkSession
) -> None:
    """A body with a stale CRC is damage of this message on these replicas."""
    copy.on(nodes, lambda replica: planting.flip(replica, VICTIM, recompute=False))
    verdict = copy.audited(session)
    assert named(verdict, 1, "damaged") == {(VICTIM, text(nodes))}
    assert named(verdict, 2, "damaged") == {(VICTIM, text(nodes))}
    assert named(verdict, 5, "damaged") == {(VICTIM, text(nodes))}
    assert set(found(verdict)) == {1, 2, 5, 13}


@pytest.mark.parametrize("nodes", [["n1"], NODES], ids=text)
def test_a_changed_body_with_fresh_checksums_is_found(
    nodes: list[str], copy: Copy, session: SparkSession
) -> None:
    """A consistent log of another body contradicts the history, and other replicas if any."""
    copy.on(nodes, lambda replica: planting.flip(replica, VICTIM, recompute=True))
    verdict = copy.audited(session)
    assert named(verdict, 1, "altered") == {(VICTIM, text(nodes))}
    assert named(verdict, 2, "altered") == {(VICTIM, text(nodes))}
    assert set(found(verdict)) == ({1, 2} if nodes == NODES else {1, 2, 5, 13})


@pytest.mark.parametrize("recompute", [False, True], ids=["disk", "broker"])
@pytest.mark.parametrize("nodes", [["n2"], NODES], ids=text)
def test_a_removed_message_is_found(
    nodes: list[str], recompute: bool, copy: Copy, session: SparkSession
) -> None:
    """A message that is cut out, or overwritten with zeros, is lost on these replicas."""
    copy.on(nodes, lambda replica: planting.remove(replica, VICTIM, recompute=recompute))
    verdict = copy.audited(session)
    assert named(verdict, 1, "lost") == {(VICTIM, text(nodes))}


@pytest.mark.parametrize("recompute", [False, True], ids=["disk", "broker"])
@pytest.mark.parametrize("nodes", [["n0"], NODES], ids=text)
def test_a_replaced_message_is_found(
    nodes: list[str], recompute: bool, copy: Copy, session: SparkSession
) -> None:
    """The message is lost, what stands there is a phantom, and the slot has two names."""
    copy.on(
        nodes, lambda replica: planting.replace_message(replica, VICTIM, GHOST, recompute=recompute)
    )
    verdict = copy.audited(session)
    assert named(verdict, 1, "lost") == {(VICTIM, text(nodes))}
    assert named(verdict, 2, "phantom") == {(GHOST, text(nodes))}
    assert {1, 2, 3} <= set(found(verdict))
    assert (5 in found(verdict)) == (nodes != NODES or not recompute)


@pytest.mark.parametrize("recompute", [False, True], ids=["disk", "broker"])
@pytest.mark.parametrize("nodes", [["n1"], NODES], ids=text)
def test_two_swapped_messages_are_found(
    nodes: list[str], recompute: bool, copy: Copy, session: SparkSession
) -> None:
    """Both are not where they were acknowledged; with good CRCs their slots have two names."""
    copy.on(nodes, lambda replica: planting.swap(replica, VICTIM, NEIGHBOUR, recompute=recompute))
    verdict = copy.audited(session)
    what = "moved" if recompute else "damaged"
    assert named(verdict, 1, what) == {(VICTIM, text(nodes)), (NEIGHBOUR, text(nodes))}
    if recompute:
        assert {message for message, _ in named(verdict, 3, "contested")} == {VICTIM, NEIGHBOUR}


@pytest.mark.parametrize("nodes", [["n1"], NODES], ids=text)
def test_a_duplicate_is_found(nodes: list[str], copy: Copy, session: SparkSession) -> None:
    """Two copies of an idempotent send are one too many, even in a tail."""
    copy.on(nodes, lambda replica: planting.duplicate(replica, VICTIM))
    verdict = copy.audited(session)
    assert named(verdict, 9, "duplicate") == {(VICTIM, text(nodes))}
    assert set(found(verdict)) == {9}


@pytest.mark.parametrize("nodes", [["n1"], NODES], ids=text)
def test_a_phantom_is_found(nodes: list[str], copy: Copy, session: SparkSession) -> None:
    """A record that nobody sent is a violation wherever it is."""
    copy.on(nodes, lambda replica: planting.phantom(replica, VICTIM, GHOST))
    verdict = copy.audited(session)
    assert named(verdict, 2, "phantom") == {(GHOST, text(nodes))}
    assert set(found(verdict)) == {2}


@pytest.mark.parametrize("shorten", [False, True], ids=["zeros", "short file"])
def test_a_truncated_last_segment_is_found(
    shorten: bool, copy: Copy, session: SparkSession
) -> None:
    """What was acknowledged in the lost entries is lost on this replica."""
    copy.on(["n2"], lambda replica: planting.truncate(replica, 2, shorten=shorten))
    verdict = copy.audited(session)
    lost = {message for message, replica in named(verdict, 1, "lost") if replica == "n2"}
    # Of the 40 messages in the last two entries, the first ten of the first may be readable.
    assert {RUN.message_id(number) for number in range(380, 400)} <= lost
    assert len(lost) <= 40
    assert {1, 13} <= set(found(verdict))
    assert {replica for _, replica in named(verdict, 13, "incomplete")} == {"n2"}


def test_an_acknowledgement_that_never_happened_is_found(copy: Copy, session: SparkSession) -> None:
    """The history has an acknowledgement that no replica can show a message for."""
    planting.forge_ack(copy.history, GHOST)
    verdict = copy.audited(session)
    assert named(verdict, 1, "lost") == {(GHOST, text(NODES))}
    assert set(found(verdict)) == {1}
