"""Answers to questions, beside what had been answered before they were asked.

An answer must not be behind what was known when its question was asked. What became known while the
question was under way proves nothing.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it


def with_highest(asked: DataFrame, known: DataFrame, *place: str) -> DataFrame:
    """`asked`, with `highest`: the highest `known` of the same place from before; null without any.

    `at` is when a question was asked, or when something became known. An answer is an `offset`,
    which is not null. The rows have the columns of both; `known` is null.
    """
    rows = asked.unionByName(known, allowMissingColumns=True)
    # At equal times the questions come first: what became known then is not earlier.
    in_time = Window.partitionBy(*place).orderBy("at", F.col("offset").isNull())
    so_far = in_time.rowsBetween(Window.unboundedPreceding, -1)
    return rows.withColumn("highest", F.max("known").over(so_far)).where("offset IS NOT NULL")
