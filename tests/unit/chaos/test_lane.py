"""A lane: bytes keep their order and none is made up, whatever rules come and go."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqchaos.limits import LANE_BYTES_MAX, RETRANSMISSION_S, RETRANSMISSIONS_MAX
from mqchaos.network.lane import Lane
from mqchaos.network.rules import CUT, PLAIN, Rule


def lane(draw: float = 0.0) -> Lane:
    """A lane whose draws are all at this share of their interval."""
    return Lane(lambda low, high: low + draw * (high - low))


def read(lane: Lane, now: float, rule: Rule = PLAIN, most: int = 1 << 30) -> bytes:
    """Write all that is due, at most `most` bytes at a time."""
    written = bytearray()
    while not lane.over and (chunk := lane.due(now, rule)) is not None:
        part = bytes(chunk[:most])
        written += part
        lane.wrote(len(part))
    return bytes(written)


def test_without_a_rule_bytes_go_on_at_once() -> None:
    """Bytes without a rule go on at once in order, with the end after them."""
    it = lane()
    it.take(1.0, PLAIN, b"ab")
    it.take(1.0, PLAIN, b"c")
    it.take(1.0, PLAIN, b"")

    assert read(it, 1.0, most=1) == b"abc"
    assert it.over


def test_a_cut_holds_what_was_read_before_it_and_the_end_too() -> None:
    """A cut holds earlier bytes and the end, too, and lets all through afterwards."""
    it = lane()
    it.take(1.0, PLAIN, b"before")
    it.take(1.1, CUT, b"behind")
    it.take(1.2, CUT, b"")

    assert read(it, 99.0, CUT) == b""
    assert it.wake_at(CUT) == math.inf
    assert not it.over
    assert read(it, 99.0) == b"beforebehind"
    assert it.over


def test_a_delay_is_kept_by_the_moment() -> None:
    """A delay is kept to the moment, and the lane says when to wake."""
    slow = Rule(delay_s=0.5, jitter_s=0.2)
    it = lane(draw=0.5)
    it.take(1.0, slow, b"x")

    assert it.wake_at(slow) == pytest.approx(1.6)
    assert read(it, 1.59, slow) == b""
    assert read(it, 1.61, slow) == b"x"


def test_what_comes_after_a_rule_does_not_overtake() -> None:
    """Bytes over a fast link wait behind those of a slow one before them."""
    it = lane()
    it.take(1.0, Rule(delay_s=1.0), b"slow")
    it.take(1.1, PLAIN, b"fast")

    assert read(it, 1.5) == b""
    assert read(it, 2.0) == b"slowfast"


def test_a_narrow_line_takes_its_time() -> None:
    """A line of ten bytes a second delivers the second ten a second after the first."""
    narrow = Rule(bytes_per_s=10)
    it = lane()
    for _ in range(2):
        it.take(0.0, narrow, b"x" * 10)

    assert read(it, 0.99, narrow) == b""
    assert len(read(it, 1.0, narrow)) == 10
    assert len(read(it, 2.0, narrow)) == 10


def test_a_loss_is_a_wait_that_doubles_and_ends() -> None:
    """A loss doubles its wait, and ends with the last retransmission."""
    lossy = Rule(loss=1.0)
    it = lane()
    it.take(0.0, lossy, b"x")

    assert it.wake_at(lossy) == pytest.approx(RETRANSMISSION_S * (2**RETRANSMISSIONS_MAX - 1))
    kept = lane(draw=0.5)
    kept.take(0.0, Rule(loss=0.4), b"x")
    assert kept.wake_at(lossy) == 0.0


def test_a_lane_is_bounded() -> None:
    """Behind a cut it takes a fixed number of bytes, and then nothing."""
    it = lane()
    while it.room:
        it.take(0.0, CUT, b"x" * min(it.room, 100_000))

    assert it.queued_bytes == LANE_BYTES_MAX
    read(it, 1.0, most=1000)
    assert it.room == LANE_BYTES_MAX


def test_a_sink_that_is_gone_takes_nothing_more() -> None:
    """A lane whose sink is gone drops what waited, and is over."""
    it = lane()
    it.take(0.0, PLAIN, b"x")
    it.drop()

    assert it.over
    assert not it.room
    assert it.due(1.0, PLAIN) is None


rules = st.builds(
    Rule,
    cut=st.booleans(),
    delay_s=st.sampled_from([0.0, 0.1]),
    jitter_s=st.sampled_from([0.0, 0.3]),
    loss=st.sampled_from([0.0, 0.5]),
    bytes_per_s=st.sampled_from([0.0, 50.0]),
)


@given(
    st.lists(st.tuples(rules, st.binary(min_size=1, max_size=20), st.integers(1, 30))),
    st.integers(),
)
def test_whatever_rules_come_and_go_the_stream_stays_what_it_was(
    steps: list[tuple[Rule, bytes, int]], seed: int
) -> None:
    """Every byte arrives, once, in order; only when is another question."""
    it, now, sent, came = Lane(random.Random(seed).uniform), 0.0, b"", b""
    for rule, chunk, most in steps:
        it.take(now, rule, chunk)
        sent += chunk
        now += 0.07
        came += read(it, now, rule, most)
        assert sent.startswith(came)
    it.take(now, PLAIN, b"")
    came += read(it, now + 1e6)

    assert came == sent
    assert it.over
