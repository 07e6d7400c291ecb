"""How long a follower has lacked entries, by its leader's figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqbroker import limits
from mqbroker.flow.following import Following


def test_a_follower_is_behind_since_the_first_entry_that_it_lacks() -> None:
    """A follower is behind since the first entry that it lacks; an idle group is not."""
    following = Following()
    following.sample(1.0, 10, 10)
    assert following.behind_s(10, 99.0) == 0
    following.sample(2.0, 20, 10)
    following.sample(3.0, 30, 10)
    assert following.behind_s(10, 5.0) == 3.0
    assert following.behind_s(20, 5.0) == 2.0
    assert following.behind_s(30, 5.0) == 0
    following.sample(6.0, 30, 30)
    assert following.behind_s(30, 9.0) == 0


def test_a_leadership_begins_with_nothing() -> None:
    """Samples from when this replica led before are about another log's end."""
    following = Following()
    following.sample(2.0, 20, 10)
    following.begin()
    assert following.behind_s(10, 5.0) == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=80))
def test_samples_say_what_a_whole_record_would(steps: list[tuple[int, int]]) -> None:
    """Samples say what a whole record would, as entries come and are acknowledged."""
    following, record = Following(), list[tuple[float, int]]()
    end = held = 0
    for now_s, (more, acknowledged) in enumerate(steps):
        end += more
        held = min(end, held + acknowledged)
        following.sample(float(now_s), end, held)
        record.append((float(now_s), end))
        lacking = [at_s for at_s, last in record if last > held]
        assert following.behind_s(held, now_s) == (now_s - lacking[0] if lacking else 0)


@pytest.mark.parametrize("seconds", [2 * limits.FOLLOWING_SAMPLES_MAX, 10_000])
def test_a_follower_may_stay_away_for_long(seconds: int) -> None:
    """Samples are bounded, and the time is still that of the first entry that it lacks."""
    following = Following()
    for second in range(1, seconds):
        following.sample(float(second), second, 0)
    assert len(following._samples) <= limits.FOLLOWING_SAMPLES_MAX
    assert following.behind_s(0, seconds) == seconds - 1
