"""Batches: queue order survives every refusal, retries are byte-identical, bounds hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqclient.errors import SendFailed, SendUnknown
from mqclient.producing.batch import Ack, Batch, Kind, Slot
from mqclient.producing.batching import Accumulator, Budget


def record(number: int, size_bytes: int = 10) -> bytes:
    """A stand-in for an encoded record: the accumulator never looks inside."""
    return number.to_bytes(4, "big") + bytes(size_bytes - 4)


def add(accumulator: Accumulator, number: int, queue_id: int = 0, deadline_s: float = 3.0) -> Slot:
    slot = Slot(f"key-{number}", deadline_s)
    accumulator.add(slot, "T", queue_id, record(number), now_s=0.0)
    return slot


def take(accumulator: Accumulator, now_s: float = 0.0) -> Batch:
    batch = accumulator.take(now_s)
    assert batch is not None
    return batch


def test_what_arrives_while_a_batch_is_under_way_leaves_with_the_next() -> None:
    """Without linger the first message leaves alone, and the next ones gather behind it."""
    accumulator = Accumulator("b")
    add(accumulator, 1)
    first = take(accumulator)
    add(accumulator, 2)
    add(accumulator, 3)
    assert accumulator.take(0.0) is None
    accumulator.done(first)
    second = take(accumulator)
    assert (record(1), record(2) + record(3)) == (first.freeze(), second.freeze())


def test_runs_lie_together_by_queue() -> None:
    """A batch holds a run per queue in any order of arrival; every slot knows its place."""
    accumulator = Accumulator("b", lanes_per_topic=1)
    slots = [add(accumulator, number, queue_id=number % 2) for number in range(4)]
    batch = take(accumulator)
    body = batch.freeze()
    assert batch.run_counts == [(0, 2), (1, 2)]
    assert record(0) + record(2) + record(1) + record(3) == body
    batch.end(Ack(position=1000, offsets={0: 7, 1: 70}, leader="h:1"))
    results = [slot.result() for slot in slots]
    assert [result.queue_offset for result in results] == [7, 70, 8, 71]
    assert [result.position for result in results] == [1000, 1020, 1010, 1030]


def test_linger_holds_a_batch_back_until_it_is_full_or_old() -> None:
    """A lingering batch leaves when its time is over, when it is full, or on flush."""
    accumulator = Accumulator("b", linger_s=1.0, batch_bytes_max=25)
    add(accumulator, 1)
    assert accumulator.take(0.5) is None
    assert accumulator.ready_in_s(0.25) == 0.75
    add(accumulator, 2)
    add(accumulator, 3)
    full = take(accumulator, 0.5)
    accumulator.done(full)
    assert accumulator.take(0.5) is None
    accumulator.flushes = 1
    assert record(3) == take(accumulator, 0.5).freeze()


def test_batches_under_way_are_bounded_and_of_different_queues() -> None:
    """At most `in_flight_max` batches are under way, no two with records of the same queue."""
    accumulator = Accumulator("b", in_flight_max=2, lanes_per_topic=4)
    for number in range(16):
        add(accumulator, number, queue_id=number % 8)
    under_way = [take(accumulator), take(accumulator)]
    assert accumulator.take(0.0) is None
    assert not set(under_way[0].runs) & set(under_way[1].runs)


def test_a_message_never_sent_fails_definitely_and_leaves_its_batch() -> None:
    """Too late before it was sent: definite, and its record will not be sent either."""
    accumulator = Accumulator("b")
    late, early = add(accumulator, 1, deadline_s=1.0), add(accumulator, 2, deadline_s=9.0)
    batch = take(accumulator)
    assert [late] == accumulator.expire(1.0)
    with pytest.raises(SendFailed) as failure:
        late.result()
    assert failure.value.definite
    assert record(2) == batch.freeze()
    assert not early.settled


def test_a_message_that_was_sent_has_an_unknown_outcome_and_stays() -> None:
    """Too late after it was sent: unknown, and the batch's bytes stay what they were."""
    accumulator = Accumulator("b")
    late, _ = add(accumulator, 1, deadline_s=1.0), add(accumulator, 2, deadline_s=9.0)
    batch = take(accumulator)
    body = batch.freeze()
    batch.delivery.send(0.0, "b")
    accumulator.expire(1.0)
    with pytest.raises(SendUnknown) as failure:
        late.result()
    assert not failure.value.definite
    assert body == batch.freeze()


def test_records_added_together_stay_together() -> None:
    """`add_together` never splits its records, nor lets others between them."""
    accumulator = Accumulator("b", batch_bytes_max=35)
    add(accumulator, 1)
    together = [Slot(f"k{number}", 3.0) for number in range(3)]
    accumulator.add_together(together, "T", [0] * 3, [record(number) for number in range(3)], 0.0)
    accumulator.done(take(accumulator))
    assert b"".join(record(number) for number in range(3)) == take(accumulator).freeze()


def test_a_message_alone_is_a_batch_by_itself() -> None:
    """A message alone shares its batch neither with messages before it nor after it."""
    accumulator = Accumulator("b")
    add(accumulator, 1)
    accumulator.add(Slot("mine", 3.0), "T", 0, record(2), 0.0, Kind.ALONE)
    add(accumulator, 3)
    bodies = []
    while (batch := accumulator.take(0.0)) is not None:
        bodies.append(batch.freeze())
        accumulator.done(batch)
    assert [record(1), record(2), record(3)] == bodies
    assert accumulator.budget.messages == 0


def test_messages_that_wait_with_the_broker_do_not_wait_for_each_other() -> None:
    """Messages that wait at the broker are under way together, as many as there are lanes."""
    accumulator = Accumulator("b", lanes_per_topic=8, in_flight_max=8)
    for number in range(10):
        accumulator.add(Slot("k", 3.0), "T", 0, record(number), 0.0, Kind.DELAYED)
    under_way = [take(accumulator) for _ in range(8)]
    assert accumulator.take(0.0) is None
    assert all(batch.kind is Kind.DELAYED for batch in under_way)
    accumulator.done(under_way[0])
    assert take(accumulator).freeze() in {record(8), record(9)}
    others = Accumulator("b", lanes_per_topic=8, in_flight_max=8)
    for number in range(2):
        others.add(Slot("k", 3.0), "T", 0, record(number), 0.0, Kind.ALONE)
    take(others)
    assert others.take(0.0) is None


def test_the_budget_returns_to_zero() -> None:
    """Whatever is taken in is given back, by acknowledgement or by expiry."""
    budget = Budget(messages_max=4)
    accumulator = Accumulator("b", budget)
    for number in range(4):
        add(accumulator, number, queue_id=number, deadline_s=1.0 if number % 2 else 9.0)
    assert budget.full
    accumulator.expire(1.0)
    while (batch := accumulator.take(1.0)) is not None:
        accumulator.done(batch)
    assert (budget.messages, budget.size_bytes) == (0, 0)
    assert accumulator.empty


MESSAGES = 24
"""Several for each of six queues, and more than a batch holds."""


@given(data=st.data())
def test_queue_order_survives_refusals_and_retries(data: st.DataObject) -> None:
    """A broker that stores or refuses batches at will holds each queue's records in their order.

    Records that were added together for several queues come from one batch.
    """
    accumulator = Accumulator("b", batch_bytes_max=data.draw(st.integers(10, 60)))
    stored: dict[int, list[bytes]] = {}
    added: dict[int, list[bytes]] = {}
    under_way: list[Batch] = []
    together: list[set[bytes]] = []
    number = 0
    while number < MESSAGES or under_way or not accumulator.empty:
        action = data.draw(st.sampled_from(["add", "together", "take", "store", "refuse"]))
        if action == "add" and number < MESSAGES:
            queue_id = data.draw(st.integers(0, 5))
            add(accumulator, number, queue_id)
            added.setdefault(queue_id, []).append(record(number))
            number += 1
        elif action == "together" and number < MESSAGES:
            queue_ids = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
            numbers = range(number, number + len(queue_ids))
            slots = [Slot(f"k{each}", 9.0) for each in numbers]
            records = [record(each) for each in numbers]
            accumulator.add_together(slots, "T", queue_ids, records, 0.0)
            together.append(set(records))
            for queue_id, each in zip(queue_ids, records, strict=True):
                added.setdefault(queue_id, []).append(each)
            number += len(queue_ids)
        elif action == "take" or not under_way:
            batch = accumulator.take(0.0)
            assert batch is not None or under_way or accumulator.empty, "it stands still"
            under_way += [] if batch is None else [batch]
        else:
            batch = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            before = batch.freeze()
            if action == "refuse":
                under_way.append(batch)
                assert before == batch.freeze()
                continue
            held = {each for run in batch.runs.values() for each in run.pieces}
            assert all(records <= held or not records & held for records in together)
            for queue_id, run in batch.runs.items():
                stored.setdefault(queue_id, []).extend(run.pieces)
            accumulator.done(batch)
    assert added == stored
    assert (accumulator.in_flight, accumulator.budget.messages) == (0, 0)


def test_a_batch_across_queues_waits_for_all_of_them() -> None:
    """A batch across queues waits for all of them, and later batches of any of them wait for it."""
    accumulator = Accumulator("b", lanes_per_topic=4, in_flight_max=4)
    add(accumulator, 1, queue_id=1)
    first = take(accumulator)
    slots = [Slot(f"k{number}", 1.0) for number in (2, 3)]
    accumulator.add_together(slots, "T", [0, 1], [record(2), record(3)], 0.0)
    add(accumulator, 4, queue_id=0)
    add(accumulator, 5, queue_id=2)
    assert take(accumulator).freeze() == record(5)
    assert accumulator.take(0.0) is None
    assert accumulator.ready_in_s(0.0) is None
    assert len(list(accumulator.batches())) == 4
    late = accumulator.expire(1.0)
    assert [slot.unique_key for slot in late] == ["k2", "k3"]
    assert take(accumulator).freeze() == record(4)
    accumulator.done(first)
    assert accumulator.take(1.0) is None
