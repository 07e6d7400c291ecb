"""Figures of a consumer that is made with metrics: its fetching, and its handlers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import CoroutineType
from typing import TypeAlias, TypeVar

from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import RETRY_PREFIX
from dledger.world import world
from mqclient import limits
from mqclient.consuming.turns import Reading
from mqclient.metrics import Counted, Labels, MeasuredClient, Metrics
from mqclient.models import ReceivedMessage

MessageT = TypeVar("MessageT", bound=ReceivedMessage)
_BatchHandler: TypeAlias = Callable[[Sequence[MessageT]], Awaitable[None] | None]


class _OfTopic:
    """The figures that each message of a topic changes, kept so that they need not be looked up."""

    __slots__ = ("handled", "samples")

    def __init__(self, counted: Counted, labels: Labels) -> None:
        self.handled = counted.tally("handled", labels)
        self.samples = counted.samples_of("handler_duration", labels)


class Measured(MeasuredClient):
    """The numbers of one consumer.

    As long as all that it was given is of one topic, no handled message is asked for its own.
    """

    def begin(self) -> None:
        """The consumer is opened: nothing is known of its topics yet."""
        super().begin()
        self._topics: dict[str, _OfTopic] = {}
        self._received: str | None = None
        self._mixed = False
        self._only: _OfTopic | None = None

    def received(self, topic: str, messages: int, redelivered: int) -> None:
        """A broker gave so many messages, of which so many had been given out before."""
        labels = (self._group, topic)
        self._counted.add("received", labels, messages)
        if redelivered:
            self._counted.add("redeliveries", labels, redelivered)
        if topic.startswith(RETRY_PREFIX) or self._received not in (None, topic):
            self._mixed, self._only = True, None
        self._received = topic

    def around(self, handler: _BatchHandler[MessageT]) -> _BatchHandler[MessageT]:
        """The handler, with its time and its outcome counted."""
        clock = world().steady_s

        def call(messages: Sequence[MessageT]) -> Awaitable[None] | None:
            # Each line here costs every message: `tests/unit/local/test_cost.py`.
            of_topic, count = self._only or self._of_first(messages), len(messages)
            began_s = clock()
            try:
                outcome = handler(messages)
            except BaseException as error:
                self._failed(messages, count, clock() - began_s, error)
                raise
            if outcome is not None and (
                type(outcome) is CoroutineType or inspect.isawaitable(outcome)
            ):
                return self._awaited(outcome, messages, count, clock, began_s)
            of_topic.samples.add(clock() - began_s)
            of_topic.handled.amount += count
            return None

        return call

    async def _awaited(
        self,
        outcome: Awaitable[None],
        messages: Sequence[ReceivedMessage],
        count: int,
        clock: Callable[[], float],
        began_s: float,
    ) -> None:
        of_topic = self._only or self._of_first(messages)
        try:
            await outcome
        except BaseException as error:
            self._failed(messages, count, clock() - began_s, error)
            raise
        of_topic.samples.add(clock() - began_s)
        of_topic.handled.amount += count

    def _of_first(self, messages: Sequence[ReceivedMessage]) -> _OfTopic:
        of_topic = self._of(messages[0].topic)
        if not self._mixed:
            self._only = of_topic
        return of_topic

    def _of(self, topic: str) -> _OfTopic:
        found = self._topics.get(topic)
        if found is None:
            found = _OfTopic(self._counted, (self._group, topic))
            if len(self._topics) < limits.METRIC_SERIES_MAX:
                self._topics[topic] = found
        return found

    def _failed(
        self,
        messages: Sequence[ReceivedMessage],
        count: int,
        seconds: float,
        error: BaseException,
    ) -> None:
        topic = messages[0].topic
        self._counted.add("handler_failures", (self._group, topic, type(error).__name__), count)
        self._of(topic).samples.add(seconds)


def measured_of(
    metrics: Metrics, group: str | None, readings: Callable[[], Mapping[MessageQueue, Reading]]
) -> Measured:
    """The numbers of a consumer that reads queues; `readings` is asked in any thread."""
    name = group or limits.READERS_GROUP

    def gauges() -> Iterable[tuple[str, Labels, float]]:
        for queue, reading in readings().items():
            progress = reading.progress
            yield "buffered_messages", (name,), progress.buffered
            yield "lag", (name, queue.topic), progress.lag

    return Measured(metrics, name, gauges)
