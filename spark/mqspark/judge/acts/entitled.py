"""Messages to which a group is entitled, where a tool has set its offset or deleted it.

A reset to n has the group go on at n: what lies between the last that it had read and n is skipped
for a reason, and nothing else is. If it goes back, offsets come for the first time after higher
ones; that is right if these had been skipped for a reason, or were before the group's beginning. A
group that was deleted begins anew somewhere: of it nothing is said.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.screening.tasks import ACT, RESET
from mqspark.screening.testimony import QUEUE

_PLACE: Final = ("group", *QUEUE)
DELETE_GROUP: Final = "delete-group"


def resets(evidence: Evidence) -> DataFrame | None:
    """The resets: group, queue, to, reset_began, reset_t. None if there is none."""
    if not evidence.summary.notes.get(RESET):
        return None
    return evidence.noted.where(F.col("kind") == RESET).select(
        "group",
        "queue",
        F.col("offset").alias("to"),
        F.coalesce("began", F.lit(0)).alias("reset_began"),
        F.col("t").alias("reset_t"),
    )


def of_lasting_groups(evidence: Evidence, rows: DataFrame) -> DataFrame:
    """The `rows`, with `group` and `broker`, whose group was not deleted there."""
    if not evidence.summary.notes.get(ACT):
        return rows
    deleted = evidence.noted.where((F.col("kind") == ACT) & (F.col("act") == DELETE_GROUP))
    return rows.join(
        F.broadcast(deleted.select("group", "broker")), ["group", "broker"], "left_anti"
    )


def unexplained(evidence: Evidence, rows: DataFrame) -> DataFrame:
    """Rows that were skipped or late in readings, and for which no tool is the reason.

    `rows` have group, queue, queue_offset, t, offset_above, first_above, and whether anything
    lower came before (`begun`).
    """
    rows = of_lasting_groups(evidence, rows)
    set_to = resets(evidence)
    if set_to is None:
        return rows
    moved = rows.join(F.broadcast(set_to), ["group", "queue"], "left")
    skipping = (F.col("to") > F.col("queue_offset")) & (
        F.col("reset_began") <= F.col("first_above")
    )
    back = (F.col("to") <= F.col("queue_offset")) & (F.col("reset_began") < F.col("t"))
    return (
        moved.groupBy(*rows.columns)
        .agg(
            _any(F.col("to") == F.col("offset_above")).alias("set_forward"),
            _any(skipping).alias("passed"),
            _any(back).alias("set_back"),
        )
        .withColumn("skipped", F.col("skipped") & ~F.col("set_forward"))
        .withColumn(
            "late", F.col("late") & ~(F.col("set_back") & (F.col("passed") | ~F.col("begun")))
        )
        .where("skipped OR late")
        .drop("set_forward", "passed", "set_back")
    )


def _any(holds: Column) -> Column:
    return F.coalesce(F.bool_or(holds), F.lit(False))
