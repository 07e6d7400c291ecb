"""Numbers of clients for OpenTelemetry: `Producer(NAMESRV, metrics=opentelemetry_metrics())`.

The names begin with `mqclient.`. Clients count for themselves, and are asked when the SDK's reader
collects; OpenTelemetry has no histogram that is asked. So a duration is three counters: `.count`,
`.sum` in seconds, and `.bucket` by its upper end, `le`, as Prometheus has them. Needs
`dledger[otel]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter

from dledger.version import __version__
from mqclient import limits
from mqclient.metrics import FIGURES, Collected, Metrics

BOUNDS = (*(str(float(bound)) for bound in limits.METRIC_BUCKETS_S), "+Inf")
_UNITS = {"seconds": "s", "bytes": "By", "": ""}


def opentelemetry_metrics(meter: Meter | None = None) -> Metrics:
    """New metrics, for a `meter` of the application's, or the process's. Make them once in a
    process, and give them to all its clients."""
    metrics = Metrics()
    meter = meter or get_meter("mqclient", __version__)
    for name, (kind, story, _, unit) in FIGURES.items():
        shown = f"mqclient.{name}"
        if kind == "counter":
            meter.create_observable_counter(shown, [_asked(metrics, name, _numbers)], "", story)
        elif kind == "gauge":
            asked = [_asked(metrics, name, _numbers)]
            meter.create_observable_gauge(shown, asked, _UNITS[unit], story)
        else:
            for part, read, of in (
                ("count", _counts, ""),
                ("sum", _sums, _UNITS[unit]),
                ("bucket", _buckets, ""),
            ):
                asked = [_asked(metrics, name, read)]
                meter.create_observable_counter(f"{shown}.{part}", asked, of, story)
    return metrics


def _asked(
    metrics: Metrics, name: str, read: Callable[[Collected], Iterator[Observation]]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """The callback by which the SDK reads one instrument."""

    def call(_options: CallbackOptions) -> Iterable[Observation]:
        return [
            each
            for collected in metrics.collect()
            if collected.name == name
            for each in read(collected)
        ]

    return call


def _numbers(collected: Collected) -> Iterator[Observation]:
    for values, number in collected.numbers.items():
        yield Observation(number, _attributes(collected, values))


def _counts(collected: Collected) -> Iterator[Observation]:
    for values, distribution in collected.distributions.items():
        yield Observation(sum(distribution.counts), _attributes(collected, values))


def _sums(collected: Collected) -> Iterator[Observation]:
    for values, distribution in collected.distributions.items():
        yield Observation(distribution.total, _attributes(collected, values))


def _buckets(collected: Collected) -> Iterator[Observation]:
    for values, distribution in collected.distributions.items():
        attributes = _attributes(collected, values)
        for bound, count in zip(BOUNDS, accumulate(distribution.counts), strict=True):
            yield Observation(count, attributes | {"le": bound})


def _attributes(collected: Collected, values: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(collected.figure.labels, values, strict=True))
