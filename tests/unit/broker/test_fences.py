"""Deliveries of one fence are found by their messages' offsets, however many there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqbroker import limits
from mqbroker.state.groups.bits import offsets_in
from mqbroker.state.groups.deliveries import Delivery, OfFence
from mqbroker.state.groups.popped import Again, PoppedQueue

FENCE = 7
offsets = st.sets(st.integers(0, 40), min_size=1)
asked = st.tuples(st.integers(0, 45), st.one_of(st.sampled_from([1, 2, 3]), st.integers(1, 2**45)))


def bits_of(base: int, some: set[int]) -> int:
    """Offsets as bits from `base` on."""
    return sum(1 << offset - base for offset in some)


@given(st.lists(offsets, max_size=12), st.lists(asked, max_size=12))
def test_messages_are_taken_out_of_the_deliveries_that_have_them(
    handed_out: list[set[int]], asked: list[tuple[int, int]]
) -> None:
    """Offsets take out the deliveries that hold them, and each message once."""
    of_fence, having, taken = OfFence(), dict[int, Delivery](), set[int]()
    for some in handed_out:
        new = some - taken
        taken |= new
        if new:
            base = min(new)
            delivery = Delivery(0, base, bits_of(base, new), FENCE, 0, 1)
            of_fence.add(delivery)
            having |= dict.fromkeys(new, delivery)
    for base, bits in asked:
        expected = {at: having.pop(at) for at in offsets_in(base, bits) if at in having}
        found = [
            (at, delivery)
            for delivery, some in of_fence.take_out(base, bits)
            for at in offsets_in(base, some)
        ]
        assert len(found) == len(expected)
        assert dict(found) == expected
        left = {id(delivery) for delivery in having.values()}
        assert {id(delivery) for delivery in of_fence} == left
        assert bool(of_fence) == bool(left)


def test_as_many_deliveries_as_messages_cost_no_more_than_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Acknowledging messages with a delivery each looks at no other delivery."""
    looks, take_out = list[int](), Delivery.take_out

    def counted(delivery: Delivery, base: int, bits: int) -> int:
        looks.append(base)
        return take_out(delivery, base, bits)

    monkeypatch.setattr(Delivery, "take_out", counted)
    queue, messages = PoppedQueue(0), limits.POP_MESSAGES_OURS_MAX
    for offset in range(messages):
        queue.add(Delivery(0, offset, 1, FENCE, offset, 1))
    for base in range(messages, 4_000_000, 1024):
        assert queue.take_out(Again(FENCE, base, (1 << 1024) - 1)) == []
    for offset in range(messages):
        assert len(queue.take_out(Again(FENCE, offset, 1))) == 1
    assert (queue.count, looks) == (0, [])
