"""Facts in logs beside the history's messages: about groups, large bodies, other topics' queues."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.screening import tasks
from mqspark.screening.hashing import hashed
from mqspark.screening.large import lacking
from mqspark.screening.logs import are_odd
from mqspark.screening.packets import LOGGED, NONE
from mqspark.screening.testimony import ACK


def unlogged_readings(evidence: Evidence) -> DataFrame | None:
    """The readings, with commits, of which an answer was above all that a log has: group, queue,
    logged. None if there is none."""
    logged, rows = evidence.screened.logged, []
    for row in evidence.screened.doubts:
        place = (int(row["group"]), int(row["queue"]))
        if row["commit_max"] != NONE and row["answer_max"] > logged.get(place, 0):
            rows += [
                (group, number, logged.get(place, 0))
                for group in evidence.screened.readers[place[0]]
                for number in evidence.screened.lives.numbers.get(place[1], [place[1]])
            ]
    if not rows:
        return None
    return evidence.session.createDataFrame(rows, "group string, queue long, logged long")


def settled_in_logs(evidence: Evidence) -> DataFrame:
    """Messages that groups popped, and that are settled by an entry of a log: group, queue,
    queue_offset, pop_time."""
    named = evidence.session.createDataFrame(
        [*evidence.screened.through.items()], "number long, group string"
    )
    rows = evidence.screened.rows(tasks.DONE, LOGGED).withColumnRenamed("group", "number")
    rows = rows.join(F.broadcast(named), "number").drop("number")
    lived = [
        (one, each) for one, every in evidence.screened.lives.numbers.items() for each in every
    ]
    if not lived:
        return rows
    # An entry's life of its topic need not be known: pop times never come again.
    lives = evidence.session.createDataFrame(lived, "queue long, number long")
    every = rows.join(F.broadcast(lives), "queue", "left")
    return every.withColumn("queue", F.coalesce("number", "queue")).drop("number")


def lacking_parts(evidence: Evidence) -> DataFrame | None:
    """Large bodies of which parts are not there, or not theirs; None if there is none.

    Columns: broker, replica, identity, id, topic, queue_id, queue_offset, position, what, error,
    and whether the message was `acked`.
    """
    members = evidence.members
    counts = {name: len(members.of(name)) for name in members.brokers}
    removed = {name: evidence.begins[name] > 0 for name in members.brokers}
    found = lacking(evidence.summary.large, evidence.meta.topics, counts, removed)
    rows = [
        (
            message.broker,
            members.of(message.broker)[max(bit, 0)].node,
            int(hashed(pa.array([str(message.message_id)]))[0]),
            *(message.message_id, message.topic, message.queue_id, message.queue_offset),
            *(message.position, what, detail),
        )
        for message, bit, what, detail in found
    ]
    if not rows:
        return None
    table = evidence.session.createDataFrame(
        rows,
        "broker string, replica string, identity long, id string, topic string, queue_id int, "
        "queue_offset long, position long, what string, error string",
    )
    acked = (
        evidence.testimony_of(table.select("identity").distinct())
        .where(F.col("source") == ACK)
        .select("identity", F.lit(True).alias("acked"))
        .distinct()
    )
    return table.join(acked, "identity", "left").fillna(False, ["acked"])


def are_others_odd(evidence: Evidence) -> bool:
    """Whether the queues of other topics than the history's need a closer look."""
    looks = evidence.summary.others
    if evidence.logs is None:
        return any(look.ends for look in looks)
    return are_odd(looks, {name: not begin for name, begin in evidence.begins.items()})
