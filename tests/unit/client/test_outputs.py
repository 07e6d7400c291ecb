"""Outputs of a transaction: their parts, their bounds, and their places."""

from __future__ import annotations

import pytest

from dledger.remoting.headers import WriteOnceResponseHeader
from mqclient import BadMessage, limits
from mqclient.consuming.transacting.outputs import Outputs


def filled() -> Outputs:
    """Five outputs of three queues, in any order."""
    outputs = Outputs()
    for number, (topic, queue_id) in enumerate([("A", 1), ("B", 0), ("A", 0), ("A", 1), ("B", 0)]):
        outputs.add(topic, queue_id, f"k{number}", b"%d" % number * (number + 1))
    return outputs


def test_records_of_a_queue_lie_together() -> None:
    """Records of a queue lie together: a part for each topic, a run for each queue."""
    outputs = filled()

    assert outputs.parts() == [("A", 8, [(1, 2), (0, 1)]), ("B", 7, [(0, 2)])]
    assert outputs.body() == b"0" + b"3333" + b"222" + b"11" + b"44444"
    assert (len(outputs), outputs.first, outputs.size_bytes) == (5, "A", 15)


def test_each_output_is_told_its_place() -> None:
    """Results are in the order of the sends, counted from the first place of each run."""
    answer = WriteOnceResponseHeader(1000, [(1, 7), (0, 3), (0, 20)], 5, duplicate=False)
    results = filled().results(answer, "b", "h:1")

    assert [result.message_id for result in results] == ["k0", "k1", "k2", "k3", "k4"]
    assert [result.queue_offset for result in results] == [7, 20, 3, 8, 21]
    assert [result.position for result in results] == [1000, 1008, 1005, 1001, 1010]


def test_places_that_brokers_do_not_know_any_more_are_none() -> None:
    """Places that brokers no longer know, as after retention, are None."""
    results = filled().results(WriteOnceResponseHeader(-1, [], 0, duplicate=True), "b", "h:1")

    assert {(result.queue_offset, result.position) for result in results} == {(-1, -1)}


@pytest.mark.parametrize("what", ["bytes", "messages", "topics"])
def test_what_is_too_much_for_one_entry_is_refused(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output above a bound is refused with the bounds and a remedy; earlier ones stay."""
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 100)
    monkeypatch.setattr(limits, "TRANSACTION_RECORDS_MAX", 9)
    monkeypatch.setattr(limits, "TRANSACTION_TOPICS_MAX", 5)
    outputs = Outputs()

    def add_ten() -> None:
        for number in range(10):
            topic = f"T{number}" if what == "topics" else "T"
            outputs.add(topic, 0, "k", bytes(30 if what == "bytes" else 1))

    with pytest.raises(BadMessage, match="poll fewer messages"):
        add_ten()
    assert len(outputs) == {"bytes": 3, "messages": 9, "topics": 5}[what]
