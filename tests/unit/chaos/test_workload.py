"""Tasks of workers, and their progress."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import ConfigError
from mqchaos.run.load.workload import (
    Consume,
    Produce,
    Progress,
    acknowledged_since,
    caught_up,
    fate_of,
    lifetime_of,
    read_lines,
    run_name,
    split,
    together,
    unique_key,
)


@given(st.integers(1, 100_000), st.integers(1, 8))
def test_producers_share_all_messages_evenly(messages: int, producers: int) -> None:
    """Producers get all messages, in shares that differ by one at most."""
    shares = split(messages, producers)

    assert sum(shares) == messages
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize("messages", [0, -1, 10_000_001])
def test_a_number_of_messages_out_of_bounds_is_refused(messages: int) -> None:
    """The demo says so before it starts anything."""
    with pytest.raises(ConfigError, match=str(messages)):
        split(messages, 2)


def test_empty_lines_are_left_out_and_line_ends_cut(tmp_path: Path) -> None:
    """A message is a line's text."""
    (tmp_path / "log").write_bytes(b"one\r\n\n  \ntwo")

    assert read_lines(tmp_path / "log") == [b"one", b"two"]


def test_an_input_that_is_missing_or_empty_is_refused_by_name(tmp_path: Path) -> None:
    """A person who mistypes --input reads which file and why."""
    (tmp_path / "empty").write_text("\n\n")

    with pytest.raises(ConfigError, match="nowhere can't be read: No such file"):
        read_lines(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no line with text"):
        read_lines(tmp_path / "empty")


@pytest.mark.parametrize(
    ("now", "back"),
    [
        (Progress(sent=90, acked=50, failed=0), False),
        (Progress(sent=90, acked=50, failed=39), False),
        (Progress(sent=90, acked=51, failed=0), True),
        (Progress(sent=90, acked=50, failed=40), True),
    ],
)
def test_a_producer_is_back_when_it_is_acknowledged_again(now: Progress, back: bool) -> None:
    """A send that fails says nothing, but who waits for no outcome would never be acknowledged."""
    assert acknowledged_since(50, now) == back


def test_the_group_has_caught_up_when_every_queue_has() -> None:
    """The group has caught up when its members have together read every queue to its end."""
    producers = [Progress(ends={"b/0": 5, "b/1": 2}), Progress(ends={"b/0": 7})]

    assert not caught_up(producers, [Progress(ends={"b/0": 7}), Progress(ends={"b/1": 1})])
    assert caught_up(producers, [Progress(ends={"b/0": 7}), Progress(ends={"b/1": 2})])


def test_what_becomes_of_a_popped_message_ends_well() -> None:
    """Popped messages are acknowledged at once, or the second time, or given up for good."""
    first = Counter(fate_of(number, 1) for number in range(1000))
    second = Counter(fate_of(number, 2) for number in range(1000))

    assert first == {"done": 880, "left": 50, "again": 50, "dead": 20}
    assert second == {"done": 980, "dead": 20}


def test_a_tenth_of_fleeting_messages_ends_soon() -> None:
    """A tenth of the fleeting messages ends, after half a second and two in turn."""
    ends = Counter(lifetime_of(number) for number in range(100))

    assert ends == {None: 90, 0.5: 5, 2.0: 5}


def test_keys_differ_over_messages_clients_and_runs() -> None:
    """A unique key names one message for ever."""
    runs = [run_name(1, "a"), run_name(2, "a"), run_name(1, "b")]
    keys = [unique_key(run, client, n) for run in runs for client in ("p0", "p1") for n in (0, 1)]

    assert len(set(keys)) == 12


def test_a_task_survives_its_way_over_a_command_line() -> None:
    """Both kinds of task come back from a command line."""
    produce = Produce("p0", "127.0.0.1:1", "T", "/h", "/lines", 0, 2, None, 10.0, "run")
    consume = Consume("c0", "127.0.0.1:1", "T", "/h", "G")

    for task in (produce, consume):
        assert msgspec.json.decode(msgspec.json.encode(task), type=Produce | Consume) == task


def test_who_comes_for_a_dead_worker_goes_on_counting() -> None:
    """Progress of a dead worker and its successor is added, with the higher ends."""
    before = Progress(3, 2, 1, 5, {"a/0": 7, "a/1": 2}, "first")
    now = Progress(1, 1, 0, 2, {"a/0": 4, "a/2": 1}, "second")

    both = together(before, now)

    assert both == Progress(4, 3, 1, 7, {"a/0": 7, "a/1": 2, "a/2": 1}, "first")
