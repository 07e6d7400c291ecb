"""The form of a property, and that of every judge's findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from dledger.verdict.form import TITLES
from mqspark.judge import COLUMNS
from mqspark.judge.evidence import Evidence

Judge: TypeAlias = Callable[[Evidence], DataFrame]
Count: TypeAlias = Callable[[Evidence], int]

_NAMES = [column.split()[0] for column in COLUMNS.split(", ")]


def entries(evidence: Evidence) -> int:
    """How many entries the logs have."""
    return evidence.entry_count


@dataclass(frozen=True)
class Alone:
    """How replicas are judged without a history. `compares`: it takes several of them. `part`: of
    the property they show only that."""

    judge: Judge
    checked: Count = entries
    compares: bool = False
    part: str = ""


@dataclass(frozen=True)
class Property:
    """A property of the design: how it is judged, and what else a verdict has to know of it.

    `checked` counts what was looked at. `alone` is how replicas are judged without a history, or
    why they can't be. `explained` are the kinds of violations that a line which is missing in the
    history may explain. `needs_meta`: nothing but the description of the run names its subject.
    """

    number: int
    judge: Judge
    checked: Count
    alone: Alone | str
    explained: tuple[str, ...] = ()
    needs_meta: bool = False

    @property
    def title(self) -> str:
        """The property in a few words."""
        return TITLES[self.number]


def counted(name: str) -> Count:
    """How many there are of what the screening counts by this name."""
    return lambda evidence: int(evidence.screened.totals[name])


def noted(*kinds: str) -> Count:
    """How many events of these kinds the history has."""
    return lambda evidence: sum(evidence.summary.notes.get(kind, 0) for kind in kinds)


def slots(evidence: Evidence) -> int:
    """How many places in queues clients or logs name."""
    return int(evidence.ranges["rows"].sum())


def violation(
    rows: DataFrame,
    what: str | Column,
    detail: Column,
    *,
    severity: int | Column = 0,
    message_id: Column | None = None,
    replica: Column | None = None,
    positions: Sequence[Column] | Column = (),
) -> DataFrame:
    """Rows in the common form. Columns of it that `rows` has under the same name are kept; of
    messages, `id` is the name."""
    named: dict[str, Column | None] = {
        "severity": F.lit(severity).cast("int") if isinstance(severity, int) else severity,
        "what": F.lit(what) if isinstance(what, str) else what,
        "message_id": message_id,
        "replica": replica,
        "positions": positions if isinstance(positions, Column) else F.array(*positions),
        "detail": detail,
    }
    types = dict(column.split(" ", 1) for column in COLUMNS.split(", "))
    if message_id is None and "id" in rows.columns:
        named["message_id"] = F.col("id")
    selected = []
    for name in _NAMES:
        value = named.get(name)
        if value is None:
            value = F.col(name) if name in rows.columns else F.lit(None)
        selected.append(value.cast(types[name]).alias(name))
    return rows.select(*selected)


def together(first: DataFrame, *others: DataFrame) -> DataFrame:
    """All violations of several kinds."""
    return reduce(DataFrame.unionByName, others, first)


def text(template: str, **values: Column) -> Column:
    """A sentence with `{name}` replaced by values; a null value shows as `?`."""
    pieces: list[Column] = []
    rest = template
    while "{" in rest:
        before, rest = rest.split("{", 1)
        name, rest = rest.split("}", 1)
        value = values[name] if name in values else F.col(name)
        pieces += [F.lit(before), F.coalesce(value.cast("string"), F.lit("?"))]
    return F.concat(*pieces, F.lit(rest))
