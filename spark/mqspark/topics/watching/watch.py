"""Watches queries and long jobs of a session: `with watch(spark, NAME_SERVERS, port=9400): ...`.

After each batch of a query its lag is logged, and served as `/metrics`, if a port is given. A job
that takes longer than some seconds prints a line every few seconds, as batch reads and writes do.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TextIO

from prometheus_client import CollectorRegistry, start_http_server
from pyspark.sql import SparkSession

from dledger.tls.options import AskedTls
from mqclient.blocking import RangeReader
from mqspark.limits import JOB_LINE_S, WATCH_PATIENCE_S
from mqspark.topics.watching.listener import Figures, TopicsListener


class JobLines:
    """Prints a line for each job that takes longer than `after_s`, every so many seconds."""

    def __init__(self, session: SparkSession, after_s: float, out: TextIO) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._after_s, self._out = after_s, out
        self._since: dict[int, float] = {}
        self._printed: dict[int, float] = {}

    def look(self, now_s: float) -> None:
        """Look at the running jobs once."""
        running = {int(job) for job in self._tracker.getActiveJobsIds()}
        self._since = {job: self._since.get(job, now_s) for job in running}
        self._printed = {job: at for job, at in self._printed.items() if job in running}
        for job, since in sorted(self._since.items()):
            if now_s - self._printed.get(job, since) >= self._after_s:
                self._printed[job] = now_s
                print(self._line(job, now_s - since), file=self._out, flush=True)

    def _line(self, job: int, took_s: float) -> str:
        info = self._tracker.getJobInfo(job)
        stages = [self._tracker.getStageInfo(stage) for stage in (info.stageIds if info else ())]
        known = [stage for stage in stages if stage is not None]
        done = sum(stage.numCompletedTasks for stage in known)
        failed = sum(stage.numFailedTasks for stage in known)
        failures = f", {failed} failures" if failed else ""
        tasks = sum(stage.numTasks for stage in known)
        return f"job {job}: {done} of {tasks} tasks, {took_s:.0f} s{failures}"


class Watched(NamedTuple):
    """A session's page, and the port at which it is served; 0 if it is not."""

    registry: CollectorRegistry
    port: int


@contextmanager
def watch(
    session: SparkSession,
    name_server: str,
    *,
    port: int | None = None,
    address: str = "127.0.0.1",
    line_after_s: float = JOB_LINE_S,
    out: TextIO = sys.stderr,
    user: str | None = None,
    secret: str | None = None,
    tls: AskedTls = None,
) -> Iterator[Watched]:
    """Watch a session's queries of one cluster, and its long jobs, until the block ends.

    `/metrics` is served at `port`, if one is given (0: any that is free).
    """
    figures, ended = Figures(), threading.Event()
    lines = JobLines(session, line_after_s, out)

    def look() -> None:
        while not ended.wait(min(1.0, line_after_s / 2)):
            lines.look(time.monotonic())

    looking = threading.Thread(target=look, name="job lines", daemon=True)
    with RangeReader(
        name_server, patience_s=WATCH_PATIENCE_S, user=user, secret=secret, tls=tls
    ) as brokers:
        listener = TopicsListener(brokers, figures)
        server = None
        if port is not None:
            server, _ = start_http_server(port, address, figures.registry)
        session.streams.addListener(listener)
        looking.start()
        try:
            yield Watched(figures.registry, 0 if server is None else server.server_port)
        finally:
            session.streams.removeListener(listener)
            ended.set()
            looking.join()
            if server is not None:
                server.shutdown()
                server.server_close()
