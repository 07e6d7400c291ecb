"""A server in its own process, its memory watched from outside, among clients that mean no good."""

from __future__ import annotations

import os
import random
import re
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from dledger.limits import FRAME_BYTES_MAX
from dledger.net import connect_peer
from dledger.remoting.command import Command

pytestmark = pytest.mark.slow

SERVER = """
import trio
from dledger.net import serve_remoting
from dledger.program.logs import configure_logging

class Echo:
    def __call__(self, request, connection):
        return request.reply(0, body=request.body)
    def connected(self, connection): pass
    def disconnected(self, connection): pass

async def main():
    async with trio.open_nursery() as nursery:
        print(await nursery.start(serve_remoting, Echo(), "127.0.0.1", 0), flush=True)

configure_logging("json")
trio.run(main)
"""
SILENT = 1000
ANNOUNCING = 100
GROWTH_BYTES_MAX = 32 * 1024 * 1024


class Server:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.port = int(process.stdout.readline())

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found.group(1)) * 1024

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def assert_serving(self) -> None:
        async def ask() -> None:
            async with connect_peer("127.0.0.1", self.port) as peer:
                assert (await peer.request(Command(1, body=b"alive"), 5)).body == b"alive"

        anyio.run(ask, backend="trio")


@pytest.fixture
def server() -> Iterator[Server]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SILENT + ANNOUNCING + 200
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=dict(os.environ),
    )
    with process:
        try:
            yield Server(process)
        finally:
            process.kill()
            process.communicate()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_connections_that_say_nothing_cost_little(server: Server) -> None:
    """The server answers others meanwhile, and its memory grows by a bounded amount."""
    server.assert_serving()
    before = server.resident_bytes()
    with ExitStack() as connections:
        for _ in range(SILENT):
            connections.enter_context(server.connect())
        server.assert_serving()
        assert server.resident_bytes() - before < GROWTH_BYTES_MAX


def test_announced_frames_cost_only_what_arrives(server: Server) -> None:
    """A hundred clients that announce 16 MiB each and send 1 KiB of it."""
    server.assert_serving()
    before = server.resident_bytes()
    with ExitStack() as connections:
        for _ in range(ANNOUNCING):
            connection = connections.enter_context(server.connect())
            connection.sendall(struct.pack(">I", FRAME_BYTES_MAX) + bytes(1024))
        server.assert_serving()
        assert server.resident_bytes() - before < GROWTH_BYTES_MAX


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">I", 2**31),
        random.Random(1).randbytes(4096),
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">II", 8, 0xFFFFFF) + b"abcd",
    ],
    ids=["2 GiB", "random", "TLS", "HTTP", "header longer than frame"],
)
def test_garbage_costs_its_sender_the_connection(server: Server, garbage: bytes) -> None:
    """A hundred times, and the server serves on."""
    before = server.resident_bytes()
    for _ in range(100):
        with server.connect() as connection:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            assert read_to_end(connection) == b""
    server.assert_serving()
    assert server.resident_bytes() - before < GROWTH_BYTES_MAX


def read_to_end(connection: socket.socket) -> bytes:
    """What the server sends before it closes, politely or by a reset."""
    received = b""
    try:
        while data := connection.recv(4096):
            received += data
    except ConnectionResetError:
        pass
    return received


def test_a_killed_server_resets_its_connections(server: Server) -> None:
    """RocketMQ clients of 4.9 notice only a reset at once; after an end they wait for timeouts."""
    server.assert_serving()
    with server.connect() as connection:
        server.process.kill()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
