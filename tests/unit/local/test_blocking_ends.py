"""Blocking clients that are drained, and those that a program forgets to close."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mqclient import ClientClosed, Message
from mqclient.blocking import Consumer, PopConsumer, run_until_signal
from mqclient.models import ReceivedMessage
from mqlocal.threaded import local_cluster_in_thread

WAIT_S = 60


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("kind", [Consumer, PopConsumer])
def test_a_drained_run_returns_once_its_handlers_are_through(
    kind: type[Consumer], concurrency: int
) -> None:
    """Called by another thread, as a signal's handler would; nothing comes twice."""
    began, ended = threading.Event(), []

    def handle(message: ReceivedMessage) -> None:
        began.set()
        time.sleep(0.3)
        ended.append(message.body)

    with local_cluster_in_thread(replicas=1) as cluster:
        with cluster.producer() as producer:
            producer.send_many("T", [b"%d" % number for number in range(10)])
        with kind(cluster.namesrv_addr, "G", {"T": "*"}) as consumer:
            running = threading.Thread(target=consumer.run, args=(handle, concurrency))
            running.start()
            assert began.wait(WAIT_S)
            assert consumer.drain()
            running.join(WAIT_S)
            assert not running.is_alive()
            with pytest.raises(ClientClosed, match="drained"):
                consumer.poll()
        first = len(ended)
        assert 1 <= first <= 4
        with cluster.consumer("G", {"T": "*"}) as consumer:
            ended += [message.body for message in consumer.poll(20, timeout_s=WAIT_S)]
            while kind is Consumer and len(ended) < 10:
                ended += [message.body for message in consumer.poll(20, timeout_s=WAIT_S)]
    if kind is Consumer:
        assert sorted(map(int, ended)) == [*range(10)]


def test_what_a_program_has_handed_over_is_sent_though_it_forgets_to_close() -> None:
    """A program that forgets to close sends all that it handed over, and its consumer leaves."""
    with local_cluster_in_thread(replicas=1) as cluster:
        program = (
            "import logging\n"
            "from mqclient.blocking import Consumer, Message, Producer\n"
            "logging.basicConfig()\n"
            f"consumer = Consumer({cluster.namesrv_addr!r}, 'G', {{'T': '*'}}).open()\n"
            f"producer = Producer({cluster.namesrv_addr!r}, linger_s=1.0).open()\n"
            "for number in range(5):\n"
            "    producer.send_soon(Message('T', str(number).encode()))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, timeout=WAIT_S, check=True
        )
        assert b"was not closed" in done.stderr
        got = []
        with cluster.consumer("H", {"T": "*"}) as consumer:
            while len(got) < 5:
                got += [message.body for message in consumer.poll(timeout_s=WAIT_S)]
        assert sorted(map(int, got)) == [*range(5)]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_what_a_worker_has_handed_over_is_sent_though_it_forgets_to_close(
    method: str, tmp_path: Path
) -> None:
    """Children of multiprocessing end without `atexit`; the client was made before they began."""
    program = tmp_path / "program.py"
    with local_cluster_in_thread(replicas=1) as cluster:
        program.write_text(
            "import multiprocessing\n"
            "from mqclient.blocking import Message, Producer\n"
            f"producer = Producer({cluster.namesrv_addr!r}, linger_s=1.0)\n"
            "def work(front):\n"
            "    producer.open()\n"
            "    for number in range(5):\n"
            "        producer.send_soon(Message('T', f'{front}{number}'.encode()))\n"
            "if __name__ == '__main__':\n"
            f"    begin = multiprocessing.get_context({method!r}).Process\n"
            "    workers = [begin(target=work, args=(front,)) for front in (1, 2)]\n"
            "    for worker in workers:\n"
            "        worker.start()\n"
            "    for worker in workers:\n"
            "        worker.join()\n"
        )
        subprocess.run([sys.executable, program], timeout=WAIT_S, check=True)
        got = []
        with cluster.consumer("H", {"T": "*"}) as consumer:
            while len(got) < 10 and (messages := consumer.poll(timeout_s=WAIT_S)):
                got += [message.body for message in messages]
        assert sorted(map(int, got)) == [*range(10, 15), *range(20, 25)]


WORKER = """
import asyncio, os, sys, time
import mqclient
from mqclient import blocking

def say(text):
    os.write(1, text.encode() + b"\\n")  # one write: threads say something at once

def handle(message):
    say(f"began {{message.body.decode()}}")
    time.sleep(0.2)
    say(f"ended {{message.body.decode()}}")

async def handle_soon(message):
    say(f"began {{message.body.decode()}}")
    await asyncio.sleep(0.2)
    say(f"ended {{message.body.decode()}}")

async def on_asyncio(kind, concurrency):
    async with getattr(mqclient, kind)({namesrv!r}, "G", {{"T": "*"}}) as consumer:
        await mqclient.run_until_signal(lambda: consumer.run(handle_soon, concurrency), consumer)

face, kind, concurrency = sys.argv[1], sys.argv[2], int(sys.argv[3])
if face == "asyncio":
    asyncio.run(on_asyncio(kind, concurrency))
else:
    with getattr(blocking, kind)({namesrv!r}, "G", {{"T": "*"}}) as consumer:
        blocking.run_until_signal(lambda: consumer.run(handle, concurrency), consumer)
say("stopped in order")
"""


@pytest.mark.parametrize(
    ("kind", "concurrency"),
    [
        ("blocking Consumer", 1),
        ("blocking Consumer", 3),
        ("blocking PopConsumer", 1),
        ("blocking PopConsumer", 3),
        ("asyncio PopConsumer", 1),
        ("asyncio PopConsumer", 3),
    ],
)
def test_a_signal_stops_a_worker_in_order(kind: str, concurrency: int) -> None:
    """A worker ends its handlers on SIGTERM, and the next one gets the other messages at once.

    No message comes twice, nor only after its invisible time.
    """
    messages = [str(number) for number in range(2 * concurrency)]
    with local_cluster_in_thread(replicas=1) as cluster:
        with cluster.producer() as producer:
            producer.send_many("T", [number.encode() for number in messages])
        said: list[str] = []
        began_s = time.monotonic()
        while len([line for line in said if line.startswith("ended")]) < len(messages):
            program = WORKER.format(namesrv=cluster.namesrv_addr)
            argv = [sys.executable, "-c", program, *kind.split(), str(concurrency)]
            with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as worker:
                too_late = threading.Timer(WAIT_S, worker.kill)
                too_late.start()
                assert worker.stdout is not None
                said.append(worker.stdout.readline().strip())
                worker.send_signal(signal.SIGTERM)
                said += worker.stdout.read().split("\n")
                assert worker.wait() == 0
                too_late.cancel()
                assert "stopped in order" in said[-3:]
    assert time.monotonic() - began_s < WAIT_S
    for what in ("began", "ended"):
        lines = [line.removeprefix(f"{what} ") for line in said if line.startswith(what)]
        assert sorted(lines) == messages


TOLD_ELSEWHERE = """
import signal, sys, threading, time
from mqclient import blocking

def tell():
    time.sleep(0.5)  # the main thread waits by then, and its wait is not interrupted
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

with getattr(blocking, sys.argv[1])(sys.argv[2], "G", {"T": "*"}) as consumer:
    threading.Thread(target=tell, daemon=True).start()
    blocking.run_until_signal(lambda: consumer.run(print, int(sys.argv[3])), consumer)
"""


@pytest.mark.parametrize("concurrency", ["1", "3"])
@pytest.mark.parametrize("kind", ["Consumer", "PopConsumer"])
def test_a_signal_that_another_thread_received_stops_a_worker(kind: str, concurrency: str) -> None:
    """A signal that another thread received stops a worker, during a wait, too."""
    with local_cluster_in_thread(replicas=1) as cluster:
        with cluster.producer() as producer:
            producer.send(Message("T", b"x"))
        argv = [sys.executable, "-c", TOLD_ELSEWHERE, kind, cluster.namesrv_addr, concurrency]
        assert subprocess.run(argv, timeout=WAIT_S, check=False).returncode == 0


def test_a_run_that_ends_by_itself_gives_its_signals_back() -> None:
    """A run that ends by itself, with an error or not, drains nothing and gives signals back."""
    before = signal.getsignal(signal.SIGTERM)
    drained: list[float] = []

    class Client:
        def drain(self, timeout_s: float) -> bool:
            drained.append(timeout_s)
            return True

    run_until_signal(lambda: None, Client())
    with pytest.raises(ZeroDivisionError):
        run_until_signal(lambda: 1 // 0, Client())
    assert drained == []
    assert signal.getsignal(signal.SIGTERM) is before
