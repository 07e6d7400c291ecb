"""Listens to each batch of a query: asks brokers how far it is behind, logs it and shows it.

Whatever goes wrong here is logged, and ends no query.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from dledger.errors import DledgerError
from dledger.observe import get_logger
from dledger.remoting.json_dialect import MessageQueue
from dledger.world import unix_ms
from mqclient import Bounds, ClientError
from mqclient.blocking import RangeReader
from mqspark.topics.planning import Range
from mqspark.topics.positions import Positions
from mqspark.topics.topics import first_messages
from mqspark.topics.watching.progress import Lag, Sample, lags, positions_in, unread

log = get_logger(__name__)


class Figures:
    """The figures of queries, as Prometheus reads them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._topics: dict[str, set[str]] = {}
        self._of_topic = [
            Gauge(f"mqspark_lag_{unit}", text, ("query", "topic"), registry=self.registry)
            for unit, text in (
                ("messages", "Messages that a query has not read."),
                ("bytes", "Their size in the log, by that of the first ones."),
                ("seconds", "How old the oldest of them is."),
            )
        ]
        self._of_query = [
            Gauge(f"mqspark_{name}", text, ("query",), registry=self.registry)
            for name, text in (
                ("batch", "The number of a query's last batch."),
                ("batch_rows", "Rows that it read."),
                ("batch_seconds", "How long it took."),
            )
        ]

    def show(self, query: str, batch: tuple[int, int, float], found: list[Lag]) -> None:
        """Show a query's last batch, and how far it is behind."""
        for gauge, figure in zip(self._of_query, batch, strict=True):
            gauge.labels(query).set(figure)
        topics = {lag.topic for lag in found}
        for topic in self._topics.get(query, set()) - topics:
            self._forget_topic(query, topic)
        self._topics[query] = topics
        for topic, *figures in found:
            for gauge, figure in zip(self._of_topic, figures, strict=True):
                gauge.labels(query, topic).set(figure)

    def forget(self, query: str) -> None:
        """Show nothing of a query that has ended."""
        for topic in self._topics.pop(query, set()):
            self._forget_topic(query, topic)
        for gauge in self._of_query:
            with suppress(KeyError):
                gauge.remove(query)

    def _forget_topic(self, query: str, topic: str) -> None:
        for gauge in self._of_topic:
            gauge.remove(query, topic)


class TopicsListener(StreamingQueryListener):
    """Listens to each batch; asks brokers, and shows what they say."""

    def __init__(self, brokers: RangeReader, figures: Figures) -> None:
        self._brokers, self._figures = brokers, figures

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Log the start of a query, with its name and its run."""
        log.info("query started", query=_named(event), run=str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - as above
        """Log and show how far a query is."""
        progress = event.progress
        ours = [positions_in(source.endOffset) for source in progress.sources]
        positions = {queue: at for each in ours for queue, at in (each or {}).items()}
        if not any(each is not None for each in ours):
            return
        try:
            found = self._lags(positions)
        except (DledgerError, ClientError) as error:
            log.warning("lag not measured", query=_named(progress), reason=str(error))
            return
        took_s = progress.batchDuration / 1000
        self._figures.show(
            _named(progress), (progress.batchId, progress.numInputRows, took_s), found
        )
        for topic, messages, size_bytes, seconds in found:
            log.info(
                "query progress",
                query=_named(progress),
                batch=progress.batchId,
                rows=progress.numInputRows,
                took_s=took_s,
                topic=topic,
                behind_messages=messages,
                behind_bytes=size_bytes,
                behind_s=seconds,
            )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - as above
        """Nothing is new: what was shown last holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - as above
        """Log it, and why; show no more of it."""
        reason = (event.exception or "it was stopped, or has read all").partition("\n")[0]
        log.info("query ended", query=str(event.id), reason=reason)
        self._figures.forget(str(event.id))

    def _lags(self, positions: Positions) -> list[Lag]:
        topics = {queue.topic for queue in positions}
        ends: dict[MessageQueue, Bounds] = {}
        for topic in topics:
            names = {queue.broker_name for queue in positions if queue.topic == topic}
            ends |= self._brokers.bounds(topic, names).queues
        ends = {queue: bounds for queue, bounds in ends.items() if queue in positions}
        waiting = unread(positions, ends)
        samples = {each.queue: sample for each in waiting if (sample := self._sample(each))}
        return lags(topics, waiting, samples, unix_ms())

    def _sample(self, each: Range) -> Sample | None:
        table = first_messages(self._brokers, each)
        if table is None:
            return None
        return Sample(len(table.buffer) / len(table), int(table.store_timestamps_ms[0]))


def _named(event: Any) -> str:
    """The id of a query, as its checkpoint has it."""
    return str(event.id)
