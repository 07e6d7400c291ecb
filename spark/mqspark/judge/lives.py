"""Which life of its topic each statement is about, where topics were deleted and made again.

A record, and an acknowledgement, has a position, which says it (`mqspark.screening.changes`). What
was delivered is of the life in which the log has that message at that place, or else has it at all.
An answer to a question, a commit and a reset have a moment only. A deletion came about after all
sends whose messages stand before it in the log, and before all acknowledgements of those behind it;
if the history notes as many deletions, all answered, as the log has, each came about within its
own. What was under way at that time is of no life, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.screening.changes import DELETE_TOPIC, LIFE, Lives, life_name, numbers_in
from mqspark.screening.tasks import ACT, POSITIONS, QUEUE_END
from mqspark.screening.testimony import ACK, DELIVER, STORED
from mqspark.source.members import Members

_FOR_EVER: Final = 2**62
_SPANS: Final = "broker string, topic string, first long, end long, mixer long, named string"
Moments = list[tuple[int, int]]


def own_topic() -> Column:
    """The topic's own name, whatever its life is, of a row with `topic`."""
    return F.substring_index("topic", LIFE, 1)


def life() -> Column:
    """The topic's life of a row with `topic`: a text, empty for the first one."""
    return F.substr(F.col("topic"), F.length(own_topic()) + 1)


@dataclass(frozen=True)
class LivesOf:
    """The lives of the topics that a log has deletions of. There is one at least."""

    session: SparkSession
    lives: Lives
    members: Members

    @property
    def names(self) -> list[str]:
        """The names of the topics in all lives but the first."""
        return [
            life_name(topic, life + 1)
            for (_, topic), ends in self.lives.ends.items()
            for life in range(len(ends))
        ]

    def of_testimony(
        self, testimony: DataFrame, kept: Callable[[DataFrame], DataFrame]
    ) -> DataFrame:
        """The testimony, with the names and numbers that topics and queues have in their lives.

        What is about these topics is `kept`: it is read for each kind of statements.
        """
        source, place = F.col("source"), ("identity", "broker", "topic")
        at = ("queue_id", "queue_offset")
        placed = source.isin(ACK, STORED) & F.col("position").isNotNull()
        ends = {key: (0, *ends, _FOR_EVER) for key, ends in self.lives.ends.items()}
        spans = self._spans({key: list(pairwise(each)) for key, each in ends.items()})
        lived = kept(testimony.join(F.broadcast(spans), ["broker", "topic"], "left_semi"))
        rest = testimony.join(F.broadcast(spans), ["broker", "topic"], "left_anti")
        within = (F.col("position") >= F.col("first")) & (F.col("position") < F.col("end"))
        own = self._in_spans(lived.where(placed), spans, within)
        known = own.groupBy(*place, *at).agg(
            F.max_by(F.struct("mixer", "named"), "first").alias("there")
        )
        anywhere = known.groupBy(*place).agg(F.max("there").alias("anywhere"))
        delivered = (
            lived.where(source == DELIVER)
            .join(known, [*place, *at], "left")
            .join(anywhere, list(place), "left")
            .withColumn("life", F.coalesce("there", "anywhere"))
            .withColumn("mixer", F.coalesce("life.mixer", F.lit(0)))
            .withColumn("named", F.coalesce("life.named", "topic"))
        )
        others = lived.where(~placed & (source != DELIVER))
        return (
            _renamed(own, testimony.columns)
            .unionByName(_renamed(delivered, testimony.columns))
            .unionByName(others)
            .unionByName(rest)
        )

    def of_notes(self, noted: DataFrame, slots: DataFrame) -> DataFrame:
        """Notes by the life that they are about for certain, if they say where a group or a queue
        is;"""
        spans = self._spans(self._moments(noted, slots))
        about = F.col("kind").isin(*POSITIONS, QUEUE_END)
        lived = noted.where(about).join(F.broadcast(spans), ["broker", "topic"], "left_semi")
        rest = noted.where(~about).unionByName(
            noted.where(about).join(F.broadcast(spans), ["broker", "topic"], "left_anti")
        )
        within = (F.coalesce("began", F.lit(0)) >= F.col("first")) & (F.col("t") < F.col("end"))
        return rest.unionByName(_renamed(self._in_spans(lived, spans, within), noted.columns))

    def _moments(self, noted: DataFrame, slots: DataFrame) -> dict[tuple[str, str], Moments]:
        """For each life, since when all is of it that begins then, and until when what ends."""
        known = self._known(slots)
        acts = noted.where((F.col("kind") == ACT) & (F.col("act") == DELETE_TOPIC)).collect()
        found = {}
        for (broker, topic), ends in self.lives.ends.items():
            spans = [known[broker, position] for position in ends]
            own = sorted(
                (a.began, a.t, bool(a.done)) for a in acts if (a.broker, a.topic) == (broker, topic)
            )
            if len(own) == len(ends) and _is_row(own):
                pairs = zip(spans, own, strict=True)
                spans = [(max(low, at), min(high, t)) for (low, high), (at, t, _) in pairs]
            # If a log lies, a span may end before it begins: a note is of one life all the same.
            begins = (0, *(max(span) + 1 for span in spans))
            lows = (*(low for low, _ in spans), _FOR_EVER)
            found[broker, topic] = [*zip(begins, lows, strict=True)]
        return found

    def _known(self, slots: DataFrame) -> dict[tuple[str, int], tuple[int, int]]:
        """Between which moments each deletion came about, by the messages around it.

        Where one stands that was only delivered, and is in no log, nobody knows.
        """
        ends: dict[str, list[int]] = {name: [] for name in self.members.brokers}
        for (broker, _), positions in self.lives.ends.items():
            ends[broker] = sorted({*ends[broker], *positions})
        numbered = [(number, ends[name]) for number, name in enumerate(self.members.brokers)]
        own = self.session.createDataFrame(
            [row for row in numbered if row[1]], "broker_number long, ends array<long>"
        )
        before = F.filter("ends", lambda end: end < F.col("position"))
        rows = (
            slots.where(F.col("position").isNotNull())
            .join(F.broadcast(own), "broker_number")
            .groupBy("broker_number", F.size(before).alias("place"))
            .agg(F.max("send_t").alias("sent"), F.min("ack_t").alias("acked"))
            .collect()
        )
        found = {}
        for number, broker in enumerate(self.members.brokers):
            around = [row for row in rows if row.broker_number == number]
            for place, position in enumerate(ends[broker]):
                low = max((row.sent or 0 for row in around if row.place <= place), default=0)
                acked = [row.acked for row in around if row.place > place]
                found[broker, position] = (
                    low,
                    min((t for t in acked if t is not None), default=_FOR_EVER),
                )
        return found

    def _spans(self, spans: dict[tuple[str, str], Moments]) -> DataFrame:
        """The names and numbers that topics have, and the positions or moments between which they
        have them."""
        rows = [
            (broker, topic, first, end, mixer, life_name(topic, life))
            for (broker, topic), each in spans.items()
            for life, ((first, end), mixer) in enumerate(zip(each, _mixers(len(each)), strict=True))
        ]
        return self.session.createDataFrame(rows, _SPANS)

    def _in_spans(self, rows: DataFrame, spans: DataFrame, within: Column) -> DataFrame:
        return rows.join(F.broadcast(spans), ["broker", "topic"]).where(within)


def _is_row(acts: Sequence[tuple[int, int, bool]]) -> bool:
    """Whether all were answered, one after the other."""
    return all(done for *_, done in acts) and all(a[1] < b[0] for a, b in pairwise(acts))


def _mixers(count: int) -> list[int]:
    numbers: list[int] = numbers_in(np.zeros(count, np.int64), np.arange(count)).tolist()
    return numbers


def _renamed(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    return (
        rows.withColumn("queue", F.col("queue").bitwiseXOR(F.col("mixer")))
        .withColumn("topic", F.col("named"))
        .select(*columns)
    )
