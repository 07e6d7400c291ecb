"""Numbers that an application gives, checked where they come in.

A slip of the pen (seconds from a config file as text, a bound of 0, NaN from a division) would show
much later, as a send that never ends or a poll that never finds anything.
"""

from __future__ import annotations

from dledger.errors import BadInput


def check_seconds(name: str, value: float, *, above_zero: bool = False) -> float:
    """A length of time, which may be infinite. Raises BadInput."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (value > 0 or (value == 0 and not above_zero)):
        least = "above 0" if above_zero else "of 0 at least"
        raise BadInput(f"{name}={value!r}: expected a number of seconds {least}")
    return value


def check_whole(name: str, value: int, least: int, most: int) -> int:
    """A whole number within bounds. Raises BadInput."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(f"{name}={value!r}: expected a whole number from {least} to {most}")
    return value


def check_count(name: str, value: int) -> int:
    """How many of something, one at least. Raises BadInput."""
    if not isinstance(value, int) or value < 1:
        raise BadInput(f"{name}={value!r}: expected a whole number of 1 at least")
    return value
