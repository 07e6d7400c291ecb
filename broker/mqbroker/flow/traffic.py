"""Traffic since this process began, as Prometheus counts it. Pure.

Counted once for each run of messages that is applied, whatever their number. What consumers were
given is counted by `mqbroker.flow.statistics`, by topic and group. A message type is that
of the way that a message took, or the one that its topic declares: nobody looks into a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dledger.metrics.text import Buckets
from dledger.remoting.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from mqbroker.flow import limits

SIZE_BOUNDS: Final = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)
"""RocketMQ's, in bytes."""
BY_ORIGIN: Final = {SCHEDULE_TOPIC: "delay", TIMER_TOPIC: "delay", HALF_TOPIC: "transaction"}
"""The message types that a way says."""


class Arrived:
    """The messages of one topic that came one way, and the mean sizes of those in each run."""

    __slots__ = ("messages", "size_bytes", "sizes")

    def __init__(self) -> None:
        self.messages = self.size_bytes = 0
        self.sizes = Buckets(SIZE_BOUNDS)


class Traffic:
    """Counters of each topic's messages since the process began, at most `rows_max` rows a
    table."""

    def __init__(self, rows_max: int = limits.STATISTICS_ROWS_MAX) -> None:
        self._rows_max = rows_max
        #: By topic, and the topic where they waited: "" if they did not.
        self.arrived: dict[tuple[str, str], Arrived] = {}
        #: Dead letters by (group, topic).
        self.given_up: dict[tuple[str, str], int] = {}
        #: Rolled back transactions by topic.
        self.rolled_back: dict[str, int] = {}
        #: By topic: from the birth of a message until its transaction was committed, in seconds.
        self.commits: dict[str, Buckets] = {}
        #: From the store of a half message until its end, in seconds: commits, and rollbacks.
        self.finished = {name: Buckets(limits.FINISH_BOUNDS_S) for name in ("commit", "rollback")}
        #: By topic: how far ahead of their birth messages with a timer are due, in seconds.
        self.ahead: dict[str, Buckets] = {}

    def put(self, topic: str, origin: str, messages: int, size_bytes: int) -> None:
        """A run of messages was stored; `origin` is the topic that it waited in, if it did."""
        key = (topic, origin)
        row = self.arrived.get(key)
        if row is None:
            if len(self.arrived) >= self._rows_max:
                return
            row = self.arrived[key] = Arrived()
        row.messages += messages
        row.size_bytes += size_bytes
        row.sizes.add(size_bytes // messages)

    def give_up(self, group: str, topic: str) -> None:
        """A message of a topic became a dead letter of a group."""
        key = (group, topic)
        if key in self.given_up or len(self.given_up) < self._rows_max:
            self.given_up[key] = self.given_up.get(key, 0) + 1

    def roll_back(self, topic: str, after_s: float) -> None:
        """A transaction was rolled back, that long after its half message was stored."""
        self.finished["rollback"].add(after_s)
        if topic in self.rolled_back or len(self.rolled_back) < self._rows_max:
            self.rolled_back[topic] = self.rolled_back.get(topic, 0) + 1

    def commit(self, topic: str, after_s: float, born_s: float) -> None:
        """A transaction was committed, that long after its half message was stored, and born."""
        self.finished["commit"].add(after_s)
        self._add(self.commits, topic, limits.COMMIT_BOUNDS_S, born_s)

    def timed(self, topic: str, ahead_s: float) -> None:
        """A message began to wait for its time, so far ahead of its birth."""
        self._add(self.ahead, topic, limits.AHEAD_BOUNDS_S, ahead_s)

    def _add(
        self, rows: dict[str, Buckets], topic: str, bounds: Sequence[int], seconds: float
    ) -> None:
        if topic in rows or len(rows) < self._rows_max:
            # Seconds are whole, as in RocketMQ.
            rows.setdefault(topic, Buckets(bounds)).add(int(seconds))

    def topic_ended(self, topic: str) -> None:
        """Drop the counters of a deleted topic."""
        self.arrived = {key: row for key, row in self.arrived.items() if key[0] != topic}
        self.given_up = {key: count for key, count in self.given_up.items() if key[1] != topic}
        for rows in (self.rolled_back, self.commits, self.ahead):
            rows.pop(topic, None)
