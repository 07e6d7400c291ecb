"""A broker's figures as pages: one for all, one for what is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dledger.metrics.pages import Details
from dledger.metrics.shown import Shown
from dledger.metrics.text import Family, Writer
from mqbroker.metrics.details import QueueFigures
from mqbroker.metrics.lag import LagFigures
from mqbroker.metrics.members import MemberFigures
from mqbroker.metrics.server import ServerFigures
from mqbroker.metrics.sources import Process, Sources
from mqbroker.metrics.timers import TimerFigures
from mqbroker.metrics.times import RequestFigures
from mqbroker.metrics.traffic import Names, TrafficFigures

_FOLDED: Final = Family(
    "dledger_metrics_folded", "gauge", "Topics and groups that are counted as _other."
)


class BrokerFigures:
    """Writer of a broker's pages of metrics, /metrics and /metrics/detailed."""

    def __init__(self, sources: Sources, process: Process | None) -> None:
        core = self._core = sources.core
        self._names = Names(Shown(), Shown(), core.config.names)
        self._members = MemberFigures(sources)
        self._server = ServerFigures(sources, process, self._names)
        self._traffic = TrafficFigures(core.machine, core.rates, self._names)
        self._timers = TimerFigures(core.machine, core.rates, self._names, core.clock_ms)
        self._requests = RequestFigures(core)
        self._lag = LagFigures(sources, self._names)
        self._queues = QueueFigures(sources)
        self._writer = Writer(
            {
                "cluster": core.config.broker_cluster_name,
                "node_type": "broker",
                "node_id": core.config.broker_name,
                "member": core.role.node_id,
            }
        )

    def pieces(self) -> Iterator[str]:
        """The text of /metrics, a piece at a time; a follower leaves out what only the leader
        knows."""
        yield from self._choose()
        yield from self._members.pieces(self._writer)
        yield from self._server.pieces(self._writer)
        yield from self._requests.pieces(self._writer)
        if not self._core.role.serving:
            return
        yield from self._traffic.pieces(self._writer)
        yield from self._timers.pieces(self._writer)
        yield from self._lag.pieces(self._writer)
        names = self._names
        yield from self._writer.family(
            _FOLDED,
            [({"what": "topics"}, names.topics.folded), ({"what": "groups"}, names.groups.folded)],
        )

    def details(self, wanted: Details) -> Iterator[str]:
        """The text of /metrics/detailed, a piece at a time. Raises NoSuchName, BadInput."""
        yield from self._queues.notes(wanted)
        if self._core.role.serving:
            yield from self._queues.pieces(wanted, self._writer)

    def _choose(self) -> Iterator[str]:
        core, names = self._core, self._names
        topics = [topic.topic_name for topic in core.machine.topics]
        for _ in names.topics.choosing(topics, self._traffic.weights, core.clock_s()):
            yield ""
        groups = [group.group_name for group in core.machine.groups]
        for _ in names.groups.choosing(groups, self._traffic.group_weights, core.clock_s()):
            yield ""
