"""Numbers of clients for prometheus-client: `Producer(NAMESRV, metrics=prometheus_metrics())`.

Whatever shows the registry shows them: `start_http_server`, `make_asgi_app`. Their names begin with
`mqclient_`. Needs `dledger[prometheus]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mqclient import limits
from mqclient.metrics import Collected, Distribution, Metrics

BOUNDS = [*(str(float(bound)) for bound in limits.METRIC_BUCKETS_S), "+Inf"]


def prometheus_metrics(registry: CollectorRegistry = REGISTRY) -> Metrics:
    """New metrics, in a registry. Make them once in a process, and give them to all its clients."""
    metrics = Metrics()
    registry.register(_Collector(metrics))
    return metrics


class _Collector(Collector):
    """The collector that a registry asks when it is asked itself."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """The names, by which a registry finds that it has them already."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """All that there is at this moment."""
        return map(_family, self._metrics.collect())


def _family(collected: Collected) -> Metric:
    kind, story, labels, unit = collected.figure
    named = (f"mqclient_{collected.name}", story)
    if kind == "counter":
        counter = CounterMetricFamily(*named, labels=labels)
        for values, number in collected.numbers.items():
            counter.add_metric(values, number)
        return counter
    if kind == "gauge":
        gauge = GaugeMetricFamily(*named, labels=labels, unit=unit)
        for values, number in collected.numbers.items():
            gauge.add_metric(values, number)
        return gauge
    histogram = HistogramMetricFamily(*named, labels=labels, unit=unit)
    for values, distribution in collected.distributions.items():
        histogram.add_metric(values, _buckets(distribution), distribution.total)
    return histogram


def _buckets(distribution: Distribution) -> list[tuple[str, float]]:
    """How many samples are up to each bound."""
    return [*zip(BOUNDS, accumulate(distribution.counts), strict=True)]
