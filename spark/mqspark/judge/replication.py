"""Properties 5 and 13: the replicas' logs, compared entry by entry.

**5**: equal (index, term) means equal chain CRC, anywhere in the logs, since two leaders of one
term can't be; and a committed entry never changes. So in the settled part every index must have one
chain CRC, and every byte must match its CRCs. And a log is in order, in its tail too: its indexes
go up by one, and its terms never fall. Where one begins behind 0 its file `head` says so.

**13**: after healing all replicas are identical, as far as the log is settled. Beyond that, tails
may differ: no client knows of their entries.

One changed entry changes every chain CRC behind it. So a replica that differs gives one violation,
at its first differing entry, with the number of those that follow. Where replicas differ, the
majority is taken to be right; without a majority all are listed.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import Alone, Property, entries, text, together, violation
from mqspark.limits import IDS_NAMED_MAX


def chain_violations(evidence: Evidence) -> DataFrame:
    """Property 5: a row for each damaged range, for each replica's first deviating entry, and for
    each entry that does not follow the one before."""
    heads = [
        (replica.broker, replica.node, replica.damage)
        for replica in evidence.members.replicas
        if replica.damage is not None
    ]
    if evidence.logs is not None and not heads:
        return evidence.nothing()
    damaged = evidence.damage.where(evidence.is_settled()).withColumn(
        "end", F.col("position") + F.col("size")
    )
    deviating = _deviations(evidence).where("deviates AND (same_term OR settled)")
    changed = text("entry {index} of term {term} has chain CRC {chain_crc}, other replicas differ")
    return together(
        violation(
            _with_messages(evidence, damaged),
            "damaged",
            F.concat(text("{error}; messages concerned: "), F.col("messages")),
            message_id=F.col("first_message"),
            positions=[F.col("position"), F.col("end")],
        ),
        violation(
            _with_messages(evidence, _first_of_each(deviating)),
            "changed",
            F.concat(changed, _following(), F.col("messages")),
            severity=1,
            message_id=F.col("first_message"),
            positions=[F.col("position"), F.col("end")],
        ),
        _disordered(evidence),
        violation(
            evidence.session.createDataFrame(heads, "broker string, replica string, error string"),
            "damaged",
            text("{error}"),
        ),
    )


def _disordered(evidence: Evidence) -> DataFrame:
    """Entries whose index or term can't follow that of the one before in their replica's log."""
    in_log = Window.partitionBy("broker", "replica").orderBy("position")
    first = evidence.members_table.select("broker", "replica", "first_index")
    before_first = F.when(F.row_number().over(in_log) == 1, F.col("first_index") - 1)
    rows = (
        evidence.entries.join(F.broadcast(first), ["broker", "replica"])
        .withColumn("index_before", F.coalesce(F.lag("index").over(in_log), before_first))
        .withColumn("term_before", F.coalesce(F.lag("term").over(in_log), F.lit(0)))
        .withColumn("error_before", F.lag("error").over(in_log))
        .where("error IS NULL AND error_before IS NULL")
        .where("index != index_before + 1 OR term < term_before")
    )
    return violation(
        evidence.kept(rows),
        "disordered",
        text("entry {index} of term {term} follows entry {index_before} of term {term_before}"),
        severity=2,
        positions=[F.col("position")],
    )


def equality_violations(evidence: Evidence) -> DataFrame:
    """Property 13: a row for each replica that differs from the others in the settled part."""
    if evidence.logs is not None:
        return evidence.nothing()
    differing = _deviations(evidence).where("(deviates AND unlike OR absent) AND settled")
    what = F.when(F.col("absent"), "incomplete").otherwise("different")
    found = F.when(F.col("absent"), text("lacks entry {index} or can't read it")).otherwise(
        text("entry {index} of term {term} is not the other replicas'")
    )
    return violation(
        _with_messages(evidence, _first_of_each(differing)),
        what,
        F.concat(found, _following(), F.col("messages")),
        message_id=F.col("first_message"),
        positions=[F.col("position"), F.col("end")],
    )


def _deviations(evidence: Evidence) -> DataFrame:
    """A row for each replica and index where it is not as the larger number of replicas is.

    Columns: broker, replica, index, term, position, end, chain_crc, settled; `absent` if the
    replica has no readable entry there, `deviates` if it has another, `same_term` if another
    replica's differs though it has the same term; `unlike` if not all have the same entries there,
    of which a damaged log may have several.
    """
    expected = evidence.disputes.select(
        "broker",
        "index",
        "end",
        F.col("position").alias("at"),
        evidence.is_settled().alias("settled"),
    ).join(F.broadcast(evidence.members_table), "broker")
    readable = evidence.entries.where("error IS NULL AND index IS NOT NULL").select(
        "broker", "replica", "index", "term", "chain_crc", "position"
    )
    rows = expected.join(readable, ["broker", "replica", "index"], "left")
    same = Window.partitionBy("broker", "index", "chain_crc")
    everyone = Window.partitionBy("broker", "index")
    one_term = Window.partitionBy("broker", "index", "term")
    present = F.col("chain_crc").isNotNull()
    votes = F.when(present, F.count("chain_crc").over(same)).otherwise(0)
    rows = rows.withColumn("votes", votes)
    best = F.max("votes").over(everyone)
    rivals = F.size(
        F.collect_set(F.when(F.col("votes") == best, F.col("chain_crc"))).over(everyone)
    )
    disagree = F.size(F.collect_set("chain_crc").over(everyone)) > 1
    own = Window.partitionBy("broker", "replica", "index")
    rows = rows.withColumn("own", F.sort_array(F.collect_set("chain_crc").over(own)))
    deviations = rows.select(
        "broker",
        "replica",
        "index",
        F.coalesce("term", F.max("term").over(everyone)).alias("term"),
        F.coalesce("position", "at").alias("position"),
        "end",
        "chain_crc",
        "settled",
        (~present).alias("absent"),
        (present & disagree & ((F.col("votes") < best) | (rivals > 1))).alias("deviates"),
        (present & (F.size(F.collect_set("chain_crc").over(one_term)) > 1)).alias("same_term"),
        (F.size(F.collect_set("own").over(everyone)) > 1).alias("unlike"),
    )
    return evidence.kept(deviations)


def _first_of_each(rows: DataFrame) -> DataFrame:
    """Each replica's row with the lowest index, the number of others, and the last's end."""
    replica = Window.partitionBy("broker", "replica")
    return (
        rows.withColumn("following", F.count("*").over(replica) - 1)
        .withColumn("end", F.max("end").over(replica))
        .withColumn("place", F.row_number().over(replica.orderBy("index")))
        .where("place = 1")
    )


def _following() -> Column:
    more = F.when(F.col("following") > 0, text(" (and {following} later entries)"))
    return F.concat(F.coalesce(more, F.lit("")), F.lit("; messages concerned: "))


def _with_messages(evidence: Evidence, rows: DataFrame) -> DataFrame:
    """`rows` with the first of the messages between `position` and `end` that replicas dispute."""
    named = evidence.named.select(
        F.col("broker").alias("message_broker"),
        F.col("id").alias("named_id"),
        F.col("position").alias("message_position"),
        "unacked",
    )
    inside = (
        (F.col("broker") == F.col("message_broker"))
        & (F.col("message_position") >= F.col("position"))
        & (F.col("message_position") < F.col("end"))
    )
    keys = rows.columns
    ids = F.transform(
        F.slice(
            F.sort_array(
                F.collect_set(
                    F.when(
                        F.col("named_id").isNotNull(),
                        F.struct("message_position", "unacked", "named_id"),
                    )
                )
            ),
            1,
            IDS_NAMED_MAX,
        ),
        lambda pair: pair["named_id"],
    )
    return (
        rows.join(named, inside, "left")
        .groupBy(*keys)
        .agg(ids.alias("ids"))
        .withColumn("first_message", F.get("ids", F.lit(0)))
        .withColumn(
            "messages",
            F.when(F.size("ids") == 0, "none that can be told").otherwise(
                F.array_join("ids", ", ")
            ),
        )
    )


CHAIN: Final = Property(
    5,
    chain_violations,
    entries,
    Alone(chain_violations),
)


EQUALITY: Final = Property(
    13,
    equality_violations,
    entries,
    Alone(equality_violations, compares=True),
)
