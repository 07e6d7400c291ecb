"""How long requests took on this replica, and how many sends wait for their turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dledger.metrics.text import Family, Sample, Writer
from mqbroker.flow.latencies import Makings
from mqbroker.metrics.naming import flag
from mqbroker.requests.core import Core

_LATENCY: Final = Family(
    "rocketmq_rpc_latency_milliseconds", "histogram", "From a request's arrival until its answer."
)
_TOPICS: Final = Family(
    "rocketmq_topic_create_execution_time_milliseconds",
    "histogram",
    "Time of requests of tools that make or change topics.",
)
_GROUPS: Final = Family(
    "rocketmq_consumer_group_create_execution_time_milliseconds",
    "histogram",
    "Time of requests of tools that make or change consumer groups.",
)
_WATERMARK: Final = Family(
    "rocketmq_processor_watermark", "gauge", "Sends that wait to be appended, as others are."
)


class RequestFigures:
    """Durations of requests by kind, and the number of sends that wait."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def pieces(self, writer: Writer) -> Iterator[str]:
        """The metric families as text, a piece at a time."""
        latencies = self._core.replies.latencies
        yield from writer.family(_LATENCY, latencies.rows())
        yield from writer.family(_TOPICS, _made(latencies.topics, by_owner=True))
        yield from writer.family(_GROUPS, _made(latencies.groups, by_owner=False))
        waiting = self._core.entries.sends_waiting
        yield from writer.family(_WATERMARK, [({"processor": "send"}, waiting)])


def _made(makings: Makings, *, by_owner: bool) -> Iterable[Sample]:
    """Samples of how long it took to make topics or groups. `by_owner`: whether to tell the
    system's own from others."""
    for (succeeded, is_system), times in list(makings.rows.items()):
        labels = {"invocation_status": "success" if succeeded else "failure"}
        yield labels | ({"is_system": flag(is_system)} if by_owner else {}), times
