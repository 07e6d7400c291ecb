"""Property 12: a max-offset read is never below an ack that completed before it began, nor above
what any log has.

While a run goes on the harness asks for the ends of queues, as any client may, every node that
takes the question. An end is the offset that the next message will get. So if a message was
acknowledged at offset n before the question was asked, the answer is n + 1 or more, whoever leads
by now, and whoever believes that he does. An acknowledgement that came while the question was
under way proves nothing, and neither does a question without an answer.

An end counts what is committed, which no log loses. So no end is above what the logs have of the
queue, or clients know of, if nothing was removed from them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.answers.questions import with_highest
from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import Property, noted, text, together, violation
from mqspark.screening.tasks import QUEUE_END
from mqspark.screening.testimony import QUEUE


def violations(evidence: Evidence) -> DataFrame:
    """A row for each answer below an earlier acknowledgement, or above all that is there."""
    if not evidence.summary.notes.get(QUEUE_END):
        return evidence.nothing()
    answers = evidence.noted.where(F.col("kind") == QUEUE_END)
    asked = answers.select("queue", F.col("began").alias("at"), "offset", "t")
    acked = evidence.acks.join(F.broadcast(answers.select("queue").distinct()), "queue").select(
        "queue", F.col("ack_t").alias("at"), F.col("queue_offset").alias("known")
    )
    low = evidence.kept(
        with_highest(asked, acked, "queue")
        .where("highest >= offset")
        .select("queue", "at", "t", "offset", "highest")
    )
    names = answers.select("queue", *QUEUE).dropDuplicates(["queue"])
    witness = evidence.acks.groupBy("queue", F.col("queue_offset").alias("highest")).agg(
        F.min_by("identity", "ack_t").alias("identity"), F.min("position").alias("position")
    )
    stale = violation(
        evidence.with_ids(low.join(witness, ["queue", "highest"]))
        .join(F.broadcast(names), "queue")
        .withColumn("queue_offset", F.col("highest")),
        "stale",
        text(
            "the end was told to be {offset} at {t} ns, though offset {highest} had been "
            "acknowledged when that was asked, at {at} ns"
        ),
        positions=[F.col("position")],
    )
    return together(stale, _beyond(evidence, answers))


def _beyond(evidence: Evidence, answers: DataFrame) -> DataFrame:
    """Answers that are above the ends of the queues."""
    rows = evidence.beyond_the_end(answers.where(F.col("topic").isin(*evidence.topics)))
    return violation(
        rows.withColumn("queue_offset", F.col("offset")),
        "beyond",
        text("the end was told to be {offset} at {t} ns, and {end} is the end in all logs"),
        replica=F.col("node"),
        severity=1,
    )


PROPERTY: Final = Property(
    12,
    violations,
    noted(QUEUE_END),
    "only a history says what brokers answered",
)
