"""Property 14: each input that a group has passed has its output, and no other input has.

A program that works exactly once writes an output for each message that it reads, and how far it
has read, in one entry of the log. The output's id is that of its input and a suffix. Two statements
follow, since whatever was answered is settled.

**None is missing.** If a group was at n in a queue, by the answer to a commit or to a question,
then each input below n, from the first that it was given, has its output in a replica's log.

**None is taken twice.** If an output was acknowledged before somebody asked where the group is, the
answer is behind that output's input. An answer at or before it would have the input read again.

That an output is in a log once is property 9. A queue whose offset was set on purpose says nothing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.answers.questions import with_highest
from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import Property, text, together, violation
from mqspark.screening.tasks import COMMIT, GROUP_OFFSET, RESET
from mqspark.screening.testimony import ACK, DELIVER, QUEUE, STORED

SUFFIX: Final = "-output"


def checked(evidence: Evidence) -> int:
    """How many outputs were acknowledged or are stored."""
    if not evidence.meta.outputs:
        return 0
    made = F.col("source").isin(ACK, STORED) & F.col("id").endswith(SUFFIX)
    return evidence.testimony.where(made).select("identity").distinct().count()


def violations(evidence: Evidence) -> DataFrame:
    """A row for each input without an output, and for each offset before an output's input."""
    found = [_of_topic(evidence, inputs, group) for inputs, group in evidence.meta.outputs.values()]
    return together(*found) if found else evidence.nothing()


def _of_topic(evidence: Evidence, inputs: str, group: str) -> DataFrame:
    said = evidence.noted.where((F.col("topic") == inputs) & (F.col("group") == group))
    resets = said.where(F.col("kind") == RESET).select(*QUEUE).distinct()
    answers = evidence.kept(
        said.where(F.col("kind").isin(COMMIT, GROUP_OFFSET)).join(
            F.broadcast(resets), list(QUEUE), "left_anti"
        )
    )
    queues = answers.groupBy("queue", *QUEUE).agg(F.max("offset").alias("passed"))
    ids = evidence.testimony.where(F.col("topic") == inputs)
    rows = evidence.kept(
        evidence.slots.select("queue", "queue_offset", "identity", "position", "broker_number")
        .join(F.broadcast(queues), "queue")
        .join(ids.select("identity", F.col("id").alias("input")).distinct(), "identity")
        .withColumn("id", F.concat("input", F.lit(SUFFIX)))
    )
    return together(
        _missing(evidence, rows, inputs, group), _untaken(evidence, rows, answers, group)
    )


def _missing(evidence: Evidence, rows: DataFrame, inputs: str, group: str) -> DataFrame:
    """Inputs that the group has passed, and no log has their output."""
    given = (F.col("source") == DELIVER) & (F.col("topic") == inputs) & (F.col("group") == group)
    delivered = evidence.testimony.where(given)
    begins = delivered.groupBy("queue").agg(F.min("queue_offset").alias("begin"))
    passed = (
        evidence.reach_back(rows)
        .join(F.broadcast(begins), "queue")
        .where("queue_offset >= begin AND queue_offset < passed")
    )
    there = evidence.testimony.where((F.col("source") == STORED) & F.col("error").isNull())
    lacking = evidence.kept(passed.join(there.select("id"), "id", "left_anti"))
    return violation(
        lacking,
        "missing",
        text("group {group} was at {passed}, and no log has {id}", group=F.lit(group)),
        message_id=F.col("input"),
    )


def _untaken(evidence: Evidence, rows: DataFrame, answers: DataFrame, group: str) -> DataFrame:
    """Answers that are not behind the input of an output that had been acknowledged."""
    asked = answers.where(F.col("kind") == GROUP_OFFSET).select(
        "queue", F.coalesce("began", "t").alias("at"), "offset", "t"
    )
    acked = evidence.testimony.where(F.col("source") == ACK)
    acks = acked.groupBy("id").agg(F.min("t").alias("at"))
    stored = rows.join(acks, "id").select("queue", "at", F.col("queue_offset").alias("known"))
    low = evidence.kept(with_highest(asked, stored, "queue").where("highest >= offset"))
    names = answers.select("queue", *QUEUE).dropDuplicates(["queue"])
    return violation(
        low.join(F.broadcast(names), "queue").withColumn("queue_offset", F.col("highest")),
        "untaken",
        text(
            "group {group} was at {offset} at {t} ns, though the output of {highest} had been "
            "acknowledged when that was asked, at {at} ns",
            group=F.lit(group),
        ),
    )


PROPERTY: Final = Property(
    14,
    violations,
    checked,
    "which group passed which inputs, only a history says",
    explained=("missing", "untaken"),
    needs_meta=True,
)
