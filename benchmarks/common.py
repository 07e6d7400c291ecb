"""Shared parts of the benchmarks: a cluster of real processes, a loopback control, result files.

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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import Flush, plan, ports_needed
from mqchaos.cluster.probe import serving
from mqchaos.cluster.processes import free_ports

RESULTS = Path(__file__).resolve().parent / "results"
WARM_STEP_BYTES = 4 << 20
WARM_FREE_BYTES = 256 << 20

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
            await serving(cluster)
            yield cluster


@contextmanager
def warm_memory(folder: Path) -> Iterator[Callable[[], None]]:
    """Fill the machine's free memory with cached pages, as on a server that has run for a day.

    A virtual machine gets memory from its host when it first touches it, and gives back what is
    free: on ours the first write to a page took ten times as long as one to a page that was used
    just before. Yields a function that fills again what was freed since. The file is a hole, so
    this costs no disk; its pages are clean, and any program may take them.
    """
    with (folder / "warm").open("w+b", buffering=0) as file:
        (folder / "warm").unlink()
        file.truncate(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        piece = bytearray(WARM_STEP_BYTES)

        def fill() -> None:
            at = 0
            while free_bytes() > WARM_FREE_BYTES and os.preadv(file.fileno(), [piece], at):
                at += len(piece)

        yield fill


def free_bytes() -> int:
    """Memory that holds nothing, not even a cached page."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemFree"].split()[0]) << 10


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
    """Microseconds of one core that each process spent on a message."""
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


def python() -> str:
    """The version of Python, and whose build it is: one that was built without profiles is a
    quarter slower."""
    of_system = sys.base_prefix == "/usr"
    whose = f"{platform.freedesktop_os_release()['NAME']}'s" if of_system else "a build of its own"
    return f"{platform.python_version()} ({whose})"


def keep(name: str, result: dict[str, object]) -> Path:
    """Write a result beside the others, with the machine and the time; the file."""
    now = datetime.now(UTC)
    facts = {
        "benchmark": name,
        "at": now.isoformat(timespec="seconds"),
        "python": python(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{now:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(facts | result, indent=2) + "\n")
    return path
