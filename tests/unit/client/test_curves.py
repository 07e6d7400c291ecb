"""A server's last hour as curves that fit a terminal of 80 columns."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dledger.observe import one_line
from mqclient import limits
from mqclient.admin.results import ServerHistory
from mqclient.commands.terminal.curves import curves, drawn, rates, short

NUMBERS = st.floats(-1e15, 1e15)


def history(*values: float, name: str = "lag", step_ms: int = 10_000) -> ServerHistory:
    """A single figure over time, as a server's history."""
    times = tuple(step_ms * number for number in range(len(values)))
    return ServerHistory("h:1", (name,), times, tuple((value,) for value in values))


def test_a_curve_goes_from_the_least_to_the_greatest() -> None:
    """A curve with few values has one block for each."""
    (curve,) = curves(history(0, 1, 2, 7), 3600)
    assert (curve.name, curve.least, curve.most, curve.last) == ("lag", "0", "7", "7")
    assert curve.drawn == "▁▂▃█"


def test_what_only_grows_is_shown_by_how_fast() -> None:
    """A counter is shown as its growth in a second; a new process is no step down."""
    (curve,) = curves(history(0, 100, 300, 50, name="messages_in_total"), 3600)
    assert (curve.name, curve.least, curve.most, curve.last) == ("messages_in/s", "5", "20", "5")
    assert rates([0, 1000, 1000, 2000], [0, 1, 5, 9]) == [1, 4]


def test_only_so_much_of_the_hour_is_shown() -> None:
    """A curve covers a part of the hour, counted back from the newest row."""
    (curve,) = curves(history(*range(100)), 60)
    assert (curve.least, curve.most) == ("93", "99")
    assert curves(history(), 60) == []
    assert curves(history(5, name="x_total"), 60) == []


@given(values=st.lists(NUMBERS, min_size=1, max_size=400))
@example(values=[0.0, 2.2250738585e-313])
def test_a_curve_is_never_wider(values: list[float]) -> None:
    """A curve is neither wider than its bound nor empty, whatever the values are."""
    line = drawn(values)
    assert 1 <= len(line) == min(len(values), limits.CURVE_COLUMNS)
    assert set(line) <= set("▁▂▃▄▅▆▇█")
    assert one_line(line) == line


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (1234, "1.23k"),
        (999_999, "1M"),
        (5_000_000_000, "5G"),
        (0.00123, "0.00123"),
        (-1234, "-1.23k"),
    ],
)
def test_numbers_are_short(value: float, told: str) -> None:
    """Numbers have three digits and a unit."""
    assert short(value) == told


@given(NUMBERS)
@example(-5e-324)
def test_no_number_is_long(value: float) -> None:
    """A number has at most ten characters, whatever its value is."""
    assert len(short(value)) <= 10
