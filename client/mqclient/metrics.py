"""Figures of a program's clients: messages sent, received and handled, for a collector.

::

    metrics = Metrics()
    Producer(NAMESRV, metrics=metrics)
    Consumer(NAMESRV, "G", {"Orders": "*"}, metrics=metrics)

`Metrics.collect` gives all of them at that moment, from any thread; `mqclient.contrib.prometheus`
and `mqclient.contrib.opentelemetry` hand them on. A client counts for itself, without a lock, in
steps that cost little; sums are made when somebody looks. What a client has counted stays when it
is closed, so no sum ever falls. A client without `metrics` counts nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from operator import add, sub
from threading import Lock
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from mqclient import limits

Labels: TypeAlias = tuple[str, ...]
"""The values of a figure's labels, in the order in which `FIGURES` has their names."""
SeriesT = TypeVar("SeriesT")
Gauges: TypeAlias = Callable[[], Iterable[tuple[str, Labels, float]]]
"""A function that gives the current values: the figure, its labels, its value."""


class Figure(NamedTuple):
    """The description of a figure. `unit` is the unit of a histogram's samples, or of a gauge."""

    kind: Literal["counter", "gauge", "histogram"]
    story: str
    labels: tuple[str, ...]
    unit: str = ""


_OF_TOPIC = ("group", "topic")
FIGURES: Final[Mapping[str, Figure]] = {
    "sends": Figure("counter", "messages acknowledged, or sent one-way", _OF_TOPIC),
    "send_failures": Figure(
        "counter",
        "messages that were not acknowledged, and calls that were refused, by the error",
        (*_OF_TOPIC, "error"),
    ),
    "send_retries": Figure("counter", "batches that were sent again", _OF_TOPIC),
    "send_duration": Figure(
        "histogram",
        "from when a batch's first message was handed over until it was acknowledged",
        _OF_TOPIC,
        "seconds",
    ),
    "pending_messages": Figure("gauge", "messages handed over and not settled yet", ("group",)),
    "pending_messages_limit": Figure("gauge", "how many there may be", ("group",)),
    "pending": Figure("gauge", "their size", ("group",), "bytes"),
    "pending_limit": Figure("gauge", "how large they may be together", ("group",), "bytes"),
    "received": Figure("counter", "messages fetched from brokers", _OF_TOPIC),
    "redeliveries": Figure("counter", "messages that had been given out before", _OF_TOPIC),
    "handled": Figure("counter", "messages whose handler returned", _OF_TOPIC),
    "handler_failures": Figure(
        "counter", "messages whose handler raised, by the error", (*_OF_TOPIC, "error")
    ),
    "handler_duration": Figure(
        "histogram", "a handler's time, for a message or a batch", _OF_TOPIC, "seconds"
    ),
    "lag": Figure("gauge", "messages not processed yet, in the queues of this client", _OF_TOPIC),
    "buffered_messages": Figure("gauge", "messages fetched and not handed out yet", ("group",)),
}
"""All there are. A producer's `group` is its own."""


class Distribution(NamedTuple):
    """Samples of a histogram, and their sum.

    `counts` has the number of samples between each of `limits.METRIC_BUCKETS_S` and the bound
    before it; its last number is that of samples above all bounds.
    """

    counts: tuple[int, ...]
    total: float


NOTHING: Final = Distribution((0,) * (len(limits.METRIC_BUCKETS_S) + 1), 0.0)


class Collected(NamedTuple):
    """A figure, and its values by their labels."""

    name: str
    figure: Figure
    numbers: Mapping[Labels, float]
    distributions: Mapping[Labels, Distribution]


class Tally:
    """A count that only grows."""

    __slots__ = ("amount",)

    def __init__(self) -> None:
        self.amount = 0.0


class _Waiting(list[float]):
    """Samples that are not in their buckets yet; `before` are all others."""

    def __init__(self, before: Distribution) -> None:
        super().__init__()
        self.before = before


class Samples:
    """A histogram's samples: they wait in a list, and many are put into their buckets together.

    Only one thread adds and settles; any thread may call `distribution`, as both values that it
    needs belong to one list.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting = _Waiting(NOTHING)

    def add(self, seconds: float) -> None:
        """Count one more sample, in seconds."""
        self.waiting.append(seconds)
        if len(self.waiting) >= limits.METRIC_SAMPLES_WAITING_MAX:
            self.settle()

    def settle(self) -> None:
        """Put the waiting samples into their buckets."""
        if self.waiting:
            self.waiting = _Waiting(self.distribution())

    def distribution(self) -> Distribution:
        """The distribution of all samples."""
        waiting = self.waiting
        before, seconds = waiting.before, sorted(waiting)
        ends = [bisect_right(seconds, bound) for bound in limits.METRIC_BUCKETS_S]
        counts = map(sub, [*ends, len(seconds)], [0, *ends])
        return Distribution(
            tuple(map(add, before.counts, counts)), before.total + math.fsum(seconds)
        )


class Counted:
    """The figures of one client. Only the client's own thread writes."""

    def __init__(self, gauges: Gauges) -> None:
        self.gauges = gauges
        self.numbers: dict[str, dict[Labels, Tally]] = {name: {} for name in FIGURES}
        self.samples: dict[str, dict[Labels, Samples]] = {name: {} for name in FIGURES}

    def add(self, name: str, labels: Labels, amount: float) -> None:
        """Add an amount to the count of these labels."""
        self.tally(name, labels).amount += amount

    def observe(self, name: str, labels: Labels, seconds: float) -> None:
        """Add a sample to the distribution of these labels."""
        self.samples_of(name, labels).add(seconds)

    def tally(self, name: str, labels: Labels) -> Tally:
        """The count with these labels. A caller that counts often may keep it."""
        return self.numbers[name].get(labels) or _series_of(labels, self.numbers[name], Tally)

    def samples_of(self, name: str, labels: Labels) -> Samples:
        """The samples with these labels. A caller that adds often may keep them."""
        return self.samples[name].get(labels) or _series_of(labels, self.samples[name], Samples)


def _series_of(
    labels: Labels, series: dict[Labels, SeriesT], make: Callable[[], SeriesT]
) -> SeriesT:
    """The figure for these labels; once there are very many labels, the figure for all others."""
    if len(series) >= limits.METRIC_SERIES_MAX:
        labels = ("others",) * len(labels)
    return series.get(labels) or series.setdefault(labels, make())


class Metrics:
    """Figures of all clients that are made with this object."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clients: dict[Counted, None] = {}
        self._before = _Sums()

    def begin(self, gauges: Gauges) -> Counted:
        """Begin the figures of a client."""
        counted = Counted(gauges)
        with self._lock:
            self._clients[counted] = None
        return counted

    def end(self, counted: Counted) -> None:
        """Close the client's figures; their counts stay."""
        with self._lock:
            if self._clients.pop(counted, counted) is None:
                self._before.add(counted)

    def forget(self, counted: Counted) -> None:
        """Forget the figures, in a fork: the parent process reports its own."""
        self._clients.pop(counted, None)

    def collect(self) -> list[Collected]:
        """All figures, in the order of `FIGURES`, with their values at this moment."""
        with self._lock:
            sums = self._before.copy()
            clients = [*self._clients]
            for counted in clients:
                sums.add(counted)
        for counted in clients:
            for name, labels, value in counted.gauges():
                sums.add_number(name, labels, value)
        return [
            Collected(name, figure, sums.numbers.get(name, {}), sums.distributions.get(name, {}))
            for name, figure in FIGURES.items()
        ]


class MeasuredClient:
    """The figures of one client of a group, from when it is opened until it is closed."""

    def __init__(self, metrics: Metrics, group: str, gauges: Gauges) -> None:
        self._metrics = metrics
        self._group = group
        self._gauges = gauges
        self._counted: Counted

    def begin(self) -> None:
        """The client is opened: its figures begin."""
        self._counted = self._metrics.begin(self._gauges)

    def end(self) -> None:
        """The client is closed: its counts stay."""
        self._metrics.end(self._counted)

    def forget(self) -> None:
        """Forget the figures: this is a fork of the process that opened the client."""
        self._metrics.forget(self._counted)


class _Sums:
    """Sums of several clients' figures."""

    def __init__(self) -> None:
        self.numbers: dict[str, dict[Labels, float]] = {}
        self.distributions: dict[str, dict[Labels, Distribution]] = {}

    def copy(self) -> _Sums:
        copied = _Sums()
        copied.numbers = {name: dict(values) for name, values in self.numbers.items()}
        copied.distributions = {name: dict(each) for name, each in self.distributions.items()}
        return copied

    def add(self, counted: Counted) -> None:
        # Copies are made in one step each: the client goes on counting in its thread.
        for name, numbers in counted.numbers.items():
            for labels, tally in dict(numbers).items():
                self.add_number(name, labels, tally.amount)
        for name, all_samples in counted.samples.items():
            for labels, samples in dict(all_samples).items():
                sums, more = self.distributions.setdefault(name, {}), samples.distribution()
                before = sums.get(labels, NOTHING)
                counts = tuple(map(add, before.counts, more.counts))
                sums[labels] = Distribution(counts, before.total + more.total)

    def add_number(self, name: str, labels: Labels, value: float) -> None:
        values = self.numbers.setdefault(name, {})
        values[labels] = values.get(labels, 0.0) + value
