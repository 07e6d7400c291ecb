"""Locks as their holder sees them: trusted for a while, and bound to one ownership."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from mqclient import Consumer, limits
from mqclient.consuming.sending_back import check_on_error
from mqclient.consuming.sharing.leases import Leases

QUEUE = MessageQueue("T", "b", 0)
LOCK_S = 60.0
"""How long brokers keep a lock (`mqbroker.limits.LOCK_S`)."""


class Broker:
    """The lock of one queue, as `mqbroker.state.groups.locks` keeps it."""

    def __init__(self) -> None:
        self.owner, self.until_s, self.token, self.tokens = "", 0.0, 0, 0

    def ask(self, owner: str, now_s: float) -> int | None:
        if self.owner not in ("", owner) and now_s < self.until_s:
            return None
        if self.owner != owner:
            self.tokens += 1
            self.owner, self.token = owner, self.tokens
        self.until_s = now_s + LOCK_S
        return self.token


STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["ask", "stand still"]), st.floats(0, 50)),
    max_size=30,
)


@given(STEPS)
def test_two_consumers_never_both_begin_with_a_queue(steps: list[tuple[str, str, float]]) -> None:
    """Two consumers never hold a queue at once, with late answers and standstills."""
    broker, now_s = Broker(), 0.0
    leases = {"a": Leases(), "b": Leases()}
    for who, step, seconds in steps:
        asked_s = now_s
        if step == "ask":
            token = broker.ask(who, now_s)
            now_s += seconds  # the answer's way
            if token is None:
                leases[who].lost(QUEUE)
            else:
                same = leases[who].granted(QUEUE, token, asked_s)
                if not same:
                    leases[who].lost(QUEUE)
        else:
            now_s += seconds
        holders = [name for name, its in leases.items() if its.holds(QUEUE, now_s)]
        assert len(holders) <= 1
        assert all(broker.owner == name for name in holders)


def test_a_lock_that_was_anothers_in_between_is_not_the_same() -> None:
    """A lock that another owner had meanwhile is new: old messages must not use its token."""
    leases = Leases()
    assert leases.granted(QUEUE, 5, 0.0)
    assert leases.granted(QUEUE, 5, 20.0)
    assert not leases.granted(QUEUE, 7, 40.0)
    assert leases.holds(QUEUE, 40.0 + limits.LOCK_TRUSTED_S - 0.1)
    assert not leases.holds(QUEUE, 40.0 + limits.LOCK_TRUSTED_S)
    assert leases.token(QUEUE) == 7
    leases.lost(QUEUE)
    assert leases.token(QUEUE) is None
    assert leases.granted(QUEUE, None, 0.0), "a broker without tokens"


def test_an_ordered_consumer_keeps_its_order() -> None:
    """An ordered consumer shares its queues, and sends none of their messages back."""
    with pytest.raises(BadInput, match="shares none"):
        Consumer(subscriptions={"T": "*"}, assign="all", offsets=None, ordered=True)
    with pytest.raises(BadInput, match="lost its place"):
        check_on_error("retry", "G", ordered=True)
    assert check_on_error(None, "G", ordered=True) == "suspend"
