"""The `mqbroker` process: its start, its errors, and hostile clients."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from dledger.net import connect_peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from mqchaos.cluster.processes import free_ports

TIMEOUT_S = 20.0


def write_config(directory: Path, **values: str | int) -> Path:
    """A broker of its own, on free ports, with `values` over the defaults."""
    port, peer_port = free_ports(2)
    settings: dict[str, str | int] = {
        "listenPort": port,
        "dLegerPeers": f"n0-127.0.0.1:{peer_port}",
        "groupClientAddrs": f"n0-127.0.0.1:{port}",
        "storePathRootDir": str(directory / "store"),
        "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    }
    settings |= values
    path = directory / "broker.toml"
    path.write_text("".join(f"{key} = {value!r}\n" for key, value in settings.items()))
    return path


def port_of(config: Path) -> int:
    return next(
        int(line.split("=")[1]) for line in config.read_text().splitlines() if "listenPort" in line
    )


@contextmanager
def running(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An mqbroker process that leads; killed when the block is left."""
    log = config.with_name("log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "mqbroker", "-c", str(config)], stdout=out, stderr=out
        )
    try:
        until = time.monotonic() + TIMEOUT_S
        while b'"role": "leader"' not in log.read_bytes():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def fails(config: Path) -> str:
    """The one line of an mqbroker that can't start, with status 2."""
    process = subprocess.run(
        [sys.executable, "-m", "mqbroker", "-c", str(config)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = [line for line in process.stderr.splitlines() if not line.startswith("{")]
    assert process.returncode == 2, process.stderr
    assert "Traceback" not in process.stderr
    (line,) = lines
    assert line.startswith("mqbroker: ")
    return line


def test_a_bad_config_is_refused_by_key(tmp_path: Path) -> None:
    """A wrong key is refused with the nearest one that exists, values with those they exclude."""
    assert "flushDiskType" in fails(write_config(tmp_path, flushDiskTyp="ASYNC_FLUSH"))
    assert "dLegerSelfId" in fails(write_config(tmp_path, dLegerSelfId="n5"))
    assert "can't be read" in fails(tmp_path / "missing.toml")


@pytest.mark.parametrize("what", ["client", "peer"])
def test_a_taken_port_is_named(tmp_path: Path, what: str) -> None:
    """A taken port is an error with the port and the key to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        values: dict[str, str | int] = {"dLegerPeers": f"n0-127.0.0.1:{port}"}
        if what == "client":
            values = {"listenPort": port, "groupClientAddrs": f"n0-127.0.0.1:{port}"}
        line = fails(write_config(tmp_path, **values))
    assert str(port) in line
    assert ("listenPort" if what == "client" else "dLegerPeers") in line


def test_a_store_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    """A store below a file, or of another broker, is an error with its path."""
    (tmp_path / "file").write_text("")
    line = fails(write_config(tmp_path, storePathRootDir=str(tmp_path / "file" / "store")))
    assert "storePathRootDir" in line
    with running(write_config(tmp_path)) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    assert "broker-z" in fails(write_config(tmp_path, brokerName="broker-z"))


def test_sigterm_and_ctrl_c_end_a_broker_well(tmp_path: Path) -> None:
    """A broker on SIGTERM or Ctrl-C ends with status 0, and its next start finds the snapshot."""
    config = write_config(tmp_path)
    for number in (signal.SIGTERM, signal.SIGINT):
        with running(config) as process:
            process.send_signal(number)
            assert process.wait(TIMEOUT_S) == 0
    assert (tmp_path / "store" / "snapshot.msgpack").exists()


def test_the_vip_port_answers_if_it_is_wanted(tmp_path: Path) -> None:
    """The VIP port, `listenPort` - 2, serves old stock clients if it is switched on."""
    config = write_config(tmp_path)
    with running(config), pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port_of(config) - 2), 1).close()
    config.write_text(config.read_text() + "vipChannelEnable = true\n")

    async def ask_there() -> Command:
        async with connect_peer("127.0.0.1", port_of(config) - 2) as peer:
            return await peer.request(Command(RequestCode.GROUP_INFO), 5)

    with running(config):
        assert trio.run(ask_there).code == ResponseCode.SUCCESS
