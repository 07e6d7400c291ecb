"""Exhibits of a violation: a replica's bytes at a position, and its lines of history."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqspark.exhibits.held import ReplicaFiles
from mqspark.exhibits.lines import position_of, wanted_of
from mqspark.source.planning import Replica, find_replicas
from mqspark.testing import planting
from mqspark.testing.rewriting import read_log
from mqspark.testing.synthetic import Run, write_run

RUN = Run(messages=150, segment_bytes=16_384, nodes=("n0",))
ROW = {
    **{"message_id": "A", "broker": "b", "topic": "T", "queue_id": 3, "queue_offset": 7},
    "detail": "it led in term 4, at 500 ns",
}
SILENT = {
    **{"kind": "ack", "id": "B", "broker": "b", "topic": "T", "queue_id": 3, "offset": 9},
    **{"t": 1, "began": None, "term": None},
}


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    _, (store,) = write_run(RUN, tmp_path)
    (found,) = find_replicas([str(store)])
    return found


def test_a_message_is_told_with_its_entry_and_its_bytes(replica: Replica) -> None:
    """A position anywhere in a message's record leads to its entry and its bytes."""
    message = planting.find_message(replica, RUN.message_id(42))

    held = ReplicaFiles(replica).look([message.position + 20])[message.position + 20]

    assert held.what == f"message {message.message_id}"
    assert (held.data_at, bytes.fromhex(held.data)) == (message.position, message.raw)
    assert held.record["queue"] == message.queue_id
    assert held.entry["term"] == 1


def test_an_entry_is_told_by_its_own_position(replica: Replica) -> None:
    """A violation of a whole entry names where its header stands."""
    entry = read_log(replica)[1]

    held = ReplicaFiles(replica).look([entry.position])[entry.position]

    assert (held.what, held.entry["index"], held.data_at) == ("an entry", 2, entry.position)


@pytest.mark.parametrize("recompute", [True, False])
def test_a_lie_is_told_as_it_is(replica: Replica, recompute: bool) -> None:
    """A turned bit fails two checks; a lie with right checksums none."""
    planting.flip(replica, RUN.message_id(42), recompute=recompute)
    position = planting.find_message(replica, RUN.message_id(42)).position

    told = ReplicaFiles(replica).look([position])[position].what

    assert ("damaged: message body has CRC" in told) != recompute
    assert ("the entry's check fails: the body has CRC" in told) != recompute


def test_where_nothing_is_the_replica_says_why(replica: Replica) -> None:
    """A replica says why it has nothing there: behind the end, missing, zeros."""
    end = ReplicaFiles(replica).end
    first, second = sorted((Path(replica.directory) / "log").glob("*.seg"))[:2]
    padding = RUN.segment_bytes - 1
    second.unlink()
    (found,) = find_replicas([replica.directory])
    files = ReplicaFiles(found)

    assert end > 32768
    assert files.look([end])[end].what == f"nothing: the log ends at {end}"
    assert files.look([padding])[padding].what == "no entry"
    assert files.look([16_384])[16_384].what == "the segment file is missing"
    first.unlink()
    (found,) = find_replicas([replica.directory])
    assert ReplicaFiles(found).look([0])[0].what == "nothing: the log begins at 32768"


def test_a_line_is_about_a_violation_by_message_place_moment_or_term() -> None:
    """A line is about a violation by message, place, moment or term, or as a neighbour."""
    wanted = wanted_of(ROW)

    assert wanted.takes(SILENT | {"id": "A"})
    assert wanted.takes(SILENT | {"offset": 8})
    assert wanted.takes(SILENT | {"began": 500})
    assert wanted.takes(SILENT | {"kind": "vote", "term": 4})
    assert not wanted.takes(SILENT)
    assert not wanted.takes(SILENT | {"term": 4})
    assert not wanted.takes(SILENT | {"offset": 7, "queue_id": 2})


@pytest.mark.parametrize(
    ("line", "position"),
    [('{"position":5}', 5), ('{"position":-1}', None), ("[]", None), ("{", None), ("{}", None)],
)
def test_a_position_is_read_from_a_line_if_it_has_one(line: str, position: int | None) -> None:
    """Lines are as strangers wrote them."""
    assert position_of(line) == position
