"""Properties that replicas alone can show, without a history of the answers that clients got.

The bytes of each are judged by themselves: records and entries match their checksums, entries
follow each other (2, 5). And the replicas are compared (5, 13), as far as the log is settled. No
client says how far that is. Copies that brokers made of themselves say how far they were committed
(their manifests): below the lowest such position all must be there, and be the same. Beyond it, and
for replicas that are no such copies, settled is what no later leader can have changed as far as
can be seen: up to the shortest replica's end, and not beyond the first entry on which two replicas
are of different terms. A leader may have had that one replaced.

Where the replicas' logs begin at different positions, since old segments were removed from one
sooner than from the other, they are compared from the last of these on.

Each log by itself shows the order of its queues (4): in the order of the log the offsets of a queue
go up by one. They begin anew at 0 behind an entry that deletes their topic, and nowhere else. What
a log's removed head held is not known, so a queue may begin anywhere there; in a whole log, at 0. A
replica with damage in the settled part is not asked: its records are missing where it is damaged.

Property 18, with a history as without: the files that a broker makes from its log (queues, key
index, snapshot) say what the log says (:mod:`mqspark.source.derived`). A difference loses nothing,
for they can be made anew; but whoever reads gets something else, or a query does not find it.

All else needs a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import Alone, Property, text, violation
from mqspark.screening.changes import DELETE_TOPIC

BODIES_ONLY: Final = "only that records match their checksums and say where they stand"
OFFSETS_ONLY: Final = (
    "only that the offsets of each queue go up by one in the log, from 0 on in each life of a topic"
)
ONE_REPLICA: Final = "there is one replica only, and nothing to compare it with"


_DIFFERENCES: Final = (
    "broker string, replica string, file string, topic string, queue_id int, queue_offset long, "
    "last long, error string"
)


def derived_violations(evidence: Evidence) -> DataFrame:
    """A row for each range of a derived file that is unlike its replica's log."""
    rows = [
        (replica.broker, replica.node, *found)
        for replica, (_, differences) in zip(
            evidence.members.replicas, evidence.screened.derived, strict=True
        )
        for found in differences
    ]
    if not rows:
        return evidence.nothing()
    return violation(
        evidence.session.createDataFrame(rows, _DIFFERENCES),
        "derived",
        text("{file}, {queue_offset} to {last}: {error}"),
        severity=1,
    )


def derived_checked(evidence: Evidence) -> int:
    """How many units and snapshots there are."""
    return sum(count for count, _ in evidence.screened.derived)


def record_violations(evidence: Evidence) -> DataFrame:
    """A row for each record that contradicts its own checksum or place."""
    wrong = evidence.records.where(F.col("error").isNotNull() & F.col("topic").isNotNull())
    held = wrong.join(F.broadcast(evidence.members_table), "broker").where(
        F.expr("getbit(holders, bit) = 1")
    )
    return violation(
        held.where(evidence.is_settled()),
        "damaged",
        text("{error}"),
        severity=1,
        message_id=F.col("unique_key"),
        positions=[F.col("position")],
    )


def order_violations(evidence: Evidence, but: Sequence[str] = ()) -> DataFrame:
    """A row for each record whose offset does not follow the one before in its queue, in all topics
    `but` some. Queues begin anew where their topic was deleted."""
    deleted = evidence.session.createDataFrame(
        _deletions(evidence), "broker string, topic string, ends array<bigint>"
    )
    before = F.filter("ends", lambda end: end < F.col("position"))
    rows = (
        evidence.records.where(F.col("error").isNull() & evidence.is_settled())
        .where(~F.col("topic").isin(*but))
        .join(F.broadcast(_whole_logs(evidence)), "broker")
        .where(F.expr("getbit(holders, bit) = 1"))
        .join(F.broadcast(deleted), ["broker", "topic"], "left")
        .withColumn("life", F.coalesce(F.size(before), F.lit(0)))
    )
    return _named(evidence.kept(_out_of_order(rows)))


def _deletions(evidence: Evidence) -> list[tuple[str, str, list[int]]]:
    """Where logs delete topics: broker, topic, positions."""
    found: dict[tuple[str, str], list[int]] = {}
    for broker, act, topic, _, position in evidence.summary.acts:
        if act == DELETE_TOPIC:
            found.setdefault((broker, topic), []).append(position)
    return [(*place, positions) for place, positions in found.items()]


def _out_of_order(rows: DataFrame) -> DataFrame:
    """Rows that do not follow the one before in their queue and life."""
    names = ("replica", "broker", "topic", "queue_id", "life")
    queue = Window.partitionBy(*names).orderBy("position")
    from_start = F.col("from_start") | (F.col("life") > 0)
    return (
        rows.withColumn("offset_before", F.lag("queue_offset").over(queue))
        .withColumn("position_before", F.lag("position").over(queue))
        .withColumn(
            "expected", F.coalesce(F.col("offset_before") + 1, F.when(from_start, F.lit(0)))
        )
        .where("queue_offset != expected")
    )


def _named(wrong: DataFrame) -> DataFrame:
    return violation(
        wrong,
        F.when(F.col("expected") < F.col("queue_offset"), "hole").otherwise("misplaced"),
        F.when(
            F.col("offset_before").isNull(), text("the first of its queue in the log")
        ).otherwise(text("the one before in its queue, at {position_before}, has {offset_before}")),
        message_id=F.col("unique_key"),
        positions=F.array_compact(F.array("position", "position_before")),
    )


def _whole_logs(evidence: Evidence) -> DataFrame:
    """Replicas without settled damage: broker, replica, bit, from_start. One of several that hold
    the same."""
    damaged = {
        (row.broker, row.replica)
        for row in evidence.damage.where(evidence.is_settled())
        .select("broker", "replica")
        .collect()
    }
    differ = {
        name for name in evidence.members.brokers if len({*evidence.members.begins(name)}) > 1
    }
    disputed = differ | {
        row.broker for row in evidence.disputes.select("broker").distinct().collect()
    }
    rows = []
    for name in evidence.members.brokers:
        whole = [
            (name, replica.node, bit, replica.begin == 0)
            for bit, replica in enumerate(evidence.members.of(name))
            if (name, replica.node) not in damaged
        ]
        rows += whole if name in disputed else whole[:1]
    return evidence.session.createDataFrame(
        rows, "broker string, replica string, bit int, from_start boolean"
    )


DERIVED: Final = Property(
    18,
    derived_violations,
    derived_checked,
    Alone(derived_violations, derived_checked),
)
