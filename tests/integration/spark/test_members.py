"""Replicas as numbers: what Spark finds in a constant that has a value for each name."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mqspark.source.members import Members, looked_up
from mqspark.source.planning import Replica

#: Some differ by a NUL at their end only, or by the form of a letter.
NAMES = [
    "",
    "\0",
    ".",
    "a",
    "a\0",
    "a\0\0",
    "a.",
    "A",
    "ä",
    "a\u0308",
    "\U0001f600",
    "'",
    "\\",
    '"',
]


@pytest.mark.parametrize("names", [NAMES, NAMES[:1], []])
def test_each_name_has_its_own_value(session: SparkSession, names: list[str]) -> None:
    """Any other has none, nor has a row without a name."""
    rows = session.createDataFrame(pa.table({"name": pa.array([*NAMES, "b", None], pa.string())}))
    found = rows.select(
        looked_up("name", {name: at - 3 for at, name in enumerate(names)})
    ).collect()
    strange = len(NAMES) - len(names) + 2
    assert [value for (value,) in found] == [*range(-3, len(names) - 3), *[None] * strange]


@pytest.mark.parametrize("names", [NAMES, []])
def test_brokers_are_found_by_name_and_by_number(session: SparkSession, names: list[str]) -> None:
    """A broker without a replica here has the number -1, and nothing is known of it."""
    members = Members([Replica(name, "n0", "", 4096, ()) for name in names])
    rows = session.createDataFrame(pa.table({"broker": [*members.brokers, "b"]}))
    numbered = rows.withColumn("broker_number", members.broker_number)
    lengths = members.by_number(len)
    found = [tuple(row) for row in numbered.select("*", members.broker, lengths).collect()]
    known = [(name, at, name, len(name)) for at, name in enumerate(sorted(names))]
    assert found == [*known, ("b", -1, None, None)]
