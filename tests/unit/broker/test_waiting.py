"""Waiting messages in arrays: the same as in a dictionary, and small."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqbroker import limits
from mqbroker.state.moves import Move, ranges_of
from mqbroker.state.shares import Owner, Owners, Shares
from mqbroker.state.waiting import Waiting
from mqbroker.testing.pictured import rows_in

TIMES_MS = st.integers(0, 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), TIMES_MS, st.integers(1, 3)),
        st.tuples(st.just("take due"), TIMES_MS, st.integers(1, 9)),
        st.tuples(st.just("take any"), st.integers(0, 1000), st.integers(1, 9)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=120,
)


def owned() -> Waiting:
    """Waiting messages with two owners each."""
    return Waiting(Owners(Shares("messages", "topic", 400, 9), Shares("messages", "group", 400)))


def shares_of(waiting: Waiting) -> list[Counter[str]]:
    """How many rows each owner has, by what the owners say."""
    return [Counter(shares._of) for shares in waiting.owners._shares]


def move(offsets: list[int]) -> Move:
    """A move that takes these offsets."""
    return Move("T", 0, ranges_of(sorted(offsets)))


@pytest.fixture(scope="module", autouse=True)
def _tiny_runs() -> object:
    """Packed after three: every path is taken by a short list of steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "RECENT_TIMES_MAX", 3)
        patch.setattr(limits, "TIMES_LOOKED_AT", 2)
        yield


@given(steps=STEPS)
@settings(max_examples=300)
def test_arrays_are_as_good_as_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    """Arrays hold what a dictionary would, as messages come, are due, recalled and restored."""
    waiting, model, offset = owned(), dict[int, int](), 0
    owners: dict[int, Owner] = {}
    for step, number, count in steps:
        if step == "add":
            offset += count
            owners[offset] = (f"T{number % 5}", f"G{count}")
            waiting.add(offset, number, owners[offset])
            model[offset] = number
        elif step == "take due":
            due = waiting.due(number, count)
            expected = sorted((at_ms, each) for each, at_ms in model.items() if at_ms <= number)
            assert due == [each for _, each in expected[:count]]
            waiting.take(move(due))
            model = {each: model[each] for each in model if each not in due}
        elif step == "take any" and model:
            start = number % len(model)
            taken = [*model][start : start + count]
            waiting.check(move(taken))
            waiting.take(move(taken))
            model = {each: model[each] for each in model if each not in taken}
        else:
            rows, kept_owners = map(rows_in, waiting.picture())
            waiting = owned()
            waiting.restore(rows, kept_owners)
        assert [*waiting.items()] == [*model.items()]
        assert shares_of(waiting) == [
            Counter(owners[each][number] for each in model) for number in (0, 1)
        ]
        assert len(waiting) == len(model)
        assert waiting.first_offset() == next(iter(model), None)
        assert waiting.next_ms() == min(model.values(), default=None)
        assert waiting.later_than(30, 2) == [each for each, at in model.items() if at > 30][:2]
        assert all((each in waiting) == (each in model) for each in range(offset + 2))


def test_pairs_of_older_versions_are_read() -> None:
    """Pairs of an older version's snapshot are restored."""
    waiting = Waiting()
    waiting.restore([(3, 30), (7, 10)])

    assert [*waiting.items()] == [(3, 30), (7, 10)]
    assert waiting.due(20, 5) == [7]


def test_messages_without_an_owner_are_nobody_s() -> None:
    """Messages of older versions have no owner; they leave room for others, and go like them."""
    before = Waiting()
    for offset in range(50):
        before.add(offset, offset)
    after = owned()
    after.restore(*map(rows_in, before.picture()))
    assert shares_of(after) == [Counter({"": 50})] * 2
    after.add(50, 50, ("T", "G"))
    after.take(move([*range(50)]))
    assert shares_of(after) == [Counter({"T": 1}), Counter({"G": 1})]
    assert after.owners.full(("T", "G")) is None


def test_a_million_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million waiting messages take 44 bytes each at most, and 20 in a snapshot."""
    monkeypatch.undo()
    monkeypatch.setattr(limits, "RECENT_TIMES_MAX", 8192)
    monkeypatch.setattr(limits, "TIMES_LOOKED_AT", 1024)
    times = np.random.default_rng(7).integers(0, limits.TIMER_DELAY_S_MAX * 1000, 100_000)
    tracemalloc.start()
    try:
        waiting = Waiting()
        for offset, at_ms in enumerate(times.tolist()):
            waiting.add(offset, at_ms)
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    recent_bytes = 2 * 8192 * 130
    assert size_bytes - recent_bytes < 44 * len(times)
    assert len(rows_in(waiting.picture()[0])) + len(rows_in(waiting.picture()[1])[1]) == 20 * len(
        times
    )


def test_what_is_recalled_leaves_no_trace() -> None:
    """A recalled message leaves no trace, however often it is sent."""
    waiting = Waiting()
    waiting.add(0, 10**9)
    for offset in range(1, 5000):
        waiting.add(offset, 10**6 + offset)
        waiting.take(move([offset]))

    assert len(waiting._offsets) + len(waiting._schedule) < 32
    assert [*waiting.items()] == [(0, 10**9)]
