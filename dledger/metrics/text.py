"""Prometheus's text format, 0.0.4: a family has a type, a help, and samples with labels. Pure.

Numbers and bounds are written as the Prometheus exporters of Java write them (`le="1048576.0"`), so
that a sum over servers of both kinds adds equal buckets.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = Mapping[str, str]
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family(NamedTuple):
    """A name, what kind of figure it is, and its help. A counter's name ends with `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str

    @property
    def head(self) -> str:
        """The lines before its samples."""
        text = self.help.replace("\\", r"\\").replace("\n", r"\n")
        return f"# HELP {self.name} {text}\n# TYPE {self.name} {self.kind}\n"


class Buckets:
    """A histogram: how many values are up to each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value in its bucket."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def take(self, other: Buckets) -> None:
        """Count all that another one with the same bounds has counted."""
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


CERTIFICATE_END: Final = Family(
    "dledger_certificate_end_timestamp_seconds",
    "gauge",
    "When the certificate in use ends, in Unix seconds.",
)
"""The figure of a server that has a certificate, of each kind."""
CLOCK: Final = Family(
    "dledger_clock_seconds", "gauge", "The server's clock as it made this page, in Unix seconds."
)
"""The clock of a server, of each kind."""

Value: TypeAlias = float | Buckets
Sample: TypeAlias = tuple[Labels, Value]


class Writer:
    """Writes samples; `fixed` are the labels that all of them have."""

    def __init__(self, fixed: Labels) -> None:
        self._fixed = _written(fixed)

    def family(self, family: Family, samples: Iterable[Sample]) -> Iterator[str]:
        """The family's text, a sample at each step; nothing if there is no sample."""
        head = family.head
        for labels, value in samples:
            yield head + self._sample(family.name, labels, value)
            head = ""

    def _sample(self, name: str, labels: Labels, value: Value) -> str:
        own = _written(labels)
        inside = f"{self._fixed},{own}" if self._fixed and own else self._fixed or own
        if not isinstance(value, Buckets):
            return (
                f"{name}{{{inside}}} {_number(value)}\n" if inside else f"{name} {_number(value)}\n"
            )
        return _histogram(name, inside, value)


def _histogram(name: str, inside: str, value: Buckets) -> str:
    lines, count, comma = [], 0, "," if inside else ""
    for bound, more in zip([*map(float, value.bounds), None], value.counts, strict=True):
        count += more
        le = "+Inf" if bound is None else repr(bound)
        lines.append(f'{name}_bucket{{{inside}{comma}le="{le}"}} {count}\n')
    labelled = f"{{{inside}}}" if inside else ""
    lines.append(f"{name}_sum{labelled} {_number(value.total)}\n{name}_count{labelled} {count}\n")
    return "".join(lines)


def _written(labels: Labels) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value) if isinstance(value, float) else str(int(value))
