"""Property 3: (queue, offset) names one message for ever, over acks, reads and replicas.

Everything that names a slot is a witness: an acknowledgement, a delivery, each replica's record in
the settled part of the log. Two ids at one slot are a violation, whoever names them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from spark.judge.evidence import Evidence
from spark.judge.testimony import ACK, DELIVER, STORED, queue_hash
from spark.judge.violations import violation

NUMBER: Final = 3
TITLE: Final = "A queue offset names one message for ever"


def violations(evidence: Evidence) -> DataFrame:
    """A row for each slot that has two names."""
    identity = F.xxhash64("id")
    contested = evidence.kept(
        evidence.slots.groupBy("queue", "queue_offset")
        .agg(F.min(identity).alias("least"), F.max(identity).alias("greatest"))
        .where("least != greatest")
        .select("queue", "queue_offset")
    )
    claims = evidence.slots.join(F.broadcast(contested), ["queue", "queue_offset"])
    said = evidence.testimony_of(claims.select("id").distinct())
    witness = F.when(F.col("source") == STORED, F.col("replica")).otherwise(F.col("source"))
    statements = (
        said.where(F.col("source").isin(ACK, DELIVER, STORED) & F.col("error").isNull())
        .join(F.broadcast(evidence.members_table), "broker")
        .where("source != 'stored' OR getbit(holders, bit) = 1")
        .withColumn("queue", queue_hash())
        .join(F.broadcast(contested), ["queue", "queue_offset"])
        .groupBy("broker", "topic", "queue_id", "queue_offset", "id")
        .agg(
            F.array_join(F.sort_array(F.collect_set(witness)), ", ").alias("witnesses"),
            F.collect_set("position").alias("positions"),
            F.collect_set(F.when(F.col("source") == STORED, F.col("replica"))).alias("replicas"),
            F.max(F.col("source") == ACK).alias("acked"),
        )
    )
    rows = statements.groupBy("broker", "topic", "queue_id", "queue_offset").agg(
        F.max_by("id", F.struct("acked", "id")).alias("message_id"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("positions")))).alias("positions"),
        F.array_join(
            F.sort_array(F.array_distinct(F.flatten(F.collect_list("replicas")))), ", "
        ).alias("replica"),
        F.array_join(
            F.sort_array(F.collect_list(F.concat("id", F.lit(" ("), "witnesses", F.lit(")")))),
            "; ",
        ).alias("names"),
    )
    return violation(
        rows,
        "contested",
        F.concat(F.lit("this offset is given to "), F.col("names")),
        message_id=F.col("message_id"),
        replica=F.col("replica"),
        positions=F.col("positions"),
    )
