"""Long work in slices of some milliseconds."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Generator

import pytest

from dledger.slices import drained, in_slices


def work(kinds: str) -> Generator[str, None, int]:
    """A step of each kind."""
    yield from kinds
    return len(kinds)


def test_a_slice_has_as_many_steps_as_fit_in_its_time() -> None:
    """A slice has as many steps as fit; the clock goes on by a second at each look."""
    clock = itertools.count().__next__
    assert len([*in_slices(work("a" * 12), 4, clock)]) == 3
    assert len([*in_slices(work("a" * 12), 0, clock)]) == 12
    assert not [*in_slices(work("a" * 12), 100, clock)]


def test_a_slice_ends_where_its_driver_must_know() -> None:
    """A slice ends at a step of another kind, so that its driver may act between them."""
    assert [*in_slices(work("aaabba"), 100, lambda: 0.0)] == ["b", "a"]


def test_the_result_is_that_of_the_steps() -> None:
    """The result is that of the steps, however they are sliced."""
    assert drained(in_slices(work("aab"), 100, lambda: 0.0)) == 3
    assert drained(work("")) == 0


def test_the_collector_looks_at_nothing_that_stays() -> None:
    """The collector skips what stays, between slices and afterwards, and then goes on."""
    frozen = gc.get_freeze_count()
    try:
        slices = in_slices(work("aaa"), 0, stays=True)
        next(slices)
        assert not gc.isenabled()
        slices.close()
        assert gc.isenabled()
        assert gc.get_freeze_count() == frozen
        drained(in_slices(work("aaa"), 0, stays=True))
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()


def test_the_collector_rests_in_a_slice_only() -> None:
    """The collector rests during a slice alone, also if a step fails."""

    def failing() -> Generator[None, None, None]:
        assert not gc.isenabled()
        yield
        assert not gc.isenabled()
        raise ValueError("broken")

    slices = in_slices(failing(), 0)
    next(slices)
    assert gc.isenabled()
    with pytest.raises(ValueError, match="broken"):
        next(slices)
    assert gc.isenabled()
