"""Doubtful readings, by the definitions and offset by offset."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mqspark.screening import readings
from mqspark.screening.packets import NONE, READING, Rows
from mqspark.screening.readings import (
    ANSWERED,
    COMMITTED,
    DELIVERED,
    SET,
    doubts,
    read_numbers,
    read_ranges,
)

Said = list[tuple[int, int, int]]
"""Readings as (kind, offset, time)."""
#: Four messages, delivered and committed one by one.
SOUND: Said = [
    (what, offset + (what == COMMITTED), 10 * offset + what)
    for offset in range(5, 9)
    for what in (DELIVERED, COMMITTED)
]


def rows_of(said: Said, group: int = 1, queue: int = 2) -> Rows:
    return np.array([(group, queue, offset, t, what) for what, offset, t in said], READING)


def doubts_of(said: Said) -> list[bool]:
    """Disorder, ahead, back; beside readings that are sound, as three tasks look at them."""
    rows = np.concatenate([rows_of(said), rows_of(SOUND, 1, 3), rows_of(SOUND, 7)])
    rows = np.random.default_rng(1).permutation(rows)
    places = read_numbers(rows, 3)
    found = np.concatenate([read_ranges(rows[places == place]) for place in range(3)])
    by_name = {row[:2]: list(row[-3:]) for row in doubts(found).tolist()}
    assert by_name.pop((1, 3)) == by_name.pop((7, 2)) == [False] * 3
    return by_name[1, 2]


def first_deliveries(said: Said) -> dict[int, int]:
    times = [(offset, t) for what, offset, t in said if what == DELIVERED]
    return {offset: min(t for o, t in times if o == offset) for offset, _ in times}


def is_in_disorder(said: Said) -> bool:
    """An offset between others never came, or one came first after a higher one."""
    times = first_deliveries(said)
    came = sorted(times)
    late = any(times[a] > times[b] for a in came for b in came if a < b)
    return late or came != list(range(came[0], came[-1] + 1)) if came else False


def is_ahead(said: Said) -> bool:
    """A commit of n, and not all from where the group began had been delivered below n."""
    times = first_deliveries(said)
    commits = [(offset, t) for what, offset, t in said if what == COMMITTED]
    begin = min([*times, *(offset for offset, _ in commits)], default=0)
    return any(
        times.get(below, t + 1) > t for offset, t in commits for below in range(begin, offset)
    )


def has_fallen(said: Said) -> bool:
    """A commit was answered, and later an answer was below it; commits of others do count here."""
    commits = [(offset, t) for what, offset, t in said if what == COMMITTED]
    answers = [(offset, t) for what, offset, t in said if what in {COMMITTED, ANSWERED}]
    return any(t < later and offset > told for offset, t in commits for told, later in answers)


@pytest.mark.parametrize("offsets", [2, 3, 2**20])
def test_what_is_wrong_by_the_definitions_is_doubtful(
    offsets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random wrong readings are doubtful and sound ones are not, in small ranges or one."""
    monkeypatch.setattr(readings, "RANGE_OFFSETS", offsets)
    counts, extra = np.zeros((3, 2), int), 0
    for seed in range(3000):
        print(f"seed {seed}")
        choose = random.Random(seed)
        said = [each for each in SOUND if choose.random() < choose.choice([0.7, 1])]
        for _ in range(choose.choice([0, 0, 1, 3])):
            at = choose.randrange(4, 11), choose.randrange(40, 90)
            said.append((choose.choice([DELIVERED, COMMITTED, ANSWERED]), *at))
        if not said:
            continue
        disorder, ahead, back = doubts_of(said)
        assert disorder == is_in_disorder(said)
        assert ahead or not is_ahead(said)
        assert back or not has_fallen(said)
        extra += (ahead and not disorder and not is_ahead(said)) + (back and not has_fallen(said))
        for row, doubt in zip(counts, (disorder, ahead, back), strict=True):
            row[int(doubt)] += 1
    assert counts.min() > 200
    assert extra < 900


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        ((SET, 5, 60), [False, False, True]),
        ((DELIVERED, NONE, 60), [True] * 3),
        ((COMMITTED, 6, NONE), [True] * 3),
        ((ANSWERED, NONE, 60), [True] * 3),
        ((ANSWERED, 7, 61), [False] * 3),
        ((ANSWERED, 6, 61), [False, False, True]),
    ],
)
def test_what_says_too_little_is_doubtful(odd: tuple[int, int, int], expected: list[bool]) -> None:
    """A reading without an offset or a time is doubtful: the judges look at it."""
    assert doubts_of([*SOUND, odd]) == expected


def test_nothing_said_is_no_reading() -> None:
    """No readings give no doubts, as a task may get none."""
    assert len(doubts(read_ranges(np.empty(0, READING)))) == 0
