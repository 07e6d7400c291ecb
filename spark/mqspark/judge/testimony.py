"""What all sources say about each message: as single rows, and as one row for each message.

**Testimony** is one long table: everything that a source (a send, an acknowledgement, a failure, a
delivery, a replica's file) says of a message. Replicas that hold an entry byte for byte alike give
one row, with a mask of its holders.

**Digest** is that table with one row a message: counts, and the smallest and largest of every value
on which sources must agree. Where smallest and largest are equal all sources agree. So one shuffle
of fixed-width values is enough for nearly all messages of a good run. The few others are
*suspects*: only their testimony is read again, and judged exactly. A digest misses nothing: any
violation of property 1, 2 or 9 differs in one of its values.

A delayed message, and one of a transaction, is stored twice: where it waits, and in its topic when
its time has come or its transaction was committed. Only the copy in its topic has a place in a
queue, is read, and is counted. An acknowledgement names the position where the message waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.members import Members

SEND, ACK, FAIL, DELIVER, RESOLVE = "send", "ack", "fail", "deliver", "resolve"
SETTLE: Final = "settle"
#: How a member is through with what it popped, if it has given it up.
DEAD: Final = "dead"
STORED: Final = "stored"
#: An acknowledgement of a message that waits, and such a message in a replica's file.
WAITING, HELD = "waiting", "held"
#: A dead letter in a replica's file.
BURIED: Final = "buried"
DEAD_LETTERS: Final = "%DLQ%"
#: Where a message waits for its time, or for the end of its transaction, before its topic has it.
WAITING_TOPICS: Final = (
    "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_HALF_TOPIC",
)
COMMITTED, ROLLED_BACK = 1, 2
#: The columns that name a queue.
QUEUE: Final = ("broker", "topic", "queue_id")
#: Clients' events about one message; the others (leads, faults, ...) are no testimony.
_EVENTS: Final = (SEND, ACK, FAIL, DELIVER, RESOLVE, SETTLE)
#: The columns of a record that the testimony needs.
RECORD_COLUMNS: Final = (
    "broker,holders,position,topic,queue_id,queue_offset,unique_key,content_crc,error,moved"
)


def testify(events: DataFrame, records: DataFrame, topics: Sequence[str]) -> DataFrame:
    """What clients and replicas say about messages of these topics.

    Columns: source, t, id, group, broker, holders, topic, queue_id, queue_offset, position, crc (of
    the body as sent), definite, error, due, transaction, expires, pop_time, how, counted. What the
    broker has moved to wait anew is left out: it repeats what was said before.
    """
    judged = F.col("topic").isNull() | F.col("topic").isin(*topics)
    said = events.where(F.col("kind").isin(*_EVENTS) & judged).select(
        F.when((F.col("kind") == ACK) & F.col("waiting"), WAITING)
        .otherwise(F.col("kind"))
        .alias("source"),
        "t",
        "id",
        "group",
        "broker",
        F.lit(0).cast("long").alias("holders"),
        "topic",
        "queue_id",
        F.col("offset").alias("queue_offset"),
        "position",
        "crc",
        "definite",
        F.lit(None).cast("string").alias("error"),
        "due",
        "transaction",
        "expires",
        "pop_time",
        "how",
        "counted",
    )
    # A record without a unique key was not sent by our producers: it is named by its place.
    unnamed = F.concat(F.lit("no UNIQ_KEY, at "), F.col("position").cast("string"))
    waits, dead = F.col("topic").isin(*WAITING_TOPICS), F.col("topic").startswith(DEAD_LETTERS)
    judged = F.col("topic").isin(*topics) | (waits & ~F.col("moved")) | dead
    stored = records.where(judged).select(
        F.when(waits, HELD).when(dead, BURIED).otherwise(STORED).alias("source"),
        F.lit(None).cast("long").alias("t"),
        F.coalesce("unique_key", unnamed).alias("id"),
        F.lit(None).cast("string").alias("group"),
        "broker",
        "holders",
        "topic",
        "queue_id",
        "queue_offset",
        "position",
        F.col("content_crc").alias("crc"),
        F.lit(None).cast("boolean").alias("definite"),
        "error",
        F.lit(None).cast("long").alias("due"),
        F.lit(None).cast("string").alias("transaction"),
        F.lit(None).cast("long").alias("expires"),
        F.lit(None).cast("long").alias("pop_time"),
        F.lit(None).cast("string").alias("how"),
        F.lit(None).cast("boolean").alias("counted"),
    )
    return said.unionByName(stored)


def digest(testimony: DataFrame, members: Members) -> DataFrame:
    """One row a message: id, who says what of it, the spread of its values, whether it is suspect.

    `send_t`, `ack_t`, `read_t` are the first such event's time; null if there is none. So is
    `waiting_t`, of the acknowledgement of a message that waits; `held_...` is said of it there, and
    `buried_...` of its dead letters. `settled_min` is the first delivery that was done for certain.
    """
    source, good = F.col("source"), F.col("error").isNull()
    sent, acked, delivered = (source == SEND, source == ACK, source == DELIVER)
    stored, held, waiting = (source == STORED) & good, (source == HELD) & good, source == WAITING
    placed = stored | acked | delivered
    slot = F.xxhash64("broker", "topic", "queue_id", "queue_offset")
    crc, position = F.when(good, F.col("crc")), F.when(placed, F.col("position"))
    held_position = F.when(held | waiting, F.col("position"))
    outcome = F.when(F.col("transaction") == "commit", COMMITTED).when(
        F.col("transaction") == "rollback", ROLLED_BACK
    )
    group = F.when(delivered, F.xxhash64("group"))
    rows = testimony.groupBy("id").agg(
        F.min(F.when(sent, F.col("t"))).alias("send_t"),
        F.min(F.when(acked, F.col("t"))).alias("ack_t"),
        F.min(F.when(delivered, F.col("t"))).alias("read_t"),
        F.min(group).alias("group_min"),
        F.max(group).alias("group_max"),
        F.count_if(delivered).alias("deliveries"),
        F.count_if((source == FAIL) & F.col("definite")).alias("refusals"),
        F.count_if(stored).alias("versions"),
        F.count_if(~good).alias("damaged"),
        F.bit_or(F.when(stored, F.col("holders")).otherwise(0)).alias("holders"),
        F.max(F.when(placed | held | waiting, members.broker_number)).alias("broker_number"),
        F.max(F.when(placed, queue_hash())).alias("queue"),
        F.min(F.when(placed, F.col("queue_offset"))).alias("queue_offset"),
        F.min(F.when(placed, slot)).alias("slot_min"),
        F.max(F.when(placed, slot)).alias("slot_max"),
        F.min(position).alias("position_min"),
        F.max(position).alias("position_max"),
        F.min(crc).alias("crc_min"),
        F.max(crc).alias("crc_max"),
        F.min(F.when(waiting, F.col("t"))).alias("waiting_t"),
        F.count_if(held).alias("held_versions"),
        F.bit_or(F.when(held, F.col("holders")).otherwise(0)).alias("held_holders"),
        F.min(held_position).alias("held_position_min"),
        F.max(held_position).alias("held_position_max"),
        F.max("due").alias("due"),
        F.max(F.when(sent, outcome)).alias("outcome"),
        F.max(F.when(source == RESOLVE, outcome)).alias("resolved"),
        F.min(F.when(source == RESOLVE, F.col("t"))).alias("resolved_t"),
        F.max(F.when(delivered, F.col("t"))).alias("read_last_t"),
        F.max(F.when(sent, F.col("expires"))).alias("expires"),
        *_popped(source, good),
    )
    return rows.withColumn("suspect", F.coalesce(_is_suspect(members), F.lit(False)))


def _popped(source: Column, good: Column) -> list[Column]:
    """What the digest has of messages that were popped."""
    settled = (source == SETTLE) & F.col("counted")
    buried = (source == BURIED) & good
    return [
        F.max(F.when(source == DELIVER, F.col("pop_time"))).alias("popped_max"),
        F.min(F.when(settled, F.col("pop_time"))).alias("settled_min"),
        F.min(F.when(settled & (F.col("how") == DEAD), F.col("t"))).alias("dead_t"),
        F.count_if(buried).alias("buried_versions"),
        F.bit_or(F.when(buried, F.col("holders")).otherwise(0)).alias("buried_holders"),
    ]


def queue_hash() -> Column:
    """A queue (of a topic on a broker) as one number: cheap to group and to sort by."""
    return F.xxhash64(*QUEUE)


def _is_suspect(members: Members) -> Column:
    """Whether a message needs a closer look."""
    full = members.by_number(members.full_mask)
    acked, delivered = F.col("ack_t").isNotNull(), F.col("read_t").isNotNull()
    read = (F.col("versions") > 0) | delivered
    return (
        (F.col("send_t").isNull() & (read | acked))
        | (F.col("damaged") > 0)
        | (F.col("slot_min") != F.col("slot_max"))
        | (F.col("position_min") != F.col("position_max"))
        | (F.col("crc_min") != F.col("crc_max"))
        | (F.col("versions") > 1)
        | ((F.col("refusals") > 0) & ~acked & read)
        | ((acked | delivered) & (F.col("holders") != full))
        | (F.col("held_position_min") != F.col("held_position_max"))
        | (F.col("held_versions") > 1)
        | (F.col("waiting_t").isNotNull() & (F.col("held_holders") != full))
    )
