"""Property 9: copies of one message in the log <= 1 with idempotent sends, <= 1 + retries without.

An application that does not know what became of a message may send it once more (`again`). That is
another send, for which one more copy is allowed: a broker may take it for a retry, or not.

Each replica's log is counted for itself, its tail included: the second copy of an idempotent send
must never have been appended, committed or not. What waits, for its time or its transaction, may
be once where it waits and once in its topic. A topic that was deleted and made again is another,
so copies are counted life by life; copies in several topics count together.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.judge.lives import life
from mqspark.judge.violations import Property, counted, text, violation

AGAIN: Final = "again"


def violations(evidence: Evidence) -> DataFrame:
    """A row for each message and replica with too many copies."""
    if evidence.is_agreed:
        return evidence.nothing()
    copies = evidence.holdings.withColumn("waits", F.lit(False)).unionByName(
        evidence.held.withColumn("waits", F.lit(True))
    )
    again = evidence.noted.where(F.col("kind") == AGAIN)
    more = again.groupBy("id").agg(F.count(F.lit(1)).alias("more"))
    allowed = F.coalesce("more", F.lit(0)) + evidence.meta.copies_max
    rows = (
        copies.withColumn("life", life())
        .groupBy("id", "broker", "replica", "waits", "life")
        .agg(
            F.sort_array(F.collect_set("position")).alias("positions"),
            F.min("topic").alias("topic"),
            F.array_join(
                F.sort_array(
                    F.collect_set(
                        F.concat(
                            F.col("queue_id").cast("string"),
                            F.lit(" offset "),
                            F.col("queue_offset").cast("string"),
                        )
                    )
                ),
                ", ",
            ).alias("places"),
        )
        .join(F.broadcast(more), "id", "left")
        .withColumn("allowed", allowed)
        .where(F.size("positions") > F.col("allowed"))
    )
    count = F.size("positions")
    return violation(
        rows,
        "duplicate",
        text(
            "{copies} copies, allowed are {allowed}: queue {places}",
            copies=count,
            allowed=F.col("allowed"),
        ),
        positions=F.col("positions"),
    )


PROPERTY: Final = Property(
    9,
    violations,
    counted("messages"),
    "whether a key was sent again on purpose, only a history says",
    explained=("duplicate",),
)
