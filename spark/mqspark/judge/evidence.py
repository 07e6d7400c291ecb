"""The data for all judges, gathered once and kept.

The two large tables are the digest, one row a message (:mod:`mqspark.judge.testimony`), and the
ledger, one row for each (broker, index) of the logs' entries. Everything else is made from the few
rows of them on which sources disagree; in a good run there are none, and nothing more is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.history import Meta
from mqspark.judge.members import Members
from mqspark.judge.testimony import (
    ACK,
    DELIVER,
    RECORD_COLUMNS,
    STORED,
    digest,
    queue_hash,
    testify,
)
from mqspark.limits import FEW_ROWS_MAX
from mqspark.source.data_source import FORMAT
from mqspark.source.planning import PATH_SEPARATOR
from mqspark.source.schema import ENTRIES, MESSAGES


@dataclass
class Evidence:
    """The evidence of one audit. DataFrames are made when first asked for, and then kept."""

    session: SparkSession
    members: Members
    events: DataFrame
    meta: Meta
    _persisted: list[DataFrame] = field(default_factory=list)

    @cached_property
    def records(self) -> DataFrame:
        """Message records on all replicas; a record that replicas hold alike is one row."""
        source = self._source(MESSAGES).option("columns", RECORD_COLUMNS)
        return source.option("merge", "true").load()

    @cached_property
    def entries(self) -> DataFrame:
        """Log entries of all replicas, CRCs checked."""
        return self.kept(self._source(ENTRIES).load())

    @cached_property
    def testimony(self) -> DataFrame:
        """What each source says about each message (:mod:`mqspark.judge.testimony`)."""
        return testify(self.events, self.records, self.meta.topics)

    @cached_property
    def digest(self) -> DataFrame:
        """One row a message."""
        return self.kept(digest(self.testimony, self.members))

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
        return self.kept(
            stored.join(F.broadcast(self.members_table), "broker")
            .where(F.expr("getbit(holders, bit) = 1"))
            .select("broker", "replica", *names)
        )

    @cached_property
    def members_table(self) -> DataFrame:
        """Broker, replica, bit, everyone: one row a replica."""
        return self.members.table(self.session)

    @cached_property
    def slots(self) -> DataFrame:
        """Which message has which place in a queue: one row for each (slot, message) named.

        Columns: queue (a hash), queue_offset, id, send_t, ack_t (if this slot was acknowledged),
        read_t (if it was delivered), position. Slots that only an unsettled tail names are left
        out.
        """
        told = F.col("ack_t").isNotNull() | F.col("read_t").isNotNull()
        settled = told | self.is_settled(F.col("position_min"))
        agreed = (
            self.digest.where(~F.col("suspect") & F.col("queue").isNotNull())
            .withColumn("broker", self.members.by_number(str))
            .where(settled)
            .select(
                "queue",
                "queue_offset",
                "id",
                "send_t",
                "ack_t",
                "read_t",
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
                F.min(F.when(source == DELIVER, F.col("t"))).alias("read_t"),
                F.min("position").alias("position"),
            )
            .join(self.digest.where("suspect").select("id", "send_t"), "id")
        )
        return agreed.unionByName(disputed)

    @cached_property
    def one_group(self) -> bool:
        """Whether all deliveries are those of one group, as in most runs."""
        spread = self.digest.agg(
            F.min("group_min").alias("least"), F.max("group_max").alias("most")
        )
        row = spread.collect()[0]
        return bool(row.least == row.most)

    @cached_property
    def named(self) -> DataFrame:
        """Messages that replicas do not all hold alike and whole: broker, id, position, unacked."""
        held = self.holdings.withColumn("acked", F.lit(None).cast("long"))
        acked = self.suspects.where(F.col("source") == ACK).withColumn("acked", F.col("position"))
        version = F.struct("topic", "queue_id", "queue_offset", "position", "crc", "error")
        found = F.col("replica").isNotNull()
        members = self.members_table.select(
            "broker", F.bit_count("everyone").alias("members")
        ).distinct()
        return self.kept(
            held.unionByName(
                acked.drop("t", "source", "group", "holders", "definite"), allowMissingColumns=True
            )
            .groupBy("broker", "id")
            .agg(
                F.size(F.collect_set(F.when(found, version))).alias("versions"),
                F.count_distinct("replica").alias("replicas"),
                F.max("error").alias("error"),
                F.coalesce(F.min("acked"), F.min("position")).alias("position"),
                F.min("acked").isNull().alias("unacked"),
            )
            .join(F.broadcast(members), "broker")
            .where("versions != 1 OR replicas < members OR error IS NOT NULL")
            .select("broker", "id", "position", "unacked")
        )

    def testimony_of(self, ids: DataFrame) -> DataFrame:
        """The testimony about the messages with these ids."""
        return self.testimony.join(ids, "id", "left_semi")

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
                F.coalesce(F.bit_or(F.when(good, self.members.replica_bit)), F.lit(0)).alias(
                    "holders"
                ),
                F.min("term").alias("term_min"),
                F.max("term").alias("term_max"),
                F.min(F.when(good, F.col("chain_crc"))).alias("chain_min"),
                F.max(F.when(good, F.col("chain_crc"))).alias("chain_max"),
                F.min("position").alias("position"),
                F.max(F.col("position") + F.col("size")).alias("end"),
            )
        )
        return self.kept(rows)

    @cached_property
    def settled_end(self) -> dict[str, int]:
        """For each broker: the position up to which its log can't change any more.

        Of a message with several copies only the first counts: the others may be in a tail.
        """
        told = (
            self.digest.where("ack_t IS NOT NULL OR read_t IS NOT NULL")
            .groupBy("broker_number")
            .agg(F.max("position_min").alias("end"))
            .collect()
        )
        ends = {
            self.members.brokers[row.broker_number]: row.end + 1
            for row in told
            if row.broker_number is not None and row.end is not None
        }
        return {
            name: max(ends.get(name, 0), self._common_end(name)) for name in self.members.brokers
        }

    def is_settled(self, position: Column | None = None) -> Column:
        """Whether `position` (default: the column of that name) of `broker` is settled."""
        where = F.col("position") if position is None else position
        end = F.lit(None).cast("long")
        for name, value in self.settled_end.items():
            end = F.when(F.col("broker") == name, F.lit(value)).otherwise(end)
        return where < end

    def kept(self, rows: DataFrame) -> DataFrame:
        """`rows`, computed now and kept.

        If there are few rows they become a new table. Spark then plans later steps without
        repeating how the rows were made, and knows at once if there are none. In a good run most
        tables are empty.
        """
        computed = rows.persist(StorageLevel.MEMORY_AND_DISK)
        few = computed.limit(FEW_ROWS_MAX + 1).toArrow()
        if few.num_rows > FEW_ROWS_MAX:
            self._persisted.append(computed)
            return computed
        computed.unpersist()
        return self.session.createDataFrame(few)

    def close(self) -> None:
        """Free the memory of the kept rows."""
        for rows in self._persisted:
            rows.unpersist()

    def _common_end(self, broker: str) -> int:
        """Where the first index is on which not all replicas agree; else the shortest log's end."""
        of_broker = F.col("broker") == broker
        split = self.disputes.where(of_broker).agg(F.min("position").alias("at")).collect()[0].at
        if split is None:
            split = self.ledger.where(of_broker).agg(F.max("end").alias("at")).collect()[0].at
        return int(split or 0)

    def _source(self, level: str) -> DataFrameReader:
        paths = PATH_SEPARATOR.join(replica.directory for replica in self.members.replicas)
        return self.session.read.format(FORMAT).option("path", paths).option("level", level)
