"""Property 4: acknowledgements and reads respect the order of a queue.

Three statements. If a's acknowledgement came before b was sent, then a's offset is lower than b's,
in whatever way b's offset became known. A queue has no holes, and its messages lie in the log in
the order of their offsets. Every read is a prefix of the final queue: what a group has read at any
moment is the queue from where the group began, without a gap. So only the first delivery of each
offset counts, repeats are free, and the first deliveries must come in the order of the offsets. A
tool may set the group's offset (:mod:`mqspark.judge.acts.entitled`).

Of topics that the history is not about the log alone tells (:mod:`mqspark.judge.alone`).

Times are of the harness's monotonic clock. A group may begin behind offset 0: that is no violation.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge import alone
from mqspark.judge.acts.entitled import unexplained
from mqspark.judge.evidence import Evidence
from mqspark.judge.logs import are_others_odd
from mqspark.judge.violations import Alone, Property, slots, text, together, violation
from mqspark.screening.packets import NONE
from mqspark.screening.testimony import DELIVER, QUEUE, STORED


def violations(evidence: Evidence) -> DataFrame:
    """A row for each message out of order, hole in a queue, and skip in what a group read."""
    found = []
    if not (evidence.is_agreed and evidence.doubtful is None and _are_reads_plain(evidence)):
        found += [_of_queues(evidence), _of_reads(evidence), _vanished(evidence)]
    if are_others_odd(evidence):
        found.append(alone.order_violations(evidence, evidence.meta.topics))
    return together(*found) if found else evidence.nothing()


def _of_queues(evidence: Evidence) -> DataFrame:
    """Messages that are overtaken, out of log order, or preceded by a hole."""
    if evidence.doubtful is None:
        return evidence.nothing()
    higher = Window.partitionBy("queue").orderBy(F.col("queue_offset").desc())
    later = higher.rowsBetween(Window.unboundedPreceding, -1)
    lower = F.lead("queue_offset").over(higher)
    start = evidence.members.by_number(lambda name: -1 if name in evidence.whole else NONE)
    below = F.coalesce(lower, F.when(start == -1, -1))
    rows = (
        evidence.doubtful.withColumn("first_ack_above", F.min("ack_t").over(later))
        .withColumn("position_above", F.lag("position").over(higher))
        .withColumn("offset_below", below)
    )
    overtaken = F.col("first_ack_above") < F.col("send_t")
    misplaced = F.col("position_above") < F.col("position")
    hole = F.col("queue_offset") > F.col("offset_below") + 1
    flagged = evidence.kept(rows.where(overtaken | misplaced | hole))
    what = F.when(overtaken, "overtaken").when(misplaced, "misplaced").otherwise("hole")
    detail = (
        F.when(
            overtaken,
            text(
                "sent at {send_t} ns, but a higher offset was acknowledged at {first_ack_above} ns"
            ),
        )
        .when(
            misplaced,
            text("stands at {position}, behind the next offset's position {position_above}"),
        )
        .otherwise(text("the queue has no offset between {offset_below} and {queue_offset}"))
    )
    described = flagged.join(_names(evidence, flagged), ["queue", "identity"], "left")
    return violation(
        described,
        what,
        detail,
        positions=F.array_compact(F.array("position", F.when(misplaced, F.col("position_above")))),
    )


def _names(evidence: Evidence, flagged: DataFrame) -> DataFrame:
    """Message, broker, topic and queue id behind the numbers of the flagged."""
    return (
        evidence.testimony_of(flagged.select("identity"))
        .where(F.col("queue_id").isNotNull())
        .select("queue", "identity", "id", *QUEUE)
        .dropDuplicates(["queue", "identity"])
    )


def _are_reads_plain(evidence: Evidence) -> bool:
    """Whether no group got offsets out of order. Of one group the queues' ranges tell."""
    if evidence.has_one_group:
        return evidence.doubtful is None
    return evidence.doubted("disorder") is None


def _of_reads(evidence: Evidence) -> DataFrame:
    """First deliveries that come after a higher offset's, and offsets that never came."""
    doubted = None if _are_reads_plain(evidence) else evidence.doubted("disorder")
    if doubted is None:
        return evidence.nothing()
    higher = Window.partitionBy("reading").orderBy(F.col("queue_offset").desc())
    lower = Window.partitionBy("reading").orderBy("queue_offset")
    so_far = F.min("t").over(lower.rowsBetween(Window.unboundedPreceding, -1))
    late = F.coalesce(F.col("first_above") < F.col("t"), F.lit(False))
    skipped = F.coalesce(F.col("offset_above") > F.col("queue_offset") + 1, F.lit(False))
    rows = (
        evidence.first_reads(doubted)
        .withColumn(
            "first_above",
            F.min("t").over(higher.rowsBetween(Window.unboundedPreceding, -1)),
        )
        .withColumn("offset_above", F.lag("queue_offset").over(higher))
        .withColumn("begun", F.coalesce(so_far < F.col("first_above"), F.lit(False)))
        .withColumn("late", late)
        .withColumn("skipped", skipped)
    )
    flagged = evidence.kept(rows.where("late OR skipped"))
    names = (
        evidence.testimony.where(F.col("source") == DELIVER)
        .select(evidence.reading.alias("reading"), "group", "queue", *QUEUE)
        .join(F.broadcast(flagged.select("reading").distinct()), "reading", "left_semi")
        .dropDuplicates(["reading"])
    )
    named = evidence.kept(unexplained(evidence, flagged.join(names, "reading")))
    if evidence.is_trimmed:
        # A removal before the group came to it is not its fault, nor anybody's.
        named = named.join(F.broadcast(evidence.kept_from), "queue", "left").where(
            F.col("late") | (F.col("offset_above") - 1 >= F.col("kept_from"))
        )
    named = named.where("skipped").unionByName(evidence.sure(named.where("late AND NOT skipped")))
    skipped = F.col("skipped")
    return violation(
        named,
        F.when(skipped, "skipped").otherwise("late"),
        F.when(
            skipped, text("group {group} was never given what is between this and {offset_above}")
        ).otherwise(text("group {group} got this after a higher offset")),
        severity=F.when(skipped, 0).otherwise(1),
    )


def _vanished(evidence: Evidence) -> DataFrame:
    """Messages that were delivered, and are in no replica's log at that place. Where the record of
    one is damaged, its place may be."""
    if evidence.is_agreed:
        return evidence.nothing()
    place = ["id", "queue", "queue_offset"]
    delivered = evidence.suspects.where(F.col("source") == DELIVER).dropDuplicates(place)
    kept = evidence.suspects.where(F.col("source") == STORED)
    damaged = kept.where(F.col("error").isNotNull())
    if evidence.is_trimmed:
        delivered = delivered.join(F.broadcast(evidence.kept_from), "queue").where(
            "queue_offset >= kept_from"
        )
    return violation(
        delivered.join(kept, place, "left_anti").join(damaged, "id", "left_anti"),
        "vanished",
        F.lit("delivered, but no replica's log holds it at this place"),
    )


PROPERTY: Final = Property(
    4,
    violations,
    slots,
    Alone(alone.order_violations, part=alone.OFFSETS_ONLY),
    explained=("skipped", "late"),
)
