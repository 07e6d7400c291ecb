"""Names as numbers: equal names have equal numbers everywhere, and others differ."""

from __future__ import annotations

import random

import pyarrow as pa

from mqspark.screening.hashing import hashed


def test_a_name_has_one_number_wherever_it_stands() -> None:
    """A name has one number, beside names of any length, in any piece or chunk."""
    choose = random.Random(1)
    print("seed 1")
    names = ["".join(choose.choices("abé\0", k=choose.randint(0, 20))) for _ in range(300)]
    column = pa.array(names)
    numbers = hashed(column).tolist()
    assert numbers == [int(hashed(pa.array([name]))[0]) for name in names]
    assert hashed(column.slice(7, 50)).tolist() == numbers[7:57]
    chunks = pa.chunked_array([column.slice(0, 9), column.slice(9, 0), column.slice(9)])
    assert hashed(chunks).tolist() == numbers
    assert hashed(pa.chunked_array([], pa.string())).tolist() == []


def test_names_that_are_much_alike_have_different_numbers() -> None:
    """Numbers in sequence, and names that differ by zeros at their end only."""
    names = [f"{number:032X}" for number in range(100_000)]
    names += ["\0" * length for length in range(40)] + [f"a{number}" for number in range(100_000)]
    numbers = hashed(pa.array(names))
    assert len(set(numbers.tolist())) == len(names)
    for shift in (0, 20, 47):  # tasks are chosen by a part of the number
        taken = {(number >> shift) & 0xFFFF for number in numbers.tolist()}
        assert len(taken) > 60_000
