"""All that judges may look at, gathered in one pass over the history and the replicas.

**Testimony** is one long table: everything that a source (a send, an acknowledgement, a failure, a
delivery, a replica's file) says of a message. Replicas that hold an entry byte for byte alike
speak with one voice: one row, with a mask of its holders. **Digest** is that table with one row a
message: counts, and the smallest and largest of every value on which sources must agree. Where
smallest and largest are equal all sources agree, so nearly all messages of a good run are done with
there, by one shuffle of fixed-width values. The few others are *suspects*: only for them is the
testimony read again, and judged exactly. A digest never acquits wrongly: whatever could be a
violation of property 1, 2 or 9 differs in one of its values.

**Ledger** has one row for each (broker, index) of the logs' entries, digested in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.pandas.types import to_arrow_schema

from dledger.errors import ConfigError
from spark.history import Meta
from spark.planning import PATH_SEPARATOR, Replica
from spark.schema import ENTRIES, MESSAGES
from spark.source import FORMAT

SEND, ACK, FAIL, DELIVER, STORED = "send", "ack", "fail", "deliver", "stored"
#: Clients' events about one message; the others (leads, faults, ...) are no testimony.
_EVENTS: Final = (SEND, ACK, FAIL, DELIVER)
_RECORD_COLUMNS: Final = (
    "broker,holders,position,size,topic,queue_id,queue_offset,unique_key,content_crc,error"
)
REPLICAS_MAX: Final = 62
"""Replicas of one broker are bits of a signed 64-bit mask."""


@dataclass
class Evidence:
    """The evidence of one audit. DataFrames are made when first asked for, and then kept."""

    session: SparkSession
    replicas: list[Replica]
    events: DataFrame
    meta: Meta
    _persisted: list[DataFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        for broker in self.brokers:
            count = len(self.members(broker))
            if count > REPLICAS_MAX:
                raise ConfigError(
                    f"{broker} has {count} replicas: at most {REPLICAS_MAX} can be judged"
                )

    @property
    def brokers(self) -> list[str]:
        """The broker names, in order: their places are the broker numbers in the digest."""
        return sorted({replica.broker for replica in self.replicas})

    def members(self, broker: str) -> list[Replica]:
        """The broker's replicas, by node id: their places are the bits in masks."""
        return [replica for replica in self.replicas if replica.broker == broker]

    def bit(self, replica: Replica) -> int:
        """The replica's bit in masks."""
        return 1 << self.members(replica.broker).index(replica)

    def full_mask(self, broker: str) -> int:
        """The bits of all replicas of a broker."""
        return (1 << len(self.members(broker))) - 1

    @cached_property
    def records(self) -> DataFrame:
        """Message records of the judged topics on all replicas, and damaged bytes (no topic)."""
        source = self._source(MESSAGES).option("columns", _RECORD_COLUMNS)
        rows = source.option("merge", "true").load()
        return rows.where(F.col("topic").isNull() | F.col("topic").isin(*self.meta.topics))

    @cached_property
    def entries(self) -> DataFrame:
        """Log entries of all replicas, CRCs checked."""
        return self._keep(self._source(ENTRIES).load())

    @cached_property
    def testimony(self) -> DataFrame:
        """What every source says of every message.

        Columns: source, t, client, id, broker, holders, topic, queue_id, queue_offset, position,
        crc (of the body as sent), definite, error.
        """
        judged = F.col("topic").isNull() | F.col("topic").isin(*self.meta.topics)
        said = self.events.where(F.col("kind").isin(*_EVENTS) & judged).select(
            F.col("kind").alias("source"),
            "t",
            "client",
            "id",
            "broker",
            F.lit(0).cast("long").alias("holders"),
            "topic",
            "queue_id",
            F.col("offset").alias("queue_offset"),
            "position",
            "crc",
            "definite",
            F.lit(None).cast("string").alias("error"),
        )
        # A record without a unique key was sent by no producer of ours: its place names it.
        unnamed = F.concat(F.lit("no UNIQ_KEY, at "), F.col("position").cast("string"))
        stored = self.records.where(F.col("topic").isNotNull()).select(
            F.lit(STORED).alias("source"),
            F.lit(None).cast("long").alias("t"),
            F.lit(None).cast("string").alias("client"),
            F.coalesce("unique_key", unnamed).alias("id"),
            "broker",
            "holders",
            "topic",
            "queue_id",
            "queue_offset",
            "position",
            F.col("content_crc").alias("crc"),
            F.lit(None).cast("boolean").alias("definite"),
            "error",
        )
        return said.unionByName(stored)

    @cached_property
    def digest(self) -> DataFrame:
        """One row a message: id, how often each source names it, and the spread of its values."""
        source, good = F.col("source"), F.col("error").isNull()
        stored = (source == STORED) & good
        placed = stored | source.isin(ACK, DELIVER)
        slot = F.xxhash64("broker", "topic", "queue_id", "queue_offset")
        crc = F.when(good, F.col("crc"))
        position = F.when(good, F.col("position"))
        rows = self.testimony.groupBy("id").agg(
            F.count_if(source == SEND).alias("sends"),
            F.min(F.when(source == SEND, F.col("t"))).alias("send_t"),
            F.count_if(source == ACK).alias("acks"),
            F.min(F.when(source == ACK, F.col("t"))).alias("ack_t"),
            F.count_if((source == FAIL) & F.col("definite")).alias("refusals"),
            F.count_if(source == DELIVER).alias("deliveries"),
            F.count_if(stored).alias("versions"),
            F.count_if(~good).alias("damaged"),
            F.bit_or(F.when(stored, F.col("holders")).otherwise(0)).alias("holders"),
            F.max(F.when(placed, self._broker_number)).alias("broker_number"),
            F.max(F.when(placed, queue_hash())).alias("queue"),
            F.min(F.when(placed, F.col("queue_offset"))).alias("queue_offset"),
            F.min(F.when(placed, slot)).alias("slot_min"),
            F.max(F.when(placed, slot)).alias("slot_max"),
            F.min(position).alias("position_min"),
            F.max(position).alias("position_max"),
            F.min(crc).alias("crc_min"),
            F.max(crc).alias("crc_max"),
        )
        return self._keep(rows.withColumn("suspect", self._is_suspect()))

    @cached_property
    def suspects(self) -> DataFrame:
        """The testimony of the messages on which the sources do not simply agree."""
        ids = self.kept(self.digest.where("suspect").select("id"))
        return self.kept(self.testimony_of(ids))

    @cached_property
    def holdings(self) -> DataFrame:
        """Suspects in the replicas' files: a row for each copy on each replica.

        Columns: id, broker, replica, topic, queue_id, queue_offset, position, crc, error.
        """
        stored = self.suspects.where(F.col("source") == STORED)
        names = ("id", "topic", "queue_id", "queue_offset", "position", "crc", "error")
        return (
            stored.join(F.broadcast(self.members_table), "broker")
            .where(F.expr("getbit(holders, bit) = 1"))
            .select("broker", "replica", *names)
        )

    @cached_property
    def members_table(self) -> DataFrame:
        """Broker, replica, bit, everyone (the mask of all the broker's): one row a replica."""
        rows = {
            "broker": [replica.broker for replica in self.replicas],
            "replica": [replica.node for replica in self.replicas],
            "bit": [self.members(replica.broker).index(replica) for replica in self.replicas],
            "everyone": [self.full_mask(replica.broker) for replica in self.replicas],
        }
        return self.session.createDataFrame(pa.table(rows))

    @cached_property
    def slots(self) -> DataFrame:
        """Which message has which place in a queue: one row for each (slot, message) named.

        Columns: queue (a hash), queue_offset, id, send_t, ack_t (if this slot was acknowledged),
        position. What only an unsettled tail says is left out.
        """
        settled = (F.col("acks") + F.col("deliveries") > 0) | self.is_settled(F.col("position_min"))
        agreed = (
            self.digest.where(~F.col("suspect") & F.col("queue").isNotNull())
            .withColumn("broker", self.of_broker(str))
            .where(settled)
            .select(
                "queue",
                "queue_offset",
                "id",
                "send_t",
                "ack_t",
                F.col("position_min").alias("position"),
            )
        )
        source = F.col("source")
        read = (source == STORED) & F.col("error").isNull() & self.is_settled()
        disputed = (
            self.suspects.where(source.isin(ACK, DELIVER) | read)
            .groupBy(queue_hash().alias("queue"), "queue_offset", "id")
            .agg(
                F.min(F.when(source == ACK, F.col("t"))).alias("ack_t"),
                F.min("position").alias("position"),
            )
            .join(self.digest.where("suspect").select("id", "send_t"), "id")
        )
        return self._keep(agreed.unionByName(disputed))

    @cached_property
    def named(self) -> DataFrame:
        """Messages that replicas do not all hold alike and whole: broker, id, position."""
        held = self.holdings.withColumn("acked", F.lit(None).cast("long"))
        acked = self.suspects.where(F.col("source") == ACK).withColumn("acked", F.col("position"))
        version = F.struct("topic", "queue_id", "queue_offset", "position", "crc", "error")
        found = F.col("replica").isNotNull()
        members = self.members_table.select(
            "broker", F.bit_count("everyone").alias("members")
        ).distinct()
        return (
            held.unionByName(
                acked.drop("t", "client", "source", "holders", "definite"), allowMissingColumns=True
            )
            .groupBy("broker", "id")
            .agg(
                F.size(F.collect_set(F.when(found, version))).alias("versions"),
                F.count_distinct("replica").alias("replicas"),
                F.max("error").alias("error"),
                F.coalesce(F.min("acked"), F.min("position")).alias("position"),
            )
            .join(F.broadcast(members), "broker")
            .where("versions != 1 OR replicas < members OR error IS NOT NULL")
            .select("broker", "id", "position")
        )

    def testimony_of(self, ids: DataFrame) -> DataFrame:
        """All that is said of the messages whose ids these are."""
        return self.testimony.join(F.broadcast(ids), "id", "left_semi")

    @cached_property
    def damage(self) -> DataFrame:
        """Ranges of bytes that are wrong: broker, replica, index, position, size, error."""
        return self.kept(self.entries.where(F.col("error").isNotNull()))

    @cached_property
    def disputes(self) -> DataFrame:
        """The ledger's rows on which not all replicas agree."""
        differs = (F.col("chain_min") != F.col("chain_max")) | (
            F.col("holders") != F.col("everyone")
        )
        everyone = self.members_table.select("broker", "everyone").distinct()
        return self.kept(self.ledger.join(F.broadcast(everyone), "broker").where(differs))

    @cached_property
    def ledger(self) -> DataFrame:
        """One row for each index of a broker's log: who holds it, and the spread of its values."""
        good = F.col("error").isNull()
        rows = (
            self.entries.where(F.col("index").isNotNull())
            .groupBy("broker", "index")
            .agg(
                F.coalesce(F.bit_or(F.when(good, self._bit_column)), F.lit(0)).alias("holders"),
                F.min("term").alias("term_min"),
                F.max("term").alias("term_max"),
                F.min(F.when(good, F.col("chain_crc"))).alias("chain_min"),
                F.max(F.when(good, F.col("chain_crc"))).alias("chain_max"),
                F.min("position").alias("position"),
                F.max(F.col("position") + F.col("size")).alias("end"),
            )
        )
        return self._keep(rows)

    @cached_property
    def settled_end(self) -> dict[str, int]:
        """For each broker: the position up to which its log can't change any more.

        Of a message with several copies only the first counts: the others may be in a tail.
        """
        told = (
            self.digest.where("acks + deliveries > 0")
            .groupBy("broker_number")
            .agg(F.max("position_min").alias("end"))
            .collect()
        )
        ends = {
            self.brokers[row.broker_number]: row.end + 1
            for row in told
            if row.broker_number is not None and row.end is not None
        }
        return {name: max(ends.get(name, 0), self._common_end(name)) for name in self.brokers}

    def is_settled(self, position: Column | None = None) -> Column:
        """Whether `position` (default: the column of that name) of `broker` is settled."""
        where = F.col("position") if position is None else position
        end = F.lit(None).cast("long")
        for name, value in self.settled_end.items():
            end = F.when(F.col("broker") == name, F.lit(value)).otherwise(end)
        return where < end

    def of_broker(self, value: Callable[[str], str | int]) -> Column:
        """What `value` gives for the name of a digest's broker."""
        column = F.lit(None)
        for number, name in enumerate(self.brokers):
            column = F.when(F.col("broker_number") == number, F.lit(value(name))).otherwise(column)
        return column

    def kept(self, rows: DataFrame) -> DataFrame:
        """`rows`, computed now and kept.

        If there are none it is a relation that Spark knows to be empty: then whatever is built
        on it is known to be empty too, and costs nothing. In a good run most things are.
        """
        if self._keep(rows).isEmpty():
            return self.session.createDataFrame(to_arrow_schema(rows.schema).empty_table())
        return rows

    def close(self) -> None:
        """Give the kept rows' memory back."""
        for rows in self._persisted:
            rows.unpersist()

    def _common_end(self, broker: str) -> int:
        """Where the first index is on which not all replicas agree; else the shortest log's end."""
        of_broker = F.col("broker") == broker
        split = self.disputes.where(of_broker).agg(F.min("position").alias("at")).collect()[0].at
        if split is None:
            split = self.ledger.where(of_broker).agg(F.max("end").alias("at")).collect()[0].at
        return int(split or 0)

    def _is_suspect(self) -> Column:
        """Whether anything said of a message needs a closer look."""
        full = self.of_broker(self.full_mask)
        read = F.col("versions") + F.col("deliveries") > 0
        return (
            ((F.col("sends") == 0) & (read | (F.col("acks") > 0)))
            | (F.col("damaged") > 0)
            | (F.col("slot_min") != F.col("slot_max"))
            | (F.col("position_min") != F.col("position_max"))
            | (F.col("crc_min") != F.col("crc_max"))
            | (F.col("versions") > 1)
            | ((F.col("refusals") > 0) & (F.col("acks") == 0) & read)
            | ((F.col("acks") + F.col("deliveries") > 0) & (F.col("holders") != full))
        )

    @property
    def _bit_column(self) -> Column:
        """The bit of the replica that a row is from."""
        value = F.lit(0).cast("long")
        for replica in self.replicas:
            same = (F.col("broker") == replica.broker) & (F.col("replica") == replica.node)
            value = F.when(same, F.lit(self.bit(replica)).cast("long")).otherwise(value)
        return value

    @property
    def _broker_number(self) -> Column:
        value = F.lit(-1)
        for number, name in enumerate(self.brokers):
            value = F.when(F.col("broker") == name, F.lit(number)).otherwise(value)
        return value

    def _source(self, level: str) -> DataFrameReader:
        paths = PATH_SEPARATOR.join(replica.directory for replica in self.replicas)
        return self.session.read.format(FORMAT).option("path", paths).option("level", level)

    def _keep(self, rows: DataFrame) -> DataFrame:
        self._persisted.append(rows)
        return rows.persist(StorageLevel.MEMORY_AND_DISK)


def queue_hash() -> Column:
    """A queue (of a topic on a broker) as one number: cheap to group and to sort by."""
    return F.xxhash64("broker", "topic", "queue_id")
