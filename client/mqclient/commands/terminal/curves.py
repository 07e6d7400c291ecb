"""A server's history as curves of some characters. Pure.

A figure that only grows is shown by how fast it does, in a second: a process that began anew, and
counts from 0 again, is no step down.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from mqclient import limits
from mqclient.admin.results import ServerHistory

_BLOCKS = "▁▂▃▄▅▆▇█"
_GROWS = "_total"
_SHORT = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Curve(NamedTuple):
    """A figure over time: its extremes, its last value, and how it went, oldest first."""

    name: str
    least: str
    most: str
    last: str
    drawn: str
    is_zero: bool


def curves(history: ServerHistory, within_s: float) -> list[Curve]:
    """A curve for each figure of the last `within_s` seconds; none if there is not enough."""
    if not history.times_ms:
        return []
    since_ms = history.times_ms[-1] - 1000 * within_s
    first = next(at for at, each in enumerate(history.times_ms) if each >= since_ms)
    times, rows = history.times_ms[first:], history.rows[first:]
    found = []
    for place, figure in enumerate(history.names):
        name, values = figure, [row[place] for row in rows]
        if figure.endswith(_GROWS):
            name, values = f"{figure.removesuffix(_GROWS)}/s", rates(times, values)
        if values:
            extremes = short(min(values)), short(max(values)), short(values[-1])
            found.append(Curve(name, *extremes, drawn(values), not any(values)))
    return found


def rates(times_ms: Sequence[int], values: Sequence[float]) -> list[float]:
    """How fast a figure grew between each two times, in a second."""
    found = []
    for (began, before), (ended, after) in pairwise(zip(times_ms, values, strict=True)):
        if ended > began:
            grown = after - before if after >= before else after
            found.append(1000 * grown / (ended - began))
    return found


def drawn(values: Sequence[float]) -> str:
    """Values as blocks, from the least to the greatest of them; of many, the mean of some each."""
    width = min(len(values), limits.CURVE_COLUMNS)
    ends = [len(values) * at // width for at in range(width + 1)]
    means = [sum(values[one:other]) / (other - one) for one, other in pairwise(ends)]
    low, high = min(means), max(means)
    if high <= low:
        return (_BLOCKS[0] if not high else _BLOCKS[len(_BLOCKS) // 2]) * width
    shares = ((mean - low) / (high - low) for mean in means)
    return "".join(_BLOCKS[round((len(_BLOCKS) - 1) * share)] for share in shares)


def short(value: float) -> str:
    """A number in six characters or so: three digits, and how large they are."""
    rounded = float(f"{value:.3g}")
    for size, letter in _SHORT:
        if abs(rounded) >= size:
            return f"{rounded / size:.4g}{letter}"
    return f"{rounded:.3g}"
