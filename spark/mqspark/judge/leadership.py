"""Properties 6 and 7: who led, who voted for whom, and what a new leader had.

**6**: at most one node leads a broker group in a term, and a node votes for at most one in a term,
over restarts. Leaders are known by their own word, which they give only once they serve; votes, by
what the nodes wrote down. A node that once knew of a term never comes back to an earlier one,
unless the harness took its disk away meanwhile: such a node has forgotten all, and must not vote
for another in a term in which it had voted. So with a vote: a node that has voted in a term never
says of that term that it has not. A candidate votes for itself, so a node that voted for others
alone in a term did not lead in it.

**7**: a new leader holds every entry acknowledged before. A node that says that it leads in a term
has applied its own first entry of that term; so no entry of an earlier term that is not in its log
before that one can ever be acknowledged. Therefore: of what was acknowledged before a leader of
term T was asked, whatever the final log has in term T or earlier stands in that leader's log, that
is, below the end that it tells. A leader that was replaced unawares may lack what later terms
have. What of the final log is missing altogether is for property 1 to say; but the leader's own
first entry was committed when it led, so a log has an entry of its term. Where old segments were
removed the final log begins where all logs reach back to: of which term an entry before that was
nobody knows.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import Property, noted, text, together, violation

LEAD: Final = "lead"
VOTE: Final = "vote"
FAULT: Final = "fault"
#: The faults between which, and after which, a node has forgotten all.
DISK_LOST: Final = ("wipe", "new-disk")


def election_violations(evidence: Evidence) -> DataFrame:
    """Property 6: a row for each term with two leaders, second vote, leader that voted for another,
    and term or vote taken back."""
    if not (evidence.summary.notes.get(LEAD) or evidence.summary.notes.get(VOTE)):
        return evidence.nothing()
    leads = evidence.noted.where(F.col("kind") == LEAD)
    votes = evidence.noted.where(F.col("kind") == VOTE)
    leaders = leads.groupBy("broker", "term").agg(
        F.sort_array(F.collect_set("node")).alias("nodes")
    )
    choices = votes.groupBy("broker", F.col("node").alias("replica"), "term").agg(
        F.sort_array(F.collect_set("vote")).alias("nodes")
    )
    chose = choices.withColumnRenamed("replica", "node")
    unelected = leads.join(chose, ["broker", "node", "term"]).where(
        (F.size("nodes") > 0) & ~F.array_contains("nodes", F.col("node"))
    )
    nodes = F.array_join("nodes", ", ")
    return together(
        violation(
            leaders.where("size(nodes) > 1"),
            "two leaders",
            text("{nodes} all led in term {term}", nodes=nodes),
            replica=nodes,
        ),
        violation(
            choices.where("size(nodes) > 1"),
            "two votes",
            text("it voted for {nodes} in term {term}", nodes=nodes),
        ),
        violation(
            unelected,
            "unelected",
            text("it led in term {term}, and had voted for {nodes} in that", nodes=nodes),
            replica=F.col("node"),
        ),
        violation(
            _forgotten(evidence),
            "forgotten",
            F.when(
                F.col("term") < F.col("known"),
                text("it was in term {term} at {t} ns, and in term {known} before"),
            ).otherwise(
                text("it had no vote in term {term} at {t} ns, and had voted in it before")
            ),
            severity=1,
            replica=F.col("node"),
        ),
    )


def _forgotten(evidence: Evidence) -> DataFrame:
    """Votes and terms that nodes wrote down after later ones, and had their disks all the time."""
    lost = (F.col("kind") == FAULT) & F.col("fault").isin(*DISK_LOST)
    in_time = Window.partitionBy("broker", "node").orderBy("t")
    on_disk = Window.partitionBy("broker", "node", "disk").orderBy("t")
    before = on_disk.rowsBetween(Window.unboundedPreceding, -1)
    voted = F.max(F.when(F.col("vote").isNotNull(), F.col("term"))).over(before)
    remembered = (
        evidence.noted.where((F.col("kind") == VOTE) | lost)
        .withColumn("disk", F.count_if(lost).over(in_time))
        .where(F.col("kind") == VOTE)
        .withColumn("known", F.max("term").over(before))
        .withColumn("voted", voted)
    )
    forgotten = remembered.where("term < known OR vote IS NULL AND term <= voted")
    return forgotten.drop("disk", "voted").distinct()


def completeness_violations(evidence: Evidence) -> DataFrame:
    """Property 7: a row for each leader that lacked something, with the first message of it."""
    if not completeness_checked(evidence):
        return evidence.nothing()
    leads = evidence.noted.where((F.col("kind") == LEAD) & F.col("end_position").isNotNull())
    starts = evidence.term_starts
    begin = starts.groupBy("broker").agg(F.min("start").alias("log_begin"))
    bounds = (
        leads.join(starts, "broker")
        .groupBy("broker", "node", "term", "began", "end_position")
        .agg(F.min(F.when(F.col("log_term") > F.col("term"), F.col("start"))).alias("next_start"))
        .join(begin, "broker")
    )
    lacking = (
        evidence.acks.join(F.broadcast(evidence.kept(bounds)), "broker")
        .where("ack_t < began AND position >= end_position AND position >= log_begin")
        .where("next_start IS NULL OR position < next_start")
        .groupBy("broker", "node", "term", "end_position")
        .agg(
            F.min_by(F.struct("identity", "position", "ack_t"), "position").alias("first"),
            F.count("*").alias("messages"),
        )
        .withColumn("identity", F.col("first.identity"))
    )
    incomplete = violation(
        evidence.with_ids(lacking),
        "incomplete",
        text(
            "led in term {term} with a log that ended at {end_position}: {messages} messages "
            "acknowledged before were not in it, the first at {position}, at {ack_t} ns",
            position=F.col("first.position"),
            ack_t=F.col("first.ack_t"),
        ),
        replica=F.col("node"),
        positions=[F.col("first.position")],
    )
    return together(incomplete, _unlogged(evidence, leads))


def _unlogged(evidence: Evidence, leads: DataFrame) -> DataFrame:
    """Leaders of whose term no log has an entry."""
    if evidence.logs is not None:
        terms = {(name, term) for name, log in evidence.logs.items() for term in log.terms}
    else:
        rows = evidence.entries.where(F.col("index").isNotNull()).select("broker", "term")
        terms = {(row.broker, row.term) for row in rows.distinct().collect()}
    lost = [
        (row.broker, row.node, row.term, row.t)
        for row in leads.collect()
        if row.broker in evidence.whole and (row.broker, row.term) not in terms
    ]
    return violation(
        evidence.session.createDataFrame(lost, "broker string, node string, term long, t long"),
        "unlogged",
        text("led in term {term} at {t} ns, and no log has an entry of that term"),
        replica=F.col("node"),
    )


def completeness_checked(evidence: Evidence) -> int:
    """How many leaders said how far their log went."""
    if not evidence.summary.notes.get(LEAD):
        return 0
    placed = (F.col("kind") == LEAD) & F.col("end_position").isNotNull()
    return evidence.noted.where(placed).count()


ELECTION: Final = Property(
    6,
    election_violations,
    noted(LEAD, VOTE),
    "only a history says who led and who voted for whom",
    explained=("forgotten",),
)


COMPLETENESS: Final = Property(
    7,
    completeness_violations,
    completeness_checked,
    "only a history says who led, and what had been acknowledged by then",
)
