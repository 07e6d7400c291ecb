"""`mqnamesrv` as a process: its start, its end, and hostile input."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import trio

from dledger.net import connect_peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command

GROWTH_KIB_MAX = 32 * 1024
SILENT_CONNECTIONS, ANNOUNCING_CONNECTIONS = 1000, 100


@contextmanager
def name_server(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A running `mqnamesrv` and its port; it must end by SIGTERM with status 0."""
    command = [sys.executable, "-m", "mqnamesrv", "-p", "0", *arguments]
    # Events go to a file: a pipe that nobody reads would stop the server when it is full.
    with TemporaryFile() as events, subprocess.Popen(command, stderr=events) as process:
        try:
            yield process, port_of(events.fileno())
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0
        finally:
            process.kill()


def port_of(events: int) -> int:
    """The port in the event "name server started", once it is written."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        *lines, _ = os.pread(events, 65_536, 0).split(b"\n")
        for event in map(json.loads, lines):
            if event["event"] == "name server started":
                return int(event["address"].rpartition(":")[2])
        time.sleep(0.01)
    raise TimeoutError("the name server did not start")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mqnamesrv", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def answers(port: int) -> bool:
    """Whether the name server answers a well-formed request."""

    async def ask() -> int:
        async with connect_peer("127.0.0.1", port) as peer:
            request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
            return (await peer.request(request, 5.0)).code

    return trio.run(ask) == ResponseCode.TOPIC_NOT_EXIST


def rss_kib(process: subprocess.Popen[bytes]) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split(maxsplit=1)[0])


def closed_by_server(sent: bytes, port: int) -> bool:
    """Whether the server closes a connection that sends this."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(sent)
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True


def test_a_taken_port_is_one_clear_line_and_status_2() -> None:
    """The line names the address, the reason and what to do."""
    with name_server() as (_, port):
        result = run("-p", str(port))
    assert result.returncode == 2
    assert result.stderr == (
        f"mqnamesrv: can't listen on 127.0.0.1 port {port}: Address already in use; "
        "choose another port with -p, or another address with --host\n"
    )


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ("listenPrt = 1", "unknown key 'listenPrt'; did you mean listenPort?"),
        ('listenPort = "x"', "listenPort = 'x': Expected `int`, got `str`"),
        ("listenPort = 70000", "listenPort is 70000; it must be 0 to 65535"),
        ("listenPort =", "not valid TOML"),
        ('kvConfigPath = "/proc/version"', "kvConfigPath /proc/version: no key-value config"),
    ],
)
def test_a_bad_config_is_one_clear_line_and_status_2(
    tmp_path: Path, config: str, line: str
) -> None:
    """The line names the file, the key and the value."""
    path = tmp_path / "namesrv.toml"
    path.write_text(config)
    result = run("-c", str(path))
    assert result.returncode == 2
    assert result.stderr.startswith("mqnamesrv: ")
    assert line in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_bad_command_line_is_one_clear_line_and_status_2() -> None:
    """A wrong command line, or a missing config file, is one line and status 2."""
    for arguments in (["--bogus"], ["-p", "many"], ["-c", "/no/such/file"]):
        result = run(*arguments)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)


def test_garbage_costs_only_the_connection_that_sent_it() -> None:
    """Random bytes, lengths that lie and undecodable headers: it serves on."""
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    chance = random.Random(seed)
    with name_server() as (process, port):
        before_kib = rss_kib(process)
        assert closed_by_server(struct.pack(">I", 2**31), port)
        assert closed_by_server(struct.pack(">I", 2**32 - 1) + b"x" * 100, port)
        assert closed_by_server(struct.pack(">II", 8, 0x00FFFFFF) + b"xxxx", port)
        assert closed_by_server(struct.pack(">II", 8, 0x02000004) + b"\xff" * 4, port)
        assert closed_by_server(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", port)
        assert closed_by_server(b"\x16\x03\x01\x02\x00\x01\x00", port)  # TLS
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(chance.randbytes(chance.randrange(1, 300)))
        assert answers(port)
        assert rss_kib(process) - before_kib < GROWTH_KIB_MAX


def test_connections_that_say_nothing_or_never_finish_leave_room_for_others() -> None:
    """A thousand silent connections and a hundred half frames leave room for other clients.

    Each costs the bytes that arrive: 1 KiB of a frame of 16 MiB.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SILENT_CONNECTIONS + ANNOUNCING_CONNECTIONS + 200
    if hard < wanted:
        pytest.skip(f"only {hard} open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    with name_server() as (process, port), ExitStack() as connections:
        assert answers(port)
        before_kib = rss_kib(process)
        for number in range(SILENT_CONNECTIONS + ANNOUNCING_CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", port), timeout=5)
            connections.enter_context(connection)
            if number >= SILENT_CONNECTIONS:
                connection.sendall(struct.pack(">I", 16 * 1024 * 1024) + bytes(1024))
        assert answers(port)
        assert rss_kib(process) - before_kib < GROWTH_KIB_MAX


def test_a_killed_server_resets_its_connections() -> None:
    """RocketMQ clients of 4.9 notice only a reset at once; after an end they wait for timeouts."""
    command = [sys.executable, "-m", "mqnamesrv", "-p", "0"]
    with TemporaryFile() as events, subprocess.Popen(command, stderr=events) as process:
        port = port_of(events.fileno())
        assert answers(port)
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            assert answers(port)  # it was accepted before
            process.kill()
            with pytest.raises(ConnectionResetError):
                connection.recv(1)


def test_key_value_config_outlives_a_killed_name_server(tmp_path: Path) -> None:
    """Acknowledged changes of the key-value config outlive SIGKILL."""
    path = tmp_path / "namesrv.toml"
    path.write_text(f'kvConfigPath = "{tmp_path / "kvConfig.json"}"\n')

    async def ask(port: int, code: RequestCode, **ext: str) -> Command:
        async with connect_peer("127.0.0.1", port) as peer:
            return await peer.request(Command(code, {"namespace": "n", "key": "k", **ext}), 5.0)

    command = [sys.executable, "-m", "mqnamesrv", "-p", "0", "-c", str(path)]
    with TemporaryFile() as events, subprocess.Popen(command, stderr=events) as process:
        try:
            port = port_of(events.fileno())
            code = trio.run(lambda: ask(port, RequestCode.PUT_KV_CONFIG, value="v")).code
        finally:
            process.kill()
    assert code == ResponseCode.SUCCESS
    with name_server("-c", str(path)) as (_, port):
        answer = trio.run(lambda: ask(port, RequestCode.GET_KV_CONFIG))
    assert answer.ext == {"value": "v"}
