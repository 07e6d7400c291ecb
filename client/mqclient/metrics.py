"""Numbers of a program's clients: what they sent, received and handled, for whoever collects them.

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

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Final, Literal, NamedTuple, TypeAlias

from mqclient import limits

Labels: TypeAlias = tuple[str, ...]
"""The values of a figure's labels, in the order in which `FIGURES` has their names."""
Gauges: TypeAlias = Callable[[], Iterable[tuple[str, Labels, float]]]
"""Called for what is so at the moment: the figure, its labels, its value."""


class Figure(NamedTuple):
    """What a number is. `unit`: of a histogram's samples, and of a gauge."""

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

    `counts`: how many lie between each of `limits.METRIC_BUCKETS_S` and the bound before it; the
    last is how many lie above all bounds.
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


class _Samples:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [*NOTHING.counts]
        self.total = NOTHING.total


class Counted:
    """What one client has counted. Only its own thread writes."""

    def __init__(self, gauges: Gauges) -> None:
        self.gauges = gauges
        self.numbers: dict[str, dict[Labels, float]] = {}
        self.samples: dict[str, dict[Labels, _Samples]] = {}

    def add(self, name: str, labels: Labels, amount: float) -> None:
        """Count so many more."""
        numbers = self.numbers.get(name)
        if numbers is None:
            numbers = self.numbers[name] = {}
        before = numbers.get(labels)
        if before is None:
            labels = _bounded(labels, numbers)
            before = numbers.get(labels, 0.0)
        numbers[labels] = before + amount

    def observe(self, name: str, labels: Labels, seconds: float) -> None:
        """Have one sample more."""
        all_samples = self.samples.get(name)
        if all_samples is None:
            all_samples = self.samples[name] = {}
        samples = all_samples.get(labels)
        if samples is None:
            samples = all_samples.setdefault(_bounded(labels, all_samples), _Samples())
        samples.counts[bisect_left(limits.METRIC_BUCKETS_S, seconds)] += 1
        samples.total += seconds


def _bounded(labels: Labels, kept: Mapping[Labels, object]) -> Labels:
    """The labels; or, once there are very many, those for all others."""
    return labels if len(kept) < limits.METRIC_SERIES_MAX else ("others",) * len(labels)


class Metrics:
    """Figures of all clients that are made with this object."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clients: dict[Counted, None] = {}
        self._before = _Sums()

    def begin(self, gauges: Gauges) -> Counted:
        """A client begins to count."""
        counted = Counted(gauges)
        with self._lock:
            self._clients[counted] = None
        return counted

    def end(self, counted: Counted) -> None:
        """It is closed: what it has counted stays."""
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


class _Sums:
    """Of several clients."""

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
        for name, numbers in dict(counted.numbers).items():
            for labels, value in dict(numbers).items():
                self.add_number(name, labels, value)
        for name, all_samples in dict(counted.samples).items():
            sums = self.distributions.setdefault(name, {})
            for labels, samples in dict(all_samples).items():
                before, counts = sums.get(labels, NOTHING), tuple(samples.counts)
                both = zip(before.counts, counts, strict=True)
                total = before.total + samples.total
                sums[labels] = Distribution(tuple(one + other for one, other in both), total)

    def add_number(self, name: str, labels: Labels, value: float) -> None:
        values = self.numbers.setdefault(name, {})
        values[labels] = values.get(labels, 0.0) + value
