"""A web application under gunicorn that makes its producer before the fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.error import URLError

import pytest
from pages import fetched

from mqchaos.cluster.processes import free_ports
from mqlocal import local_cluster_in_thread

APP = """
import os
from threading import Lock

from mqclient.blocking import Message, Producer

producer = Producer("{namesrv}", group="web")
lock, is_open = Lock(), {early}
if is_open:
    producer.open()

def application(environ, start_response):
    global is_open
    with lock:
        if not is_open:
            producer.open()
            is_open = True
    try:
        sent = producer.send(Message("Web", environ["QUERY_STRING"].encode()))
        said = f"{{os.getpid()}} {{sent.queue_id}} {{sent.queue_offset}}"
    except Exception as error:
        said = f"{{type(error).__name__}} {{error}}"
    start_response("200 OK", [("Content-Length", str(len(said.encode())))])
    return [said.encode()]
"""
REQUESTS = 60
WAIT_S = 60


def get(url: str) -> str:
    status, said = fetched(url, WAIT_S)
    assert status == HTTPStatus.OK, said
    return said


@contextmanager
def served(folder: Path, namesrv: str, *options: str, early: bool = False) -> Iterator[str]:
    """gunicorn with three workers, which ends in order at SIGTERM."""
    (folder / "app.py").write_text(APP.format(namesrv=namesrv, early=early))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    argv = [sys.executable, "-m", "gunicorn", "--preload", "-w", "3", "-b", address, *options]
    home = {**os.environ, "HOME": str(folder)}  # where gunicorn has a socket
    process = subprocess.Popen([*argv, "app:application"], cwd=folder, env=home)
    try:
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            try:
                get(f"http://{address}/?first")
                break
            except (URLError, ConnectionError):
                time.sleep(0.1)
        yield f"http://{address}/"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("options", [(), ("--threads", "4")])
def test_workers_open_what_the_program_made_before_it_forked(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """Each message is stored once, at a place of its own; the workers end when they are told to."""
    with (
        local_cluster_in_thread(replicas=1) as cluster,
        served(tmp_path, cluster.namesrv_addr, *options) as url,
        ThreadPoolExecutor(6) as pool,
    ):

        def ask(number: int) -> list[str]:
            return get(f"{url}?{number}").split()

        said = [*pool.map(ask, range(REQUESTS))]
    assert len({(queue_id, offset) for _, queue_id, offset in said}) == REQUESTS


def test_a_producer_that_was_open_before_the_fork_says_what_to_do(tmp_path: Path) -> None:
    """A request of an open producer's child fails at once with the remedy; workers still end."""
    with (
        local_cluster_in_thread(replicas=1) as cluster,
        served(tmp_path, cluster.namesrv_addr, early=True) as url,
    ):
        began_s = time.monotonic()
        said = get(f"{url}?x")
        assert time.monotonic() - began_s < 2
    assert said.startswith("ClientClosed")
    assert "fork" in said
