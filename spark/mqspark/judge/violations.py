"""The form that every judge's findings have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

#: `what` is one word for the kind of violation, `severity` orders kinds (worst first: 0),
#: `positions` are byte positions in the log, `detail` is a sentence for people.
COLUMNS = (
    "severity int, what string, message_id string, broker string, replica string, topic string, "
    "queue_id int, queue_offset long, positions array<bigint>, detail string"
)
_NAMES = [column.split()[0] for column in COLUMNS.split(", ")]


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
    """Rows in the common form. Columns of it that `rows` has under the same name are kept."""
    named: dict[str, Column | None] = {
        "severity": F.lit(severity).cast("int") if isinstance(severity, int) else severity,
        "what": F.lit(what) if isinstance(what, str) else what,
        "message_id": message_id,
        "replica": replica,
        "positions": positions if isinstance(positions, Column) else F.array(*positions),
        "detail": detail,
    }
    types = dict(column.split(" ", 1) for column in COLUMNS.split(", "))
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
