"""What a consumer counts, if it is made with metrics: what it fetches, and how its handlers do."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from dledger.remoting.json_dialect import MessageQueue
from dledger.world import steady_s
from mqclient import limits
from mqclient.consuming.progress import QueueProgress
from mqclient.metrics import Counted, Gauges, Labels, Metrics
from mqclient.models import ReceivedMessage

MessageT = TypeVar("MessageT", bound=ReceivedMessage)
_BatchHandler: TypeAlias = Callable[[Sequence[MessageT]], Awaitable[None] | None]


class Measured:
    """The numbers of one consumer, from when it is opened until it is closed."""

    def __init__(self, metrics: Metrics, group: str, gauges: Gauges) -> None:
        self._metrics = metrics
        self._group = group
        self._gauges = gauges
        self._counted: Counted

    def begin(self) -> None:
        """The consumer is opened."""
        self._counted = self._metrics.begin(self._gauges)

    def end(self) -> None:
        """The consumer is closed."""
        self._metrics.end(self._counted)

    def forget(self) -> None:
        """In a fork of the process that opened it."""
        self._metrics.forget(self._counted)

    def received(self, topic: str, messages: int, redelivered: int) -> None:
        """A broker gave so many messages, of which so many had been given out before."""
        labels = (self._group, topic)
        self._counted.add("received", labels, messages)
        if redelivered:
            self._counted.add("redeliveries", labels, redelivered)

    def around(self, handler: _BatchHandler[MessageT]) -> _BatchHandler[MessageT]:
        """The handler, with its time and its outcome counted."""

        def call(messages: Sequence[MessageT]) -> Awaitable[None] | None:
            labels, count, began_s = self._labels(messages), len(messages), steady_s()
            try:
                outcome = handler(messages)
            except BaseException as error:
                self._failed(labels, count, began_s, error)
                raise
            if outcome is not None and inspect.isawaitable(outcome):
                return self._awaited(outcome, labels, count, began_s)
            self._handled(labels, count, began_s)
            return None

        return call

    async def _awaited(
        self, outcome: Awaitable[None], labels: Labels, count: int, began_s: float
    ) -> None:
        try:
            await outcome
        except BaseException as error:
            self._failed(labels, count, began_s, error)
            raise
        self._handled(labels, count, began_s)

    def _labels(self, messages: Sequence[ReceivedMessage]) -> Labels:
        return (self._group, messages[0].topic)

    def _handled(self, labels: Labels, count: int, began_s: float) -> None:
        self._counted.add("handled", labels, count)
        self._counted.observe("handler_duration", labels, steady_s() - began_s)

    def _failed(self, labels: Labels, count: int, began_s: float, error: BaseException) -> None:
        self._counted.add("handler_failures", (*labels, type(error).__name__), count)
        self._counted.observe("handler_duration", labels, steady_s() - began_s)


class Read(Protocol):
    """A queue that is read."""

    @property
    def progress(self) -> QueueProgress:
        """How far it is."""
        ...


def measured_of(
    metrics: Metrics, group: str | None, readings: Callable[[], Mapping[MessageQueue, Read]]
) -> Measured:
    """The numbers of a consumer that reads queues; `readings` is asked in any thread."""
    name = group or limits.READERS_GROUP

    def gauges() -> Iterable[tuple[str, Labels, float]]:
        for queue, reading in readings().items():
            progress = reading.progress
            yield "buffered_messages", (name,), progress.buffered
            yield "lag", (name, queue.topic), progress.lag

    return Measured(metrics, name, gauges)
