"""How far logs are settled where no history says it: up to where nothing can change any more.

A copy that a broker made of itself says how far it was committed. Stopped replicas are compared up
to the end of the shortest one, and not beyond the first entry in which their terms differ: such a
tail may be replaced (:mod:`mqspark.judge.alone`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.source.members import Members


def settled_alone(entries: DataFrame, splits: DataFrame, members: Members) -> dict[str, int]:
    """For each broker: the position up to which its replicas alone show that its log is settled.

    `splits`: the rows of the ledger on which replicas differ.
    """
    whole = entries.where("error IS NULL AND index IS NOT NULL")
    ends = (
        whole.groupBy("broker", "replica")
        .agg(F.max(F.col("position") + F.col("size")).alias("end"))
        .collect()
    )
    terms = splits.where("term_min != term_max").groupBy("broker")
    settled = {row.broker: row.at for row in terms.agg(F.min("position").alias("at")).collect()}
    for row in ends:
        settled[row.broker] = min(row.end, settled.get(row.broker, row.end))
    for name in members.brokers:
        told = [replica.manifest for replica in members.of(name)]
        committed = min(0 if each is None else each.end_position for each in told)
        settled[name] = max(committed, settled.get(name, 0))
    return settled
