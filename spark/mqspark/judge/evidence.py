"""The data for all judges, gathered once and kept.

The logs by themselves are in :mod:`mqspark.judge.ledger`. Of messages, queues and groups a large
table comes first: what the screening found (:mod:`mqspark.screening`). All else is made from the
few rows of it on which sources disagree; in a good run there are none, and nothing more is read.
Messages have numbers there; who is named in a violation is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.pandas.types import from_arrow_schema

from mqspark.history.files import Meta
from mqspark.judge import COLUMNS
from mqspark.judge.ledger import LogEvidence
from mqspark.judge.lives import LivesOf
from mqspark.screening import tasks
from mqspark.screening.packets import SLOT, SUSPECT, WAITER, Rows
from mqspark.screening.queues import doubtful_queues
from mqspark.screening.testimony import (
    ACK,
    DELIVER,
    HELD,
    RECORD_COLUMNS,
    SEND,
    STORED,
    TESTIMONY,
    WAITING,
)
from mqspark.source.schema import MESSAGES


@dataclass
class Evidence(LogEvidence):
    """The evidence of one audit.

    `brief`: there is so little of it that all testimony is kept, and no file is read twice.
    """

    meta: Meta
    brief: bool = field(default=False, kw_only=True)

    @cached_property
    def records(self) -> DataFrame:
        """Message records on all replicas; a record that replicas hold alike is one row."""
        return self.screened.of_segments(MESSAGES, RECORD_COLUMNS, merge=True)

    @property
    def is_agreed(self) -> bool:
        """Whether there is no message on which the sources do not simply agree."""
        return not self.screened.totals["suspects"]

    @cached_property
    def testimony(self) -> DataFrame:
        """The statements of each source about each message (:mod:`mqspark.screening.testimony`)."""
        testimony = self.screened.testimony
        if self.brief:
            testimony = self.kept(testimony)
        if self.lives is None:
            return testimony
        lived = self.lives.of_testimony(testimony, self.kept)
        return self.kept(lived) if self.brief else lived

    @cached_property
    def lives(self) -> LivesOf | None:
        """The lives of the topics that were deleted; None if none was."""
        found = self.screened.lives
        return LivesOf(self.session, found, self.members) if found else None

    @property
    def topics(self) -> list[str]:
        """The names of the history's topics, in all their lives."""
        return [*self.meta.topics, *(self.lives.names if self.lives else ())]

    @cached_property
    def suspects(self) -> DataFrame:
        """The testimony of the messages on which the sources do not simply agree."""
        if self.is_agreed:
            return self.session.createDataFrame([], from_arrow_schema(TESTIMONY))
        identities = self.kept(self.screened.rows(tasks.SUSPECTS, SUSPECT))
        return self.kept(self.testimony_of(identities))

    @cached_property
    def holdings(self) -> DataFrame:
        """Suspects in the replicas' files: a row for each copy on each replica.

        Columns: id, broker, replica, topic, queue_id, queue_offset, position, crc, error. Copies
        that wait elsewhere than in their topic are not among them.
        """
        return self.kept(self.copies(STORED))

    @cached_property
    def held(self) -> DataFrame:
        """Suspects that wait, in the replicas' files: a row for each copy on each replica."""
        return self.kept(self.copies(HELD))

    def copies(self, source: str) -> DataFrame:
        """Suspects in the replicas' files, by what said so: a row for each copy on each replica."""
        stored = self.suspects.where(F.col("source") == source)
        place = ("topic", "queue_id", "queue_offset", "position")
        names = ("id", *place, "crc", "properties", "error")
        return (
            stored.join(F.broadcast(self.members_table), "broker")
            .where(F.expr("getbit(holders, bit) = 1"))
            .select("broker", "replica", *names)
        )

    @cached_property
    def agreed(self) -> DataFrame:
        """The places of messages that are no suspects, with the columns of `slots`."""
        return self.kept(self.screened.rows(tasks.SLOTS, SLOT))

    @cached_property
    def disputed(self) -> DataFrame:
        """The places that anybody gives to suspects, with the columns of `slots`."""
        source = F.col("source")
        read = (source == STORED) & F.col("error").isNull() & self.is_settled()
        sent = self.suspects.where(source == SEND)
        return self.kept(
            self.suspects.where(source.isin(ACK, DELIVER) | read)
            .groupBy("queue", "queue_offset", "identity")
            .agg(
                F.min(F.when(source == ACK, F.col("t"))).alias("ack_t"),
                F.min(F.when(source == DELIVER, F.col("t"))).alias("read_t"),
                F.min("position").alias("position"),
                F.max(self.members.broker_number).cast("long").alias("broker_number"),
            )
            .join(sent.groupBy("identity").agg(F.min("t").alias("send_t")), "identity", "left")
            .select(*(SLOT.names or ()))
        )

    @cached_property
    def slots(self) -> DataFrame:
        """Which message has which place in a queue: one row for each (slot, message) named.

        Columns: queue (a number), queue_offset, identity, send_t, ack_t (if this slot was
        acknowledged), read_t (if it was delivered), position, broker_number. Slots that only an
        unsettled tail names are left out.
        """
        known = F.col("ack_t").isNotNull() | F.col("read_t").isNotNull()
        end = self.members.by_number(lambda name: self.settled_end[name])
        agreed = self.agreed.where(known | (F.col("position") < end))
        return agreed if self.is_agreed else agreed.unionByName(self.disputed)

    @cached_property
    def ranges(self) -> Rows:
        """The findings of the screening about queues, range by range."""
        ends = np.array([self.settled_end[name] for name in self.members.brokers], np.int64)
        return self.screened.ranges(None if self.is_agreed else self.disputed, ends)

    @cached_property
    def doubtful(self) -> DataFrame | None:
        """The slots of the queues that need a closer look; None if there is none."""
        queues = doubtful_queues(self.ranges, from_start=bool(self.whole))
        return self.kept(self.slots.where(F.col("queue").isin(queues))) if queues else None

    def beyond_the_end(self, answers: DataFrame) -> DataFrame:
        """The `answers`, with `broker`, `queue` and `offset`, that are above the `end` of a queue:
        what is behind all that clients or logs, in unsettled tails too, say is in it."""
        named = self.agreed.select("queue", "queue_offset")
        if not self.is_agreed:
            placed = self.suspects.where(F.col("source").isin(ACK, DELIVER, STORED))
            named = named.unionByName(placed.select("queue", "queue_offset"))
        last = named.groupBy("queue").agg(F.max("queue_offset").alias("last"))
        whole = answers.where(F.col("broker").isin(*self.whole))
        return self.kept(
            whole.join(last, "queue", "left")
            .fillna(-1, ["last"])
            .where(F.col("offset") - 1 > F.col("last"))  # No number is behind the last offset.
            .withColumn("end", F.col("last") + 1)
        )

    @cached_property
    def acks(self) -> DataFrame:
        """Acknowledgements of messages in their queues, the first of each place.

        Columns: identity, broker, queue (a number), queue_offset, position, ack_t. Messages that
        wait have a position and no place in a queue yet: that of the acknowledgement, where a
        replica has another one.
        """
        columns = ("identity", "broker", "queue", "queue_offset", "position", "ack_t")
        broker = self.members.broker
        agreed = self.agreed.where("ack_t IS NOT NULL").withColumn("broker", broker)
        waiting = (
            self.waiters.where("waiting_t IS NOT NULL AND held_position_min IS NOT NULL")
            .withColumn("broker", broker)
            .withColumn("position", F.col("held_position_min"))
            .withColumn("ack_t", F.col("waiting_t"))
            .withColumn("queue", F.lit(None).cast("long"))
            .withColumn("queue_offset", F.lit(None).cast("long"))
        )
        if self.is_agreed:
            return agreed.select(*columns).unionByName(waiting.select(*columns))
        doubted = self.suspects.select("identity").distinct()
        sure = waiting.join(F.broadcast(doubted), "identity", "left_anti")
        acks = agreed.select(*columns).unionByName(sure.select(*columns))
        in_queue = F.col("source") == ACK
        disputed = (
            self.suspects.where(F.col("source").isin(ACK, WAITING))
            .withColumn("queue", F.when(in_queue, F.col("queue")))
            .withColumn("queue_offset", F.when(in_queue, F.col("queue_offset")))
            .groupBy("identity", "broker", "queue", "queue_offset", "position")
            .agg(F.min("t").alias("ack_t"))
        )
        return acks.unionByName(disputed.select(*columns))

    @cached_property
    def waiters(self) -> DataFrame:
        """The messages that had to wait, with the columns of `WAITER`."""
        return self.kept(self.screened.rows(tasks.WAITERS, WAITER))

    def doubted(self, doubt: str) -> DataFrame | None:
        """The readings that are doubtful so (`DOUBT`): group, queue. None if there is none."""
        found, unsure = self.screened.doubts, self.summary.unsure
        lived = self.screened.lives.numbers
        rows = [
            (group, number)
            for row in found[found[doubt] | np.isin(found["queue"], [*lived])]
            for group in self.screened.readers[int(row["group"])]
            if doubt == "disorder" or (group, int(row["queue"])) not in unsure
            for number in lived.get(int(row["queue"]), [int(row["queue"])])
        ]
        if not rows:
            return None
        return self.session.createDataFrame(rows, "group string, queue long")

    def sure(self, rows: DataFrame) -> DataFrame:
        """The `rows`, with `group` and `queue`, that no reader has read whose clock fell."""
        if not self.summary.unsure:
            return rows
        unsure = self.session.createDataFrame([*self.summary.unsure], "group string, queue long")
        return rows.join(F.broadcast(unsure), ["group", "queue"], "left_anti")

    def first_reads(self, of: DataFrame) -> DataFrame:
        """The first delivery of each offset in the readings `of` some groups and queues.

        Columns: reading (a number), queue_offset, t. What members popped is none of it: they are
        given messages in any order. With one group the slots know all of it, and the history need
        not be read again.
        """
        if self.has_one_group:
            read = self.slots.where(F.col("read_t").isNotNull())
            return read.join(F.broadcast(of.select("queue")), "queue", "left_semi").select(
                F.col("queue").alias("reading"), "queue_offset", F.col("read_t").alias("t")
            )
        delivered = self.testimony.where((F.col("source") == DELIVER) & F.col("pop_time").isNull())
        offsets = self.of_readings(delivered, of).groupBy(
            self.reading.alias("reading"), "queue_offset"
        )
        return offsets.agg(F.min("t").alias("t"))

    def of_readings(self, rows: DataFrame, of: DataFrame) -> DataFrame:
        """The rows that are of some groups and queues."""
        named = F.broadcast(of.withColumnsRenamed({"group": "of_group", "queue": "of_queue"}))
        same = F.col("group").eqNullSafe(F.col("of_group")) & (F.col("queue") == F.col("of_queue"))
        return rows.join(named, same, "left_semi")

    @property
    def has_one_group(self) -> bool:
        """Whether no deliveries are to different groups, as in most runs, nor by POP, nor of topics
        that were deleted."""
        several = len(self.summary.groups) > 1 or self.lives is not None
        return not several and not self.summary.popped

    @property
    def reading(self) -> Column:
        """Number of a group's reading of one queue, from the columns `group` and `queue`."""
        of_any = F.xxhash64("group", "queue")
        if len(self.summary.groups) != 1 or not self.has_one_group:
            return of_any
        (group,) = self.summary.groups
        return F.when(F.col("group").eqNullSafe(F.lit(group)), F.col("queue")).otherwise(of_any)

    @cached_property
    def noted(self) -> DataFrame:
        """The events that are about no single message."""
        noted = self.kept(self.screened.noted)
        return noted if self.lives is None else self.kept(self.lives.of_notes(noted, self.slots))

    def nothing(self) -> DataFrame:
        """No violation: what a judge says at once where there is nothing to judge."""
        return self._nothing

    def is_nothing(self, rows: DataFrame) -> bool:
        """Whether a judge said so, and `rows` need not be looked into."""
        return rows is self._nothing

    @cached_property
    def _nothing(self) -> DataFrame:
        return self.session.createDataFrame([], COLUMNS)

    @cached_property
    def named(self) -> DataFrame:
        """Messages that replicas do not all hold alike and whole: broker, id, position, unacked."""
        held = self.holdings.withColumn("acked", F.lit(None).cast("long"))
        acked = self.suspects.where(F.col("source") == ACK).withColumn("acked", F.col("position"))
        place = ("topic", "queue_id", "queue_offset", "position")
        version = F.struct(*place, "crc", "properties", "error")
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

    def testimony_of(self, messages: DataFrame) -> DataFrame:
        """The testimony about the messages whose identities these are."""
        return self.testimony.join(messages, "identity", "left_semi")

    def with_ids(self, rows: DataFrame) -> DataFrame:
        """`rows`, of which there are few, with the ids of their messages."""
        rows = self.kept(rows)
        if rows.isEmpty():
            return rows.withColumn("id", F.lit(None).cast("string"))
        named = self.testimony_of(rows.select("identity")).select("identity", "id")
        return rows.join(named.dropDuplicates(["identity"]), "identity", "left")

    @cached_property
    def kept_from(self) -> DataFrame:
        """For trimmed logs: the first offset of each queue, in the order of the log, that all reach
        back to (queue, kept_from); the lowest one where nothing was removed."""
        begin = self.members.by_number(lambda name: self.begins[name])
        in_log = F.struct(F.when(begin > 0, F.col("position")), "queue_offset")
        kept = self.reach_back(self.slots).groupBy("queue")
        return self.kept(kept.agg(F.min_by("queue_offset", in_log).alias("kept_from")))
