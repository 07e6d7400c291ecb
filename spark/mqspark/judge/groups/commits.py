"""Property 8: a group's offset never goes back without a reset, and all below it was delivered.

A commit says "the group goes on at n". Three statements follow.

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
order: the group may be at the lower one afterwards. What overlaps a reset proves nothing. A commit
that does not say when it began began at the earliest after the same member's commit before it,
since a member commits one after the other.

**Nothing is answered that is not stored.** If a commit of n was answered, the log of a replica has
the group go on at n or behind it; or at what another commit said that was under way meanwhile. So
with an answer of n to whoever asked where a group is that commits, and does not pop. Only of
histories that say that all their commits are stored by brokers (`tells`), in logs of which nothing
was removed. A queue whose offset a tool has set is not judged.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.acts.entitled import of_lasting_groups, resets
from mqspark.judge.answers.questions import with_highest
from mqspark.judge.evidence import Evidence
from mqspark.judge.logs import unlogged_readings
from mqspark.judge.violations import Property, noted, text, together, violation
from mqspark.screening.tasks import COMMIT, GROUP_OFFSET, RESET
from mqspark.screening.testimony import QUEUE

_PLACE: Final = ("group", *QUEUE)


def violations(evidence: Evidence) -> DataFrame:
    """A row for each reading with a commit ahead of its deliveries, and for each step back."""
    if not evidence.summary.notes.get(COMMIT):
        return evidence.nothing()
    ahead, back = evidence.doubted("ahead"), evidence.doubted("back")
    found = [] if ahead is None else [_ahead(evidence, ahead)]
    if back is not None:
        found.append(_back(evidence, evidence.kept(_said(evidence, back))))
    if is_logged(evidence) and (unlogged := unlogged_readings(evidence)) is not None:
        found.append(_unlogged(evidence, unlogged))
    return together(*found) if found else evidence.nothing()


def _said(evidence: Evidence, of: DataFrame) -> DataFrame:
    """Where the groups of these readings are, by their own word, or were set to."""
    judged = F.col("topic").isin(*evidence.topics)
    said = evidence.noted.where(F.col("kind").isin(COMMIT, GROUP_OFFSET, RESET) & judged)
    return of_lasting_groups(evidence, evidence.of_readings(said, of))


def _ahead(evidence: Evidence, doubted: DataFrame) -> DataFrame:
    """The first commit of each reading that says more than what had been delivered."""
    commits = _said(evidence, doubted).where(F.col("kind") == COMMIT)
    commits = evidence.kept(commits.withColumn("reading", evidence.reading))
    begins = commits.groupBy("reading").agg(F.min("offset").alias("committed_first"))
    delivered = evidence.first_reads(doubted)
    if evidence.is_trimmed:
        begins, delivered = _not_removed(evidence, commits, begins, delivered)
    delivered, begins = _with_set(evidence, commits, delivered, begins)
    reads = (
        delivered.join(F.broadcast(begins), "reading")
        .groupBy("reading", "queue_offset", "committed_first")
        .agg(F.min("t").alias("t"), F.bool_or("set").alias("set"))
    )
    ascending = Window.partitionBy("reading").orderBy("queue_offset")
    so_far = ascending.rowsBetween(Window.unboundedPreceding, 0)
    below = F.lag("queue_offset").over(ascending)
    expected = F.coalesce(below + 1, F.least("committed_first", "queue_offset"))
    covered = (
        reads.withColumn("gap", (F.col("queue_offset") > expected) & ~F.col("set"))
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
    return violation(
        _first_of(ahead, "reading"),
        "ahead",
        text(
            "group {group} committed {offset} at {t} ns, when not all from {begin} on had been "
            "delivered to it (and {others} later commits too)"
        ),
    )


def _first_of(rows: DataFrame, *names: str) -> DataFrame:
    """The first row of each group, as `queue_offset`, and how many `others` there are."""
    group = Window.partitionBy(*names)
    return (
        rows.withColumn("place", F.row_number().over(group.orderBy("t", "offset")))
        .withColumn("others", F.count("*").over(group) - 1)
        .where("place = 1")
        .withColumn("queue_offset", F.col("offset"))
    )


def _with_set(
    evidence: Evidence, commits: DataFrame, delivered: DataFrame, begins: DataFrame
) -> tuple[DataFrame, DataFrame]:
    """Delivered messages, and where readings begin: by what was before the first reset, if anything
    was. Messages before the offset to which a tool has `set` a group count as if they had been
    delivered when the tool began."""
    set_to, rows = resets(evidence), delivered.withColumn("set", F.lit(False))
    if set_to is None:
        return rows, begins
    set_to = set_to.withColumn("reading", evidence.reading)
    first = set_to.groupBy("reading").agg(F.min("reset_began").alias("first"))
    said = rows.select("reading", "t", F.col("queue_offset").alias("at")).unionByName(
        commits.select("reading", "t", F.col("offset").alias("at"))
    )
    earlier = said.join(F.broadcast(first), "reading").where("t < first")
    own = evidence.kept(earlier.groupBy("reading").agg(F.min("at").alias("own")))
    before = set_to.where("to > 0").select(
        "reading",
        (F.col("to") - 1).alias("queue_offset"),
        F.col("reset_began").alias("t"),
        F.lit(True).alias("set"),
    )
    every = rows.select("reading", "queue_offset", "t", "set").unionByName(before)
    begun = F.greatest("committed_first", "own").alias("committed_first")
    return (
        every.join(F.broadcast(own), "reading", "left")
        .where("own IS NULL OR queue_offset >= own")
        .drop("own"),
        begins.join(F.broadcast(own), "reading", "left").select("reading", begun),
    )


def _not_removed(
    evidence: Evidence, commits: DataFrame, begins: DataFrame, delivered: DataFrame
) -> tuple[DataFrame, DataFrame]:
    """Where readings begin, and what was delivered, without what may have been removed before the
    group came to it."""
    queues = commits.select("reading", "queue").distinct()
    kept_from = evidence.kept(
        queues.join(F.broadcast(evidence.kept_from), "queue").select("reading", "kept_from")
    )
    first = F.greatest("committed_first", "kept_from").alias("committed_first")
    return (
        begins.join(F.broadcast(kept_from), "reading").select("reading", first),
        delivered.join(F.broadcast(kept_from), "reading").where("queue_offset >= kept_from"),
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
    fallen = _unexcused(evidence.kept(rows.where("highest > offset")), commits)
    return violation(
        fallen.withColumn("queue_offset", F.col("offset")),
        "back",
        text(
            "group {group} was at {offset} at {t} ns, though a commit of {highest} had been "
            "answered when that was asked, at {at} ns"
        ),
        severity=1,
    )


def _unexcused(fallen: DataFrame, commits: DataFrame) -> DataFrame:
    """The falls without those that a lower commit explains: it was under way at the same time as
    the higher one, and may have been applied last."""
    names = [*_PLACE, "resets"]
    higher, lower = _renamed(commits, "of", *names), _renamed(commits, "by", *names)
    rows = fallen.withColumn("fall", F.monotonically_increasing_id())
    above = (
        rows.where("whose IS NULL").join(higher, names).where("of_t < at AND of_offset > offset")
    )
    concurrent = F.expr(
        "by_offset <= offset AND by_t >= of_began AND by_began <= of_t "
        "AND NOT by_client <=> of_client"
    )
    excused = (
        above.join(lower, names, "left")
        .groupBy("fall", "of_client", "of_began", "of_t", "of_offset")
        .agg(F.bool_or(F.coalesce(concurrent, F.lit(False))).alias("excused"))
        .groupBy("fall")
        .agg(F.max(F.when(~F.col("excused"), F.col("of_offset"))).alias("proven"))
    )
    return (
        rows.join(excused, "fall", "left")
        .where("whose IS NOT NULL OR proven IS NOT NULL")
        .withColumn("highest", F.coalesce("proven", "highest"))
        .drop("fall", "proven")
    )


def _renamed(commits: DataFrame, prefix: str, *names: str) -> DataFrame:
    """Commits beside others, by what they have in common, with their own columns renamed."""
    own = ("client", "began", "t", "offset")
    return commits.select(*names, *(F.col(name).alias(f"{prefix}_{name}") for name in own))


def is_logged(evidence: Evidence) -> bool:
    """Whether all commits of the history must be in logs, and any has all that it ever had."""
    return COMMIT in evidence.meta.tells and bool(evidence.whole)


def _unlogged(evidence: Evidence, unlogged: DataFrame) -> DataFrame:
    """The first answer of each reading that is above all that any log has."""
    said = evidence.kept(_said(evidence, unlogged))
    of = unlogged.withColumnsRenamed({"group": "of_group", "queue": "of_queue"})
    same_group = F.col("group").eqNullSafe(F.col("of_group"))
    resets = said.where(F.col("kind") == RESET).select(*_PLACE).distinct()
    answered = (
        said.where(F.col("kind").isin(COMMIT, GROUP_OFFSET))
        .where(F.col("broker").isin(*evidence.whole))
        .join(F.broadcast(resets), list(_PLACE), "left_anti")
        .join(F.broadcast(of), (F.col("queue") == F.col("of_queue")) & same_group)
        .withColumn("began", F.coalesce("began", F.lit(0)))
    )
    is_commit = F.col("kind") == COMMIT
    commits = evidence.kept(answered.where(is_commit))
    asked = answered.where(~is_commit).join(
        F.broadcast(commits.select(*_PLACE).distinct()), list(_PLACE), "left_semi"
    )
    lower = _renamed(commits, "by", *_PLACE).where("by_offset <= logged")
    every = commits.unionByName(_not_popped(evidence, asked))
    above = evidence.kept(every.where("offset > logged"))
    concurrent = is_commit & F.expr("by_t >= began AND by_began <= t AND NOT by_client <=> client")
    names = (*_PLACE, "kind", "client", "began", "t", "offset", "logged")
    alone = (
        above.join(lower, list(_PLACE), "left")
        .groupBy(*names)
        .agg(F.bool_or(F.coalesce(concurrent, F.lit(False))).alias("excused"))
        .where("NOT excused")
    )
    return violation(
        _first_of(alone, *_PLACE),
        "unlogged",
        text(
            "it was answered at {t} ns that group {group} goes on at {offset}, and no log has it "
            "go on behind {logged} (and {others} other answers too)"
        ),
        severity=1,
    )


def _not_popped(evidence: Evidence, asked: DataFrame) -> DataFrame:
    """Without the queues that a group pops: there its offset follows from acknowledgements."""
    if not evidence.summary.popped:
        return asked
    popped = evidence.testimony.where(F.col("pop_time").isNotNull()).select("group", *QUEUE)
    return asked.join(F.broadcast(popped.distinct()), list(_PLACE), "left_anti")


def _between_resets(evidence: Evidence, said: DataFrame) -> DataFrame:
    """Commits and reads of offsets, each with how many resets were before; none within one."""
    statements = said.where(F.col("kind") != RESET)
    if not evidence.summary.notes.get(RESET):
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


PROPERTY: Final = Property(
    8,
    violations,
    noted(COMMIT),
    "only a history says what was delivered when an offset was committed",
    explained=("ahead", "back", "unlogged"),
)
