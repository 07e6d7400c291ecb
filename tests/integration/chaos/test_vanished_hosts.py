"""A host that vanishes without a word is noticed in time at both ends of its connections.

Servers are in one network namespace and clients in another; between them the kernel drops packets.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from dledger import limits
from mqchaos.cluster.layout import plan
from mqchaos.network import needs
from mqchaos.network.control import Request
from mqchaos.network.rules import CUT
from mqchaos.network.switch import Switch

LAYOUT = plan(range(12_000, 12_007), namespaces=True)
HOST = LAYOUT.nodes[1].host
CLIENT, SERVER = "broker-a-n0", "broker-a-n1"
BOTH = [(CLIENT, SERVER), (SERVER, CLIENT)]
PORT = 7000

SERVING = f"""
import sys, trio
from dledger import limits
from dledger.net import serve_remoting
for pair in sys.argv[2:]:
    name, _, value = pair.partition("=")
    setattr(limits, name, float(value))
class Echo:
    def __call__(self, request, connection):
        return request.reply()
    def connected(self, connection):
        print("connected", flush=True)
    def disconnected(self, connection):
        print("disconnected", flush=True)
async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_remoting, Echo(), sys.argv[1], {PORT})
        print("listens", flush=True)
trio.run(main)
"""

ASKING = f"""
import sys, time, trio
from dledger.errors import RemotingError
from dledger.remoting.command import Command
from mqclient.connection.peers import PeerPool
async def main():
    async with PeerPool() as pool:
        while True:
            began = time.monotonic()
            try:
                await pool.request(sys.argv[1] + ":{PORT}", Command(1, {{}}), 60.0)
                print("answered", flush=True)
            except RemotingError as error:
                print(type(error).__name__, time.monotonic() - began, flush=True)
            await trio.sleep(float(sys.argv[2]))
trio.run(main)
"""


class Program:
    """A program in a namespace, line by line."""

    def __init__(self, switch: Switch, name: str, code: str, *arguments: str) -> None:
        argv = [*switch.inside(name), sys.executable, "-c", code, *arguments]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, bufsize=0)

    def until(self, word: str, within_s: float) -> None:
        """Wait for a line that begins with a word."""
        assert self._process.stdout is not None
        give_up_at = time.monotonic() + within_s
        line = b""
        while not line.startswith(word.encode()):
            left_s = max(0.0, give_up_at - time.monotonic())
            ready, _, _ = select.select([self._process.stdout], [], [], left_s)
            assert ready, f"no {word!r} within {within_s} s"
            line = self._process.stdout.readline()
            assert line, f"the program has ended before {word!r}"

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def switch() -> Iterator[Switch]:
    lacks = needs.no_namespaces() or needs.kernel_lacks(CUT)
    if lacks is not None:
        pytest.skip(lacks)
    with Switch(LAYOUT).plugged_in() as switch:
        yield switch


def test_a_client_gives_up_a_connection_over_which_nothing_comes(switch: Switch) -> None:
    """A request that may wait for a minute ends soon. After the cut a new connection is there at
    once, where the old one would have waited as long again."""
    server = Program(switch, SERVER, SERVING, HOST)
    server.until("listens", 20)
    client = Program(switch, CLIENT, ASKING, HOST, "0.05")
    try:
        client.until("answered", 20)
        switch.take(Request("it", BOTH, CUT))
        client.until("ConnectionLost", limits.SERVER_UNACKNOWLEDGED_S + 2)
        time.sleep(2 * limits.SERVER_UNACKNOWLEDGED_S)
        switch.take(Request("it", healed=True))
        client.until("answered", 2.5)
    finally:
        client.end()
        server.end()


@pytest.mark.parametrize("idle_s", [0.05, 60.0], ids=["busy", "idle"])
def test_a_server_learns_that_a_clients_host_is_gone(switch: Switch, idle_s: float) -> None:
    """A consumer whose machine has no power any more gives its queues to others."""
    server = Program(
        *(switch, SERVER, SERVING, HOST),
        *("CLIENT_UNACKNOWLEDGED_S=3", "CLIENT_PROBED_AFTER_S=1", "CLIENT_PROBED_EVERY_S=1"),
    )
    server.until("listens", 20)
    client = Program(switch, CLIENT, ASKING, HOST, str(idle_s))
    try:
        server.until("connected", 20)
        client.until("answered", 20)
        switch.take(Request("it", BOTH, CUT))
        server.until("disconnected", 8)
    finally:
        client.end()
        server.end()
