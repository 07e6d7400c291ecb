"""examples/web: a service and its workers as real processes, which end in order at SIGTERM."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request

import pytest
from pages import fetched

from mqlocal import local_cluster_in_thread

WEB = Path(__file__).parents[2] / "examples" / "web"
ORDERS = 60
PATIENCE_S = 30.0


@contextmanager
def process(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=WEB,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def ended(running: subprocess.Popen[str]) -> str:
    """Tell it to end, and return what it has said."""
    running.send_signal(signal.SIGTERM)
    assert running.stdout is not None
    said = running.stdout.read()
    assert running.wait(PATIENCE_S) in (0, -signal.SIGTERM), said
    return said


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as bound:
        port: int = bound.getsockname()[1]
        return port


def post(url: str, order: dict[str, object]) -> int:
    """The status of the answer; tries again until the service listens."""
    request = Request(url, json.dumps(order).encode(), method="POST")  # noqa: S310
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            status, _ = fetched(request, PATIENCE_S)
        except URLError:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        else:
            return status


SERVERS = {
    "uvicorn": ["uvicorn", "service:app", "--no-access-log", "--port"],
    "gunicorn": ["gunicorn", "shop_wsgi", "--preload", "--workers=2", "--threads=3", "--bind"],
}
"""Each ends with the place where it listens."""


@pytest.mark.parametrize("server", SERVERS)
def test_orders_are_taken_and_billed_once_while_workers_are_deployed_anew(
    server: str, tmp_path: Path
) -> None:
    """Orders are billed once, though each worker is told to end in the middle of its work."""
    with local_cluster_in_thread(replicas=1) as cluster:
        port = str(free_port())
        place = port if server == "uvicorn" else f"127.0.0.1:{port}"
        argv = ["-m", *SERVERS[server], place]
        home = str(tmp_path)  # where gunicorn has a socket
        with process(*argv, NAMESRV=cluster.namesrv_addr, HOME=home) as service:
            url = f"http://127.0.0.1:{port}/orders"
            said = ""
            for part in range(3):
                with process("worker.py", cluster.namesrv_addr) as worker:
                    for number in range(part * ORDERS // 3, (part + 1) * ORDERS // 3):
                        assert post(url, {"id": number, "customer": number % 5}) == 201
                    enough = ORDERS if part == 2 else part * ORDERS // 3 + 5
                    assert worker.stdout is not None
                    while len(re.findall("billed", said)) < enough:
                        line = worker.stdout.readline()
                        assert line, said
                        said += line
                    said += ended(worker)
            ended(service)
    assert said.count("stopped in order") == 3
    billed = [int(number) for number in re.findall(r"billed (\d+) ", said)]
    assert sorted(billed) == [*range(ORDERS)]
    for customer in range(5):
        of_customer = [number for number in billed if number % 5 == customer]
        assert of_customer == sorted(of_customer)
