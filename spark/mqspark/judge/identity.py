"""Property 3: (queue, offset) names one message for ever, over acks, reads and replicas.

A slot is named by an acknowledgement, a delivery, or a replica's record in the settled part of the
log. Two ids at one slot are a violation, no matter which sources name them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import Property, slots, text, violation
from mqspark.screening.testimony import ACK, DELIVER, STORED

_SLOT: Final = ("broker", "topic", "queue_id", "queue_offset")


def violations(evidence: Evidence) -> DataFrame:
    """A row for each slot that has two names."""
    if evidence.doubtful is None:
        return evidence.nothing()
    contested = evidence.kept(
        evidence.doubtful.groupBy("queue", "queue_offset")
        .agg(F.min("identity").alias("least"), F.max("identity").alias("greatest"))
        .where("least != greatest")
        .select("queue", "queue_offset")
    )
    rows = _with_rightful(_statements(evidence, contested)).groupBy(*_SLOT, "message_id")
    said = F.concat("id", F.lit(" ("), "witnesses", F.lit(")"))
    slots = rows.agg(
        _all_of("positions").alias("positions"),
        F.array_join(_all_of("replicas"), ", ").alias("replica"),
        F.array_join(F.sort_array(F.collect_list(said)), "; ").alias("names"),
    )
    return violation(
        slots,
        "contested",
        text("this offset is given to {names}"),
        message_id=F.col("message_id"),
        replica=F.col("replica"),
        positions=F.col("positions"),
    )


def _statements(evidence: Evidence, contested: DataFrame) -> DataFrame:
    """A row for each name of a contested slot, with who gives it: witnesses, replicas, acked."""
    assert evidence.doubtful is not None
    claims = evidence.doubtful.join(F.broadcast(contested), ["queue", "queue_offset"])
    said = evidence.testimony_of(claims.select("identity").distinct())
    stored = F.col("source") == STORED
    witness = F.when(stored, F.col("replica")).otherwise(F.col("source"))
    return (
        said.where(F.col("source").isin(ACK, DELIVER, STORED) & F.col("error").isNull())
        .join(F.broadcast(evidence.members_table), "broker")
        .where("source != 'stored' OR getbit(holders, bit) = 1")
        .join(F.broadcast(contested), ["queue", "queue_offset"])
        .groupBy(*_SLOT, "id")
        .agg(
            F.array_join(F.sort_array(F.collect_set(witness)), ", ").alias("witnesses"),
            F.collect_set("position").alias("positions"),
            F.collect_set(F.when(stored, F.col("replica"))).alias("replicas"),
            F.max(F.col("source") == ACK).alias("acked"),
        )
    )


def _with_rightful(statements: DataFrame) -> DataFrame:
    """The slot's acknowledged message as `message_id`; `replicas` only where they contradict it.

    Without an acknowledgement it is not known which is right, and all replicas that name the slot
    are listed.
    """
    slot = Window.partitionBy(*_SLOT)
    rightful = F.max_by("id", F.struct("acked", "id")).over(slot)
    contradicts = ~F.max("acked").over(slot) | (F.col("id") != rightful)
    return statements.withColumn("message_id", rightful).withColumn(
        "replicas",
        F.when(contradicts, F.col("replicas")).otherwise(F.array().cast("array<string>")),
    )


def _all_of(lists: str) -> Column:
    """The values of a group's lists, sorted, each once."""
    return F.sort_array(F.array_distinct(F.flatten(F.collect_list(lists))))


PROPERTY: Final = Property(
    3,
    violations,
    slots,
    "which message had a place before, only a history says",
)
