"""What the benchmarks share: a cluster of real processes, a bare loopback control, result files.

The control moves the same bytes, in the same pieces, between two plain processes over one loopback
connection: what the machine gives at that moment to a program that does nothing else. It runs
between the measured rounds, so that a busy machine shows in both.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from chaos.cluster import Cluster
from chaos.layout import Flush, plan, ports_needed
from chaos.probe import Probe
from chaos.processes import free_ports
from client.peers import PeerPool

RESULTS = Path(__file__).resolve().parent / "results"

_ECHO = """
import socket, sys
asked, answered = int(sys.argv[2]), bytes(int(sys.argv[3]))
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(asked))
    while True:
        got = 0
        while got < asked:
            n = s.recv_into(buffer[got:])
            if not n:
                sys.exit()
            got += n
        s.sendall(answered)
"""


class Control:
    """A peer process that answers `asked` bytes with `answered` bytes, for ever."""

    def __init__(self, connected: socket.socket, asked: int, answered: int) -> None:
        self._socket = connected
        self._question = bytes(asked)
        self._answer = bytearray(answered)

    def round_trips(self, count: int, in_flight: int) -> list[float]:
        """Make `count` exchanges, `in_flight` at a time; the seconds that each took."""
        sent: list[float] = []
        seconds: list[float] = []
        while len(seconds) < count:
            while len(sent) < count and len(sent) - len(seconds) < in_flight:
                sent.append(time.perf_counter())
                self._socket.sendall(self._question)
            left = memoryview(self._answer)
            while left:
                left = left[self._socket.recv_into(left) :]
            seconds.append(time.perf_counter() - sent[len(seconds)])
        return seconds


@contextmanager
def control(asked: int, answered: int) -> Iterator[Control]:
    """Start the peer process and connect."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arguments = [str(listener.getsockname()[1]), str(asked), str(answered)]
        child = subprocess.Popen([sys.executable, "-c", _ECHO, *arguments])
        connected, _ = listener.accept()
    try:
        with connected:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield Control(connected, asked, answered)
    finally:
        child.wait(timeout=10)


@asynccontextmanager
async def running_cluster(flush: Flush, nodes: int = 3) -> AsyncIterator[Cluster]:
    """A name server and a broker group on free ports, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="dledger-benchmark-") as folder:
        layout = plan(free_ports(ports_needed(nodes, 1, 1)), nodes, 1, 1, flush)
        with Cluster.create(Path(folder) / "cluster", layout).running() as cluster:
            async with PeerPool() as pool:
                await Probe(cluster, pool).wait_until_serving()
            yield cluster


def cpu_seconds(cluster: Cluster) -> dict[str, float]:
    """CPU time so far of this process ("client") and each server: other load leaves it be."""
    ticks = os.sysconf("SC_CLK_TCK")
    pids = {name: cluster.pid(name) for name in cluster.names} | {"client": os.getpid()}
    seconds = {}
    for name, pid in pids.items():
        # utime and stime, the 14th and 15th field; the second, the name, may hold blanks.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds[name] = (int(fields[11]) + int(fields[12])) / ticks
    return seconds


def cpu_us_per_message(
    before: dict[str, float], after: dict[str, float], messages: int
) -> dict[str, float]:
    """What each process spent on a message, in microseconds of one core."""
    return {name: round(1e6 * (after[name] - before[name]) / messages, 2) for name in before}


def spread(values: list[float], digits: int = 0) -> dict[str, float]:
    """Median, worst and best of some figures."""
    rounded = [round(value, digits) for value in values]
    return {"median": statistics.median(rounded), "min": min(rounded), "max": max(rounded)}


def percentiles_ms(seconds: list[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile in milliseconds."""
    ordered = sorted(seconds)
    at = {"median": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: round(1000 * ordered[int(len(ordered) * p)], 3) for name, p in at.items()}


def keep(name: str, result: dict[str, object]) -> Path:
    """Write a result beside the others, with the machine and the time; the file."""
    now = datetime.now(UTC)
    facts = {
        "benchmark": name,
        "at": now.isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{now:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(facts | result, indent=2) + "\n")
    return path
