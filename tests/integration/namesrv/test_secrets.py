"""Real processes with different secrets: a broker that does not belong gets no route."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import trio

from mqchaos.cluster.processes import free_ports
from mqclient import Admin
from mqclient.admin.session import UnknownTarget

WAIT_S = 30.0


def write_secret(path: Path) -> Path:
    """Write a new secret into a file, for its user alone."""
    path.write_text(secrets.token_urlsafe(32))
    path.chmod(0o600)
    return path


def start(stack: ExitStack, log: Path, module: str, *arguments: str) -> None:
    """A server, killed when the stack is left."""
    out = stack.enter_context(log.open("wb"))
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=out, stderr=out)
    stack.callback(process.wait)
    stack.callback(process.kill)


def start_broker(stack: ExitStack, directory: Path, name: str, namesrv: str, secret: Path) -> Path:
    """A group of one with a name and a secret; returns its log."""
    port, peer_port = free_ports(2)
    config = directory / f"{name}.toml"
    config.write_text(
        f"brokerName = {name!r}\nlistenPort = {port}\nsecretFile = {str(secret)!r}\n"
        f"dLegerPeers = 'n0-127.0.0.1:{peer_port}'\ngroupClientAddrs = 'n0-127.0.0.1:{port}'\n"
        f"storePathRootDir = {str(directory / name)!r}\nmappedFileSizeCommitLog = 16777216\n"
    )
    log = directory / f"{name}.log"
    start(stack, log, "mqbroker", "-c", str(config), "-n", namesrv)
    return log


def until(true: Callable[[], bool]) -> None:
    """Wait for it; the test fails after `WAIT_S`."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def known_to(namesrv: str) -> set[str]:
    """The broker names that a name server has routes of."""

    async def ask() -> set[str]:
        async with Admin(namesrv) as admin:
            try:
                return {member.broker_name for member in await admin.brokers.list()}
            except UnknownTarget:
                return set()

    return trio.run(ask)


def test_a_broker_with_another_secret_gets_no_route_and_says_why(tmp_path: Path) -> None:
    """A broker with the secret gets a route; another one's log names the reason."""
    right, wrong = (write_secret(tmp_path / name) for name in ("right", "wrong"))
    (port,) = free_ports(1)
    namesrv = f"127.0.0.1:{port}"
    config = tmp_path / "namesrv.toml"
    config.write_text(f"secretFile = {str(right)!r}\n")
    with ExitStack() as stack:
        start(stack, tmp_path / "namesrv.log", "mqnamesrv", "-p", str(port), "-c", str(config))
        until(lambda: b"name server started" in (tmp_path / "namesrv.log").read_bytes())
        stranger = start_broker(stack, tmp_path, "stranger", namesrv, wrong)
        start_broker(stack, tmp_path, "member", namesrv, right)

        until(lambda: "member" in known_to(namesrv))
        until(lambda: b"proof that it knows the cluster's secret" in stranger.read_bytes())

        assert known_to(namesrv) == {"member"}
