"""The port where a broker tells its figures."""

from __future__ import annotations

import trio

from dledger.metrics.admission import Admission
from dledger.metrics.config import Port
from dledger.metrics.pages import Pages
from dledger.metrics.serving import serve_figures
from mqbroker.metrics.health import BrokerHealth
from mqbroker.metrics.page import BrokerFigures
from mqbroker.metrics.sources import Process, Sources


async def serve_metrics(
    where: Port,
    sources: Sources,
    process: Process | None,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `task_status` gets the port. ConfigError if it can't be had."""
    core, figures = sources.core, BrokerFigures(sources, process)
    tls = core.tls and core.tls.taker
    admission = Admission(
        where.host,
        where.token,
        core.guard,
        lambda: core.config.broker_cluster_name,
        None if tls is None else tls.options,
    )
    pages = Pages(admission, figures.pieces, figures.details, BrokerHealth(core))
    await serve_figures(
        pages, where.host, where.port, core.faults, tls=tls, task_status=task_status
    )
