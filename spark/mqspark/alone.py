"""What replicas alone can show, without a history of what clients were told.

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
go up by one. They may begin anew at 0, since a topic may have been deleted and made again. What a
log's removed head held is not known, so a queue may begin anywhere there; in a whole log, at 0. A
replica with damage in the settled part is not asked: its records are missing where it is damaged.

All else needs a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import text, violation

BODIES_ONLY: Final = "only that records match their checksums and say where they stand"
OFFSETS_ONLY: Final = (
    "only that the offsets of each queue go up by one in the log, or begin anew at 0"
)
NEEDS_HISTORY: Final = {
    1: "which sends were acknowledged, only a history says",
    3: "which message had a place before, only a history says",
    6: "who led and who voted for whom, only a history says",
    7: "who led, and what had been acknowledged by then, only a history says",
    8: "what was delivered when an offset was committed, only a history says",
    9: "whether a key was sent again on purpose, only a history says",
    10: "how a transaction was to end, only a history says",
    11: "when messages were due and came, only a history says",
    12: "what brokers answered, only a history says",
    14: "which group passed which inputs, only a history says",
    15: "who was given what, and was through with it, only a history says",
    16: "who was given what, and when, only a history says",
    17: "what tools were told, only a history says",
}
ONE_REPLICA: Final = "there is one replica only, and nothing to compare it with"


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
    `but` some."""
    whole = _whole_logs(evidence)
    queue = Window.partitionBy("replica", "broker", "topic", "queue_id").orderBy("position")
    rows = (
        evidence.records.where(F.col("error").isNull() & evidence.is_settled())
        .where(~F.col("topic").isin(*but))
        .join(F.broadcast(whole), "broker")
        .where(F.expr("getbit(holders, bit) = 1"))
        .withColumn("offset_before", F.lag("queue_offset").over(queue))
        .withColumn("position_before", F.lag("position").over(queue))
    )
    expected = F.when(F.col("offset_before").isNull(), F.when(F.col("from_start"), 0)).otherwise(
        F.col("offset_before") + 1
    )
    wrong = rows.where((F.col("queue_offset") != 0) & (F.col("queue_offset") != expected))
    return violation(
        wrong,
        F.when(expected < F.col("queue_offset"), "hole").otherwise("misplaced"),
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
