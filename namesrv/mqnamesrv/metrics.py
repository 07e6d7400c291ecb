"""A name server's figures and its port for them: what it knows, who is connected, what it refuses.

RocketMQ's name servers export nothing, so all names are ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import trio

from dledger.metrics.admission import Admission
from dledger.metrics.config import Port
from dledger.metrics.limits import HISTORY_STEP_S
from dledger.metrics.pages import Details, Pages
from dledger.metrics.requests import NoSuchName
from dledger.metrics.serving import serve_figures
from dledger.metrics.text import CERTIFICATE_END, CLOCK, Family, Sample, Writer
from dledger.net import Faults
from dledger.net.machine import memory_bytes
from dledger.net.quota import ConnectionQuota
from dledger.program.pulse import look
from dledger.tls.servers import ServerContexts
from dledger.version import __version__
from dledger.world import unix_ms
from mqnamesrv.requests.dispatch import Dispatcher

_WRITER = Writer({"node_type": "namesrv"})


@dataclass(frozen=True, slots=True)
class NamesrvFigures:
    """Writer of a name server's page of metrics."""

    _dispatcher: Dispatcher
    _quota: ConnectionQuota
    _faults: Faults
    _tls: ServerContexts | None = None

    def pieces(self) -> Iterator[str]:
        """The text of /metrics, a family at a time."""
        for family, samples in self._families():
            yield from _WRITER.family(family, samples)

    def details(self, _: Details) -> Iterator[str]:
        """Name servers know no queues' offsets and no groups. Raises NoSuchName."""
        raise NoSuchName("a name server has no details of topics and groups: ask the brokers")

    def _families(self) -> Iterator[tuple[Family, Iterable[Sample]]]:
        routes, quota = self._dispatcher.routes, self._quota
        members, terms = list[Sample](), list[Sample]()
        for group in list(routes.groups.values()):
            labels = {"cluster": group.cluster, "node_id": group.broker_name}
            led = group.leader is not None
            members.append((labels | {"role": "leader"}, int(led)))
            members.append((labels | {"role": "follower"}, len(group.members) - led))
            if group.term is not None:
                terms.append((labels, group.term))
        text = "Members of a broker group that are registered."
        yield Family("dledger_namesrv_members", "gauge", text), members
        text = "The newest term that a leader has shown."
        yield Family("dledger_namesrv_term", "gauge", text), terms
        for name, value, text in (
            ("dledger_namesrv_topics", routes.topics.rows, "Topics, counted in each group."),
            (
                "dledger_namesrv_settled",
                int(self._dispatcher.settles_in_ms() is None),
                "Whether all is known.",
            ),
            ("dledger_connections", quota.places_taken, "Connections."),
            ("dledger_connections_max", quota.places_max, "How many there may be."),
            ("dledger_connections_memory_bytes", quota.charged_bytes, "Bytes kept for them."),
            ("dledger_connections_memory_bytes_max", quota.bytes_max, "How many there may be."),
        ):
            yield Family(name, "gauge", text), [({}, value)]
        yield CLOCK, [({}, unix_ms() / 1000)]
        text = "The version that runs here."
        yield Family("dledger_build_info", "gauge", text), [({"version": __version__}, 1)]
        text = "Unforeseen exceptions."
        yield Family("dledger_faults_total", "counter", text), [({}, self._faults.count)]
        ended = [
            ({"reason": "no room"}, quota.refused),
            ({"reason": "never spoke"}, quota.evicted),
            ({"reason": "memory"}, quota.offenders),
        ]
        text = "Connections that were refused or closed by a bound."
        yield Family("dledger_connections_turned_away_total", "counter", text), ended
        if self._tls is not None and self._tls.ends_s is not None:
            yield CERTIFICATE_END, [({}, self._tls.ends_s)]


@dataclass(frozen=True, slots=True)
class Recorder:
    """Keeps some of the figures of the last hour."""

    _dispatcher: Dispatcher
    _quota: ConnectionQuota
    _faults: Faults

    async def run(self) -> None:
        """Take the figures until cancelled."""
        while True:
            self._dispatcher.history.add(unix_ms(), self.figures())
            await look(HISTORY_STEP_S)

    def figures(self) -> dict[str, float]:
        """The present values of the figures."""
        routes, quota = self._dispatcher.routes, self._quota
        groups = list(routes.groups.values())
        return {
            "broker_groups": len(groups),
            "members": sum(len(group.members) for group in groups),
            "leaders": sum(group.leader is not None for group in groups),
            "topics": routes.topics.rows,
            "settled": self._dispatcher.settles_in_ms() is None,
            "faults_total": self._faults.count,
            "connections": quota.places_taken,
            "connection_memory_bytes": quota.charged_bytes,
            "connections_refused_total": quota.refused,
            "connections_evicted_total": quota.evicted,
            "connections_over_memory_total": quota.offenders,
            "cpu_seconds_total": time.process_time(),
            "memory_bytes": memory_bytes(),
        }


class NamesrvHealth:
    """Judges one name server now."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def alive(self) -> None:
        """No reason: a name server that answers is alive."""

    def ready(self) -> str | None:
        """The reason why its routes may lack something; None if there is none."""
        if self._dispatcher.settles_in_ms() is None:
            return None
        return "it has just begun: brokers may be about to register"

    def safe_to_stop(self) -> None:
        """Safe to stop: brokers tell every name server all that it keeps."""


async def serve_metrics(
    where: Port,
    dispatcher: Dispatcher,
    quota: ConnectionQuota,
    faults: Faults,
    tls: ServerContexts | None = None,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `task_status` gets the port. ConfigError if it can't be had."""
    figures = NamesrvFigures(dispatcher, quota, faults, tls)
    admission = Admission(
        where.host,
        where.token,
        dispatcher.users.guard,
        lambda: dispatcher.users.cluster,
        None if tls is None else tls.options,
    )
    pages = Pages(admission, figures.pieces, figures.details, NamesrvHealth(dispatcher))
    await serve_figures(pages, where.host, where.port, faults, tls=tls, task_status=task_status)
