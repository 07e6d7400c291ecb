"""Property 8: a group's offset never goes back without a reset, and all below it was delivered.

A commit says "the group goes on at n". Two statements follow.

**Nothing is left out.** When a commit of n was answered, every offset of the queue below n, from
where the group began, had been delivered to a member of that group. A group begins where its
lowest delivery or its lowest commit is: if that is behind offset 0, on purpose. What is
dead-lettered was delivered before, so it is no exception. Deliveries count by the harness's clock:
a consumer notes a delivery before it commits.

**Nothing is taken back.** What is read as the group's offset is never lower than what a commit said
that had been answered before this request began; nor is what a member commits lower than what it
had committed itself. A lower commit of another member proves nothing: one that lost its queue
commits what it had, and is answered though the group is further already. Two commits that were
under way at the same time, as two members' are when a queue changes hands, may be applied in either
order, and prove nothing. Neither does what overlaps a reset. A commit that does not say when it
began began at the earliest after the same member's commit before it, since a member commits one
after the other.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.judge.questions import with_highest
from mqspark.judge.violations import text, together, violation
from mqspark.screening.tasks import COMMIT, GROUP_OFFSET, RESET
from mqspark.screening.testimony import QUEUE

NUMBER: Final = 8
TITLE: Final = "A group's offset says what was delivered, and never goes back"

_PLACE: Final = ("group", *QUEUE)


def violations(evidence: Evidence) -> DataFrame:
    """A row for each reading with a commit ahead of its deliveries, and for each step back."""
    if not evidence.screened.noted_kinds.get(COMMIT):
        return evidence.nothing()
    ahead, back = evidence.doubted("ahead"), evidence.doubted("back")
    found = [] if ahead is None else [_ahead(evidence, ahead)]
    if back is not None:
        found.append(_back(evidence, evidence.kept(_said(evidence, back))))
    return together(*found) if found else evidence.nothing()


def _said(evidence: Evidence, of: DataFrame) -> DataFrame:
    """Where the groups of these readings are, by their own word, or were set to."""
    judged = F.col("topic").isin(*evidence.meta.topics)
    told = evidence.noted.where(F.col("kind").isin(COMMIT, GROUP_OFFSET, RESET) & judged)
    return evidence.of_readings(told, of)


def _ahead(evidence: Evidence, doubted: DataFrame) -> DataFrame:
    """The first commit of each reading that says more than what had been delivered."""
    commits = _said(evidence, doubted).where(F.col("kind") == COMMIT)
    commits = evidence.kept(commits.withColumn("reading", evidence.reading))
    begins = commits.groupBy("reading").agg(F.min("offset").alias("committed_first"))
    reads = (
        evidence.first_reads(doubted)
        .join(F.broadcast(begins), "reading")
        .groupBy("reading", "queue_offset", "committed_first")
        .agg(F.min("t").alias("t"))
    )
    ascending = Window.partitionBy("reading").orderBy("queue_offset")
    so_far = ascending.rowsBetween(Window.unboundedPreceding, 0)
    below = F.lag("queue_offset").over(ascending)
    expected = F.coalesce(below + 1, F.least("committed_first", "queue_offset"))
    covered = (
        reads.withColumn("gap", F.col("queue_offset") > expected)
        .withColumn("whole", ~F.max("gap").over(so_far))
        .withColumn("complete_t", F.max("t").over(so_far))
        .select("reading", F.col("queue_offset").alias("last"), "whole", "complete_t")
    )
    first_reads = reads.groupBy("reading").agg(F.min("queue_offset").alias("read_first"))
    early = ~F.coalesce(F.col("whole") & (F.col("complete_t") <= F.col("t")), F.lit(False))
    ahead = (
        commits.withColumn("last", F.col("offset") - 1)
        .join(covered, ["reading", "last"], "left")
        .join(F.broadcast(begins), "reading")
        .join(first_reads, "reading", "left")
        .withColumn("begin", F.least("committed_first", "read_first"))
        .where(early & (F.col("offset") > F.col("begin")))
    )
    earliest = Window.partitionBy("reading").orderBy("t", "offset")
    return violation(
        ahead.withColumn("place", F.row_number().over(earliest))
        .withColumn("others", F.count("*").over(Window.partitionBy("reading")) - 1)
        .where("place = 1")
        .withColumn("queue_offset", F.col("offset")),
        "ahead",
        text(
            "group {group} committed {offset} at {t} ns, when not all from {begin} on had been "
            "delivered to it (and {others} later commits likewise)"
        ),
    )


def _back(evidence: Evidence, said: DataFrame) -> DataFrame:
    """Commits and reads of an offset below an earlier commit's."""
    member = Window.partitionBy("client", "kind", *_PLACE).orderBy("t")
    at_earliest = F.coalesce(F.lag("t").over(member) + 1, F.lit(0))
    statements = _between_resets(evidence, said).withColumn(
        "began", F.coalesce("began", at_earliest)
    )
    commits = statements.where(F.col("kind") == COMMIT)
    # A commit of a member that another has overtaken is answered, and changes nothing.
    whose = F.when(F.col("kind") == COMMIT, F.col("client"))
    asked = statements.select(
        *_PLACE,
        "resets",
        F.col("began").alias("at"),
        "offset",
        "t",
        whose.alias("whose"),
    )
    answered = commits.select(
        *_PLACE,
        "resets",
        F.col("t").alias("at"),
        F.col("offset").alias("known"),
        F.explode(F.array(F.col("client"), F.lit(None))).alias("whose"),
    )
    rows = with_highest(asked, answered, *_PLACE, "resets", "whose")
    fallen = rows.where("highest > offset")
    return violation(
        fallen.withColumn("queue_offset", F.col("offset")),
        "back",
        text(
            "group {group} was at {offset} at {t} ns, though a commit of {highest} had been "
            "answered when that was asked, at {at} ns"
        ),
        severity=1,
    )


def _between_resets(evidence: Evidence, said: DataFrame) -> DataFrame:
    """Commits and reads of offsets, each with how many resets were before; none within one."""
    statements = said.where(F.col("kind") != RESET)
    if not evidence.screened.noted_kinds.get(RESET):
        return statements.withColumn("resets", F.lit(0).cast("long"))
    resets = said.where(F.col("kind") == RESET).select(
        *_PLACE,
        F.coalesce("began", F.lit(0)).alias("reset_began"),
        F.col("t").alias("reset_t"),
    )
    began = F.coalesce("began", "t")
    before = F.col("reset_t") < began
    overlaps = (F.col("reset_t") >= began) & (F.col("reset_began") <= F.col("t"))
    return (
        statements.join(F.broadcast(resets), [*_PLACE], "left")
        .groupBy(*statements.columns)
        .agg(
            F.count_if(before).alias("resets"),
            F.coalesce(F.bool_or(overlaps), F.lit(False)).alias("overlaps"),
        )
        .where("NOT overlaps")
        .drop("overlaps")
    )
