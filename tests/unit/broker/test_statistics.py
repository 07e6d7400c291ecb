"""Traffic by topic and group: its windows, and its bound."""

from __future__ import annotations

import pytest

from mqbroker.flow.rates import Rates
from mqbroker.flow.statistics import Statistics

HOUR_S = 3600


def test_windows_hold_what_came_within_them() -> None:
    """A steady 10 messages/s: sums of a minute, an hour and a day, and the same rate in each."""
    statistics = Statistics()
    for second in range(3 * HOUR_S):
        statistics.sample(second)
        statistics.count("put", "T", 10, 1000)
    windows = statistics.windows("TOPIC_PUT_NUMS", "T", 3 * HOUR_S)
    assert windows is not None
    assert [window.total for window in windows] == [600, 36_000, 108_000]
    assert [window.per_second for window in windows] == pytest.approx([10.0] * 3)
    assert windows[0].per_operation == 10.0
    sizes = statistics.windows("TOPIC_PUT_SIZE", "T", 3 * HOUR_S)
    assert sizes is not None
    assert sizes[0].total == 60_000


def test_silence_leaves_the_windows_one_after_the_other() -> None:
    """Five minutes after the last message the minute is empty, the hour is not."""
    statistics = Statistics()
    statistics.sample(0)
    statistics.count("put", "T", 7, 7)
    for second in range(1, 300):
        statistics.sample(second)
    windows = statistics.windows("TOPIC_PUT_NUMS", "T", 300)
    assert windows is not None
    assert [window.total for window in windows] == [0, 7, 7]


def test_what_came_before_the_first_sample_counts() -> None:
    """A message that was sent in the first second of a broker's life is in its figures."""
    statistics = Statistics()
    statistics.count("put", "T", 7, 7)
    statistics.sample(1)
    windows = statistics.windows("TOPIC_PUT_NUMS", "T", 2)
    assert windows is not None
    assert [window.total for window in windows] == [7, 7, 7]


def test_rows_are_bounded_and_idle_ones_are_given_up() -> None:
    """Made-up names take no more than the bound; a day later there is room for others."""
    statistics = Statistics(rows_max=100)
    statistics.sample(0)
    for number in range(1000):
        statistics.count("put", f"T{number}", 1, 1)
    assert len(statistics) == 100
    assert statistics.windows("TOPIC_PUT_NUMS", "T999", 1) is None
    for hour in range(1, 26):
        statistics.count("put", "T5", 1, 1)
        statistics.sample(hour * HOUR_S)
    assert len(statistics) == 1
    statistics.count("put", "T999", 3, 1)
    windows = statistics.windows("TOPIC_PUT_NUMS", "T999", 26 * HOUR_S)
    assert windows is not None
    assert [window.total for window in windows] == [3, 3, 3]


@pytest.mark.parametrize("figure", ["", "put", "NO_SUCH_NUMS"])
def test_an_unknown_figure_has_no_windows(figure: str) -> None:
    """The name comes from a client."""
    statistics = Statistics()
    statistics.count("put", "T", 1, 1)
    assert statistics.windows(figure, "T", 1) is None


def test_a_day_ends_at_midnight() -> None:
    """The counts of yesterday and today, which clusterList -m shows, change at midnight."""
    rates = Rates()
    rates.sample(0, 100)
    rates.put("T", 5, 5)
    rates.sample(1, 101)
    rates.put("T", 2, 2)
    rates.sample(2, 101)
    puts = rates.put_messages
    assert (puts.yesterday_morning, puts.this_morning, puts.total) == (0, 5, 7)
    rates.sample(3, 102)
    assert (puts.yesterday_morning, puts.this_morning, puts.total) == (5, 7, 7)


def test_the_last_pulls_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest one makes room; a pull that found nothing changes none."""
    monkeypatch.setattr("mqbroker.flow.limits.PULL_OFFSETS_MAX", 2)
    rates = Rates()
    for queue_id in range(3):
        rates.got(("C", "T", queue_id), 1, 100, next_offset=7)
    rates.got(("C", "T", 2), 0, 0, next_offset=99)
    assert [rates.pull_offset(("C", "T", queue_id)) for queue_id in range(3)] == [0, 7, 7]
