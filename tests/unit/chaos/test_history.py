"""A history has its events in the order of writing, one to a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqchaos.history.events import (
    Ack,
    Commit,
    Deliver,
    End,
    Event,
    Fail,
    Fault,
    GroupOffset,
    HistoryWriter,
    Lead,
    Meta,
    QueueEnd,
    Resolve,
    Send,
    Settle,
    Vote,
)
from mqchaos.history.reading import read_history

EVENTS: list[Event] = [
    Meta(1, 7, "leader-kill", "T", True, {"broker-a": {"n0": "/stores/n0"}}),
    Ack(2, "p0", "id-1", "T", "broker-a", 3, 41, 9000),
    Fail(3, "p0", "id-2", False, "SendUnknown: no answer"),
    Commit(4, "c0", "G", "T", "broker-a", 3, 42),
    Fault(5, "kill", "broker-a", "n1"),
    Send(6, "p0", "id-3", "T", "", 17, 8, due=1_000_000_006),
    Ack(7, "p0", "id-3", "T", "broker-a", 0, 3, 9200, waiting=True),
    Send(8, "p0", "id-4", "T", "", 17, 8, transaction="commit"),
    Resolve(9, "p0", "id-4", "commit"),
    Lead(10, "broker-a", "n1", 2, 9, 9400),
    Vote(11, "broker-a", "n1", 2, None),
    QueueEnd(12, 11, "broker-a", "n1", "T", 3, 42),
    GroupOffset(13, 12, "broker-a", "n1", "G", "T", 3, 42),
    Meta(14, 0, "", "T-outputs", True, {}, "T", "G"),
    Send(15, "p0", "id-5", "T", "", 17, 8, expires=2_000_000_000),
    Deliver(16, "c0.1", "G", "T", "broker-a", 3, 41, "id-1", 17, 1_790_000_000_123),
    Settle(17, "c0.1", "G", "T", "broker-a", 3, 41, "id-1", 1_790_000_000_123, "ack", True),
    Meta(18, 7, "leader-kill", "P", True, {}, levels={"P": 8}),
    Send(19, "p0", "id-6", "P", "", 17, 8, priority=9),
    Deliver(20, "c0.1", "G", "P", "broker-a", 7, 0, "id-6", 17, 1_790_000_000_124, asked=19),
    End(21),
]


def test_events_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Events that are read equal those that were written."""
    with HistoryWriter(tmp_path / "a.jsonl") as history:
        for event in EVENTS:
            history.write(event)

    assert list(read_history(tmp_path / "a.jsonl")) == EVENTS


def test_a_line_names_its_kind_and_fields(tmp_path: Path) -> None:
    """The lines are the JSON that any judge can read without this package."""
    with HistoryWriter(tmp_path / "a.jsonl") as history:
        history.write(EVENTS[1])

    assert json.loads((tmp_path / "a.jsonl").read_text()) == {
        "kind": "ack",
        "t": 2,
        "client": "p0",
        "id": "id-1",
        "topic": "T",
        "broker": "broker-a",
        "queue_id": 3,
        "offset": 41,
        "position": 9000,
    }


def test_a_directory_is_read_file_after_file(tmp_path: Path) -> None:
    """A directory of histories reads like one, leaving out other files."""
    for name in ("b", "a"):
        with HistoryWriter(tmp_path / f"{name}.jsonl") as history:
            history.write(Fault(1, "kill", name, "n0"))
    (tmp_path / "notes.txt").write_text("no history")

    brokers = [event.broker for event in read_history(tmp_path) if isinstance(event, Fault)]

    assert brokers == ["a", "b"]


def test_nothing_is_on_disk_before_a_flush_and_all_of_it_after(tmp_path: Path) -> None:
    """Events gather in memory, so that writing one costs the client next to nothing."""
    path = tmp_path / "a.jsonl"
    with HistoryWriter(path) as history:
        history.write(EVENTS[0])
        assert path.read_bytes() == b""
        history.flush()
        assert list(read_history(path)) == EVENTS[:1]


def test_a_history_is_never_written_over(tmp_path: Path) -> None:
    """A second writer on the same file is refused: two runs would become one."""
    path = tmp_path / "a.jsonl"
    path.write_text("")

    with pytest.raises(FileExistsError):
        HistoryWriter(path)
