"""The data for all judges, gathered once and kept.

The two large tables are the digest, one row a message (:mod:`mqspark.judge.testimony`), and the
ledger, one row for each (broker, index) of the logs' entries. Everything else is made from the few
rows of them on which sources disagree; in a good run there are none, and nothing more is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.history import Meta
from mqspark.judge.members import Members, case
from mqspark.judge.testimony import (
    ACK,
    DELIVER,
    HELD,
    QUEUE,
    RECORD_COLUMNS,
    STORED,
    digest,
    queue_hash,
    testify,
)
from mqspark.judge.violations import COLUMNS
from mqspark.limits import FEW_ROWS_MAX
from mqspark.source.data_source import FORMAT
from mqspark.source.planning import PATH_SEPARATOR
from mqspark.source.schema import ENTRIES, MESSAGES


@dataclass
class Evidence:
    """The evidence of one audit. DataFrames are made when first asked for, and then kept.

    `brief`: there is so little of it that all testimony is kept, and no file is read twice.
    `alone`: there is no history (:mod:`mqspark.alone`).
    """

    session: SparkSession
    members: Members
    events: DataFrame
    notes: DataFrame
    meta: Meta
    brief: bool = False
    alone: bool = False
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
        testimony = testify(self.events, self.records, self.meta.topics)
        return self.kept(testimony) if self.brief else testimony

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

        Columns: id, broker, replica, topic, queue_id, queue_offset, position, crc, error. Copies
        that wait elsewhere than in their topic are not among them.
        """
        return self.kept(self._copies(STORED))

    @cached_property
    def held(self) -> DataFrame:
        """Suspects that wait, in the replicas' files: a row for each copy on each replica."""
        return self.kept(self._copies(HELD))

    def _copies(self, source: str) -> DataFrame:
        stored = self.suspects.where(F.col("source") == source)
        names = ("id", "topic", "queue_id", "queue_offset", "position", "crc", "error")
        return (
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
    def acks(self) -> DataFrame:
        """Acknowledgements of messages in their queues, the first of each place.

        Columns: id, broker, queue (a hash), queue_offset, position, ack_t. Messages that wait have
        a position and no place in a queue yet.
        """
        agreed = self.digest.where("NOT suspect AND ack_t IS NOT NULL").select(
            "id",
            self.members.by_number(str).alias("broker"),
            "queue",
            "queue_offset",
            F.col("position_min").alias("position"),
            "ack_t",
        )
        disputed = (
            self.suspects.where(F.col("source") == ACK)
            .groupBy("id", "broker", queue_hash().alias("queue"), "queue_offset", "position")
            .agg(F.min("t").alias("ack_t"))
        )
        waiting = self.digest.where(
            "waiting_t IS NOT NULL AND held_position_min IS NOT NULL"
        ).select(
            "id",
            self.members.by_number(str).alias("broker"),
            F.lit(None).cast("long").alias("queue"),
            F.lit(None).cast("long").alias("queue_offset"),
            F.col("held_position_min").alias("position"),
            F.col("waiting_t").alias("ack_t"),
        )
        return agreed.unionByName(disputed).unionByName(waiting)

    @cached_property
    def spread(self) -> Row:
        """The hashes of groups that were given messages, least and most; and the last pop time."""
        groups = F.min("group_min").alias("least"), F.max("group_max").alias("most")
        return self.digest.agg(*groups, F.max("popped_max").alias("popped")).collect()[0]

    @property
    def has_popped(self) -> bool:
        """Whether any group was given messages by POP."""
        return self.spread.popped is not None

    @property
    def one_group(self) -> int | None:
        """The hash of the group whose deliveries are all of them, as in most runs, if it pulls."""
        row = self.spread
        if row.least is None or row.least != row.most or self.has_popped:
            return None
        return int(row.least)

    @cached_property
    def first_reads(self) -> DataFrame:
        """The first delivery of each offset in each reading: reading (a hash), queue_offset, t.

        What members popped is none of it: they are given messages in any order.

        With one group the slots know all of it, and the history need not be read again.
        """
        if self.one_group is not None:
            return self.slots.where(F.col("read_t").isNotNull()).select(
                F.col("queue").alias("reading"), "queue_offset", F.col("read_t").alias("t")
            )
        judged = F.col("topic").isin(*self.meta.topics)
        pulled = (F.col("kind") == DELIVER) & F.col("pop_time").isNull()
        delivered = self.events.where(pulled & judged)
        offsets = delivered.groupBy(
            self.reading.alias("reading"), F.col("offset").alias("queue_offset")
        )
        return offsets.agg(F.min("t").alias("t"))

    @property
    def reading(self) -> Column:
        """What one group read of one queue, as a number, from an event's columns."""
        of_any = F.xxhash64("group", *QUEUE)
        if self.one_group is None:
            return of_any
        return F.when(F.xxhash64("group") == self.one_group, queue_hash()).otherwise(of_any)

    @cached_property
    def noted(self) -> DataFrame:
        """The events that are about no single message."""
        return self.kept(self.notes)

    @cached_property
    def noted_kinds(self) -> dict[str, int]:
        """How many events there are of each of those kinds."""
        return {row.kind: row["count"] for row in self.noted.groupBy("kind").count().collect()}

    def nothing(self) -> DataFrame:
        """No violation: what a judge says at once where there is nothing to judge."""
        return self.session.createDataFrame([], COLUMNS)

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
        bits = self.members_table.select("broker", "replica", "bit")
        rows = (
            self.entries.where(F.col("index").isNotNull() & self._is_common())
            .join(F.broadcast(bits), ["broker", "replica"])
            .groupBy("broker", "index")
            .agg(
                F.coalesce(F.bit_or(F.when(good, F.expr("shiftleft(1L, bit)"))), F.lit(0)).alias(
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
        if self.alone:
            return self._settled_alone()
        read = F.when(F.expr("ack_t IS NOT NULL OR read_t IS NOT NULL"), F.col("position_min"))
        waits = F.when(F.col("waiting_t").isNotNull(), F.col("held_position_min"))
        told = (
            self.digest.groupBy("broker_number")
            .agg(F.max(F.greatest(read, waits)).alias("end"))
            .collect()
        )
        ends = {
            self.members.brokers[row.broker_number]: row.end + 1
            for row in told
            if row.broker_number is not None and row.end is not None
        }
        common = self._common_ends()
        return {name: max(ends.get(name, 0), common.get(name, 0)) for name in self.members.brokers}

    def is_settled(self, position: Column | None = None) -> Column:
        """Whether `position` (default: the column of that name) of `broker` is settled."""
        where = F.col("position") if position is None else position
        end = case([(F.col("broker") == name, F.lit(at)) for name, at in self.settled_end.items()])
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

    def _common_ends(self) -> dict[str, int]:
        """Where each log's first index is on which not all replicas agree; else where it ends."""
        ends = self.ledger.groupBy("broker").agg(F.max("end").alias("at"))
        splits = self.disputes.groupBy("broker").agg(F.min("position").alias("at"))
        of_all = {row.broker: int(row.at) for row in ends.collect()}
        return of_all | {row.broker: int(row.at) for row in splits.collect()}

    @cached_property
    def begins(self) -> dict[str, int]:
        """For each broker: the first position that all of its replicas' logs reach back to."""
        return {
            name: max((replica.segments[:1] or (0,))[0] for replica in self.members.of(name))
            for name in self.members.brokers
        }

    def _is_common(self) -> Column:
        if not self.alone:
            return F.lit(True)
        begins = [(F.col("broker") == name, F.lit(at)) for name, at in self.begins.items()]
        return F.col("position") >= case(begins)

    def _settled_alone(self) -> dict[str, int]:
        """As `mqspark.alone` defines it."""
        whole = self.entries.where("error IS NULL AND index IS NOT NULL")
        ends = (
            whole.groupBy("broker", "replica")
            .agg(F.max(F.col("position") + F.col("size")).alias("end"))
            .collect()
        )
        splits = self.ledger.where("term_min != term_max").groupBy("broker")
        settled = {
            row.broker: row.at for row in splits.agg(F.min("position").alias("at")).collect()
        }
        for row in ends:
            settled[row.broker] = min(row.end, settled.get(row.broker, row.end))
        for name in self.members.brokers:
            told = [replica.manifest for replica in self.members.of(name)]
            committed = min(0 if each is None else each.end_position for each in told)
            settled[name] = max(committed, settled.get(name, 0))
        return settled

    def _source(self, level: str) -> DataFrameReader:
        paths = PATH_SEPARATOR.join(replica.directory for replica in self.members.replicas)
        return self.session.read.format(FORMAT).option("path", paths).option("level", level)
