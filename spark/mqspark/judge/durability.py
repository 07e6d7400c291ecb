"""Property 1: every acknowledged send is in a full drain from offset 0 of every replica.

A drain of a replica returns its queues' messages, as in its files. So for every acknowledgement and
every replica of its broker there must be a readable record with that id, with the body that was
sent, at the very queue, offset and position that the acknowledgement named. What is there instead
is one of four faults, the worst first:

- lost: no record has that id;
- damaged: one has, but it fails its own CRC or contradicts its place;
- altered: its body is whole, but not what was sent, or its keys, tag, flag or the sender's own
  properties are not; or the parts of its body are not;
- moved: it is at another place than was acknowledged.

A message that waits, for its time or for the end of its transaction, must lie at the position that
its acknowledgement named. Properties 10 and 11 judge whether it comes into its topic.

What old segments held is gone with them: a replica is asked from where its log begins.

A message is judged by its own bytes. Property 5 judges the CRC of the entry around it, or one
flipped bit would make a whole batch a violation.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.judge.logs import lacking_parts
from mqspark.judge.violations import Property, counted, text, together, violation
from mqspark.screening.testimony import ACK, SEND, WAITING

_FAULTS: Final = ("lost", "damaged", "altered", "altered", "moved")
_GOOD: Final = len(_FAULTS)
_SLOT: Final = ("topic", "queue_id", "queue_offset", "position")


def violations(evidence: Evidence) -> DataFrame:
    """A row for each acknowledged message and replica that does not hold it as it should."""
    found = [] if evidence.is_agreed else [_of_records(evidence)]
    if (lacking := lacking_parts(evidence)) is not None:
        found.append(
            violation(
                lacking.where("acked"),
                F.col("what"),
                text("acknowledged at offset {queue_offset}, position {position}; {error}"),
                positions=[F.col("position")],
            )
        )
    return together(*found) if found else evidence.nothing()


def _of_records(evidence: Evidence) -> DataFrame:
    held = evidence.holdings.withColumn("waits", F.lit(False)).unionByName(
        _by_position(evidence.held.withColumn("waits", F.lit(True)))
    )
    copies = _expected(evidence).join(
        held.select(
            "id",
            "broker",
            "replica",
            "waits",
            F.lit(True).alias("found"),
            F.struct(*_SLOT, "crc", "properties", "error").alias("held"),
        ),
        ["id", "broker", "replica", "waits"],
        "left",
    )
    best = (
        copies.withColumn("fault", _fault())
        .groupBy("id", "broker", "replica", *_SLOT)
        .agg(F.max_by(F.struct("fault", "held"), "fault").alias("best"))
        .where(F.col("best.fault") < _GOOD)
    )
    return _explained(evidence, best)


def _expected(evidence: Evidence) -> DataFrame:
    """Each acknowledgement once for each replica that must hold its message."""
    said = evidence.suspects
    sent = (
        said.where(F.col("source") == SEND)
        .groupBy("id")
        .agg(F.max("crc").alias("sent_crc"), F.max("properties").alias("sent_properties"))
    )
    acks = said.withColumn("waits", F.lit(False)).where(F.col("source") == ACK)
    waiting = said.withColumn("waits", F.lit(True)).where(F.col("source") == WAITING)
    columns = ("id", "broker", "waits", *_SLOT)
    acks = acks.select(*columns).unionByName(_by_position(waiting).select(*columns)).distinct()
    return (
        acks.join(sent, "id", "left")
        .join(F.broadcast(evidence.members_table), "broker")
        .where("position >= begin")
    )


def _by_position(rows: DataFrame) -> DataFrame:
    """Without the places in queues: these are of a topic that clients don't know."""
    return (
        rows.withColumn("topic", F.lit(None).cast("string"))
        .withColumn("queue_id", F.lit(None).cast("int"))
        .withColumn("queue_offset", F.lit(None).cast("long"))
    )


def _fault() -> Column:
    """The fault of a copy: a place in `_FAULTS`, or `_GOOD`."""
    same_place = reduce(
        lambda left, right: left & right,
        (F.col(f"held.{name}").eqNullSafe(F.col(name)) for name in _SLOT),
    )
    return (
        F.when(F.col("found").isNull(), 0)
        .when(F.col("held.error").isNotNull(), 1)
        .when(F.col("held.crc") != F.col("sent_crc"), 2)
        .when(F.col("held.properties") != F.col("sent_properties"), 3)
        .when(~same_place, 4)
        .otherwise(_GOOD)
    )


def _explained(evidence: Evidence, best: DataFrame) -> DataFrame:
    """The violations, with what is found where the message should be."""
    there = (
        evidence.holdings.unionByName(evidence.held)
        .select("broker", "replica", "position", F.col("id").alias("other"))
        .dropDuplicates(["broker", "replica", "position"])
    )
    damage = evidence.damage.select(
        F.col("broker").alias("at_broker"),
        F.col("replica").alias("at_replica"),
        F.col("position").alias("start"),
        (F.col("position") + F.col("size")).alias("end"),
        F.col("error").alias("damage"),
    )
    inside = (
        (F.col("broker") == F.col("at_broker"))
        & (F.col("replica") == F.col("at_replica"))
        & F.col("position").between(F.col("start"), F.col("end") - 1)
    )
    rows = (
        best.join(there, ["broker", "replica", "position"], "left")
        .join(F.broadcast(damage), inside, "left")
        .groupBy("id", "broker", "replica", *_SLOT, "best")
        .agg(F.min("other").alias("other"), F.min("damage").alias("damage"))
    )
    fault, held = F.col("best.fault"), F.col("best.held")
    return violation(
        rows,
        F.element_at(F.array(*map(F.lit, _FAULTS)), fault + 1),
        _sentence(fault, held),
        severity=fault,
        positions=F.array_distinct(F.array_compact(F.array(F.col("position"), held["position"]))),
    )


def _sentence(fault: Column, held: Column) -> Column:
    """Where the message was acknowledged, and what is there."""
    place = text("acknowledged at offset {queue_offset}, position {position}")
    reason = (
        F.when(
            fault == 0,
            F.when(F.col("other") != F.col("id"), text("; {other} stands there"))
            .when(F.col("damage").isNotNull(), text("; {damage}"))
            .otherwise(F.lit("; no such message in this replica's log")),
        )
        .when(fault == 1, text("; {error}", error=held["error"]))
        .when(fault == 2, F.lit("; the body is not the one that was sent"))
        .when(fault == 3, F.lit("; its keys, tag, properties or flag are not those that were sent"))
        .otherwise(
            text(
                "; it is at {topic}/{queue} offset {offset}, position {position}",
                topic=held["topic"],
                queue=held["queue_id"],
                offset=held["queue_offset"],
                position=held["position"],
            )
        )
    )
    return F.concat(place, reason)


PROPERTY: Final = Property(
    1,
    violations,
    counted("expected_copies"),
    "which sends were acknowledged, only a history says",
)
