"""Evidence of the logs alone: their entries, and how far they are settled.

The ledger has one row for each (broker, index) of the logs' entries. All else is made from the few
rows of it on which replicas disagree; where they hold one log alike and whole, the screening has
said so, and no entry is read.

Without a history logs are settled up to where nothing can change any more. A copy that a broker
made of itself says how far it was committed. Stopped replicas are compared up to the end of the
shortest one, and not beyond the first entry in which their terms differ: such a tail may be
replaced (:mod:`mqspark.judge.alone`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.limits import FEW_ROWS_MAX
from mqspark.screening.logs import Log
from mqspark.screening.packets import NONE
from mqspark.screening.screened import Screened
from mqspark.screening.tasks import Summary
from mqspark.source.members import Members, looked_up
from mqspark.source.schema import ENTRIES


@dataclass
class LogEvidence:
    """The evidence of the logs of one audit. DataFrames are made when first asked for, then kept.

    `alone`: there is no history (:mod:`mqspark.judge.alone`).
    """

    session: SparkSession
    members: Members
    screened: Screened
    alone: bool = field(default=False, kw_only=True)
    _persisted: list[DataFrame] = field(default_factory=list, kw_only=True)

    @property
    def summary(self) -> Summary:
        """The findings of the screening about no single message."""
        return self.screened.summary

    @cached_property
    def logs(self) -> dict[str, Log] | None:
        """Each broker's log, if all replicas hold it alike and whole; else None.

        Then nobody needs to ask for `entries`.
        """
        return None if self.alone else self.screened.logs

    @cached_property
    def entries(self) -> DataFrame:
        """Log entries of all replicas, CRCs checked."""
        return self.kept(self.screened.of_segments(ENTRIES))

    @cached_property
    def members_table(self) -> DataFrame:
        """Broker, replica, bit, everyone: one row a replica."""
        return self.members.table(self.session)

    @cached_property
    def damage(self) -> DataFrame:
        """Ranges of bytes that are wrong: broker, replica, index, position, size, error."""
        return self.kept(self.entries.where(F.col("error").isNotNull()))

    @cached_property
    def ledger(self) -> DataFrame:
        """A row for each index of a broker's log: who holds it, and the spread of its values."""
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
    def disputes(self) -> DataFrame:
        """The ledger's rows on which not all replicas agree."""
        differs = (F.col("chain_min") != F.col("chain_max")) | (
            F.col("holders") != F.col("everyone")
        )
        everyone = self.members_table.select("broker", "everyone").distinct()
        return self.kept(self.ledger.join(F.broadcast(everyone), "broker").where(differs))

    @cached_property
    def splits(self) -> DataFrame:
        """The disputes in which replicas differ from each other. The others are of an index that a
        log has several times, and all have it so."""
        everywhere = self.disputes.where("holders = everyone").select("broker", "index")
        own = (
            self.entries.join(F.broadcast(everywhere), ["broker", "index"], "left_semi")
            .groupBy("broker", "index", "replica")
            .agg(F.sort_array(F.collect_set("chain_crc")).alias("chains"))
        )
        alike = own.groupBy("broker", "index").agg(F.count_distinct("chains").alias("different"))
        same = self.kept(alike.where("different = 1"))
        return self.kept(self.disputes.join(F.broadcast(same), ["broker", "index"], "left_anti"))

    @cached_property
    def entry_count(self) -> int:
        """How many different indexes the logs have."""
        if self.logs is not None:
            return sum(log.entries for log in self.logs.values())
        return self.ledger.count()

    @cached_property
    def term_starts(self) -> DataFrame:
        """Where each term begins in the settled log: broker, log_term, start.

        An entry that one replica has from a later term may be of that term.
        """
        if self.logs is not None:
            starts = [
                (name, term, start)
                for name, log in self.logs.items()
                for term, start in log.terms.items()
            ]
            return self.session.createDataFrame(starts, "broker string, log_term long, start long")
        settled = self.ledger.where(self.is_settled() & F.col("term_max").isNotNull())
        return self.kept(
            settled.groupBy("broker", F.col("term_max").alias("log_term")).agg(
                F.min("position").alias("start")
            )
        )

    @cached_property
    def settled_end(self) -> dict[str, int]:
        """For each broker: the position up to which its log can't change any more.

        Of a message with several copies only the first counts: the others may be in a tail.
        """
        if self.alone:
            return settled_alone(self.entries, self.splits, self.members)
        known = zip(self.members.brokers, self.screened.totals["known"], strict=True)
        ends = {name: end + 1 for name, end in known if end != NONE}
        common = self.common_ends
        return {name: max(ends.get(name, 0), common.get(name, 0)) for name in self.members.brokers}

    @cached_property
    def common_ends(self) -> dict[str, int]:
        """Where each log's first index is on which replicas differ; else where it ends."""
        if self.logs is not None:
            return {name: log.end for name, log in self.logs.items()}
        ends = self.ledger.groupBy("broker").agg(F.max("end").alias("at"))
        splits = self.splits.groupBy("broker").agg(F.min("position").alias("at"))
        of_all = {row.broker: int(row.at) for row in ends.collect()}
        return of_all | {row.broker: int(row.at) for row in splits.collect()}

    def is_settled(self, position: Column | None = None) -> Column:
        """Whether `position` (default: the column of that name) of `broker` is settled."""
        where = F.col("position") if position is None else position
        return where < self._settled_end

    @cached_property
    def _settled_end(self) -> Column:
        """The settled end of the log of `broker`."""
        return looked_up("broker", self.settled_end)

    @cached_property
    def begins(self) -> dict[str, int]:
        """For each broker: the first position that all of its replicas' logs reach back to."""
        return {name: max(self.members.begins(name)) for name in self.members.brokers}

    @property
    def is_trimmed(self) -> bool:
        """Whether old segments were removed from any log."""
        return any(self.begins.values())

    @property
    def whole(self) -> list[str]:
        """The brokers of whose logs nothing was removed."""
        return [name for name, begin in self.begins.items() if not begin]

    def reach_back(self, rows: DataFrame) -> DataFrame:
        """The `rows`, with `position` and `broker_number`, that all replicas reach back to."""
        if not self.is_trimmed:
            return rows
        begin = self.members.by_number(lambda name: self.begins[name])
        return rows.where((begin == 0) | (F.col("position") >= begin))

    def _is_common(self) -> Column:
        return F.col("position") >= looked_up("broker", self.begins)

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
        self.screened.close()


def settled_alone(entries: DataFrame, splits: DataFrame, members: Members) -> dict[str, int]:
    """For each broker: the position up to which its replicas alone show that its log is settled.

    `splits`: the rows of the ledger on which replicas differ.
    """
    whole = entries.where("error IS NULL AND index IS NOT NULL")
    ends = (
        whole.groupBy("broker", "replica")
        .agg(F.max(F.col("position") + F.col("size")).alias("end"))
        .collect()
    )
    terms = splits.where("term_min != term_max").groupBy("broker")
    settled = {row.broker: row.at for row in terms.agg(F.min("position").alias("at")).collect()}
    for row in ends:
        settled[row.broker] = min(row.end, settled.get(row.broker, row.end))
    for name in members.brokers:
        manifests = [replica.manifest for replica in members.of(name)]
        committed = min(0 if each is None else each.end_position for each in manifests)
        settled[name] = max(committed, settled.get(name, 0))
    return settled
