"""The replicas as numbers: brokers are numbered, a broker's replicas are bits of a mask.

Numbers and masks have a fixed width, so Spark aggregates them without sorting, and one number says
which of the replicas hold something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from dledger.errors import ConfigError
from mqspark.limits import REPLICAS_MAX
from mqspark.source.planning import Replica

#: Ends each name in a constant: numpy takes a NUL at the end of a text away.
_END: Final = "."


class Members:
    """The replicas of all brokers. Raises ConfigError for more than a mask can hold."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas = list(replicas)
        self._of: dict[str, list[Replica]] = {}
        for replica in replicas:
            self._of.setdefault(replica.broker, []).append(replica)
        self.brokers = sorted(self._of)
        for broker in self.brokers:
            count = len(self.of(broker))
            if count > REPLICAS_MAX:
                raise ConfigError(f"{broker} has {count} replicas: {REPLICAS_MAX} can be judged")

    def of(self, broker: str) -> list[Replica]:
        """The broker's replicas, by node id: their places are the bits in masks."""
        return self._of.get(broker, [])

    def bit(self, replica: Replica) -> int:
        """The replica's bit in masks."""
        return 1 << self.of(replica.broker).index(replica)

    def full_mask(self, broker: str) -> int:
        """The bits of all replicas of a broker."""
        return (1 << len(self.of(broker))) - 1

    def begins(self, broker: str) -> list[int]:
        """Where the log of each of the broker's replicas begins."""
        return [replica.begin for replica in self.of(broker)]

    def first_index(self, broker: str) -> int | None:
        """The index that all of them begin with; None if they differ, 0 if it is not known."""
        first, *others = {replica.first_index for replica in self.of(broker)}
        return None if others else first

    def table(self, session: SparkSession) -> DataFrame:
        """Replicas, a row each: broker, replica, bit (its number), everyone (the full mask), where
        its log begins, and with which index (null if that is not known)."""
        rows = {
            "broker": [replica.broker for replica in self.replicas],
            "replica": [replica.node for replica in self.replicas],
            "bit": [self.of(replica.broker).index(replica) for replica in self.replicas],
            "everyone": [self.full_mask(replica.broker) for replica in self.replicas],
            "begin": [replica.begin for replica in self.replicas],
        }
        first = pa.array([replica.first_index or None for replica in self.replicas], pa.int64())
        return session.createDataFrame(pa.table(rows).append_column("first_index", first))

    def by_number(self, value: Callable[[str], int]) -> Column:
        """The result of `value` for the name of the broker with the number `broker_number`."""
        return F.get(_numbers([value(name) for name in self.brokers]), F.col("broker_number"))

    @property
    def broker(self) -> Column:
        """The name of the broker with the number `broker_number`."""
        name = F.get(_names(self.brokers), F.col("broker_number"))
        return F.left(name, F.length(name) - len(_END))

    @property
    def broker_number(self) -> Column:
        """The number of `broker`; -1 for one without any replica here."""
        numbers = {name: number for number, name in enumerate(self.brokers)}
        return F.coalesce(looked_up("broker", numbers), F.lit(-1))


def looked_up(key: str, values: Mapping[str, int]) -> Column:
    """The value for what the column `key` holds, null if there is none.

    Spark would search a CASE for each row from the beginning, and for each of its branches once
    more.
    """
    place = F.array_position(_names([*values]), F.concat(key, F.lit(_END)))
    return F.get(_numbers([*values.values()]), place - 1)


def _numbers(values: Sequence[int]) -> Column:
    """A constant array of numbers as a literal: one node of a plan, however many brokers there are,
    which Spark need not make anew for each row that it looks at while it plans."""
    return F.lit(np.array(values, np.int64))


def _names(values: Sequence[str]) -> Column:
    """A constant array of names, each with `_END`."""
    return F.lit(np.array([name + _END for name in values], np.str_))
