"""The real broker on a ledger in memory: no Raft and no log on disk, everything else as in
production.

For tests of clients as well as of the broker: the broker's own code answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import trio

from dledger.net import Peer, connect_peer, serve_remoting
from dledger.testing.local import LocalLedger
from mqbroker.broker import Broker
from mqbroker.config import BrokerConfig
from mqbroker.requests.core import Core
from mqbroker.state.machine import Machine

COMES_ABOUT_S = 30.0
"""Far longer than anything here takes: a machine may stand still for seconds."""


@dataclass(frozen=True)
class MemoryBroker:
    """A broker that runs on a ledger in memory. `ledger.commit`, `lead` and `follow` are in the
    test's hands."""

    broker: Broker
    machine: Machine
    ledger: LocalLedger
    host: str
    port: int


@asynccontextmanager
async def memory_broker(
    directory: Path,
    config: BrokerConfig | None = None,
    *,
    auto: bool = True,
    clock_ms: Callable[[], int] | None = None,
    clock_s: Callable[[], float] | None = None,
) -> AsyncIterator[MemoryBroker]:
    """Serve on a free port until the block is left; `directory` takes the consume queues.

    With `auto` appends are committed at once, else by `ledger.commit`. Time is trio's, so a mock
    clock works; `clock_ms` is the wall clock, `clock_s` the one that never jumps.
    """
    config = msgspec.structs.replace(config or BrokerConfig(), listen_port=0)
    machine = Machine(directory)
    machine.restore()
    ledger = LocalLedger(machine, auto=auto)
    core = Core(
        config,
        machine,
        ledger,
        clock_ms=clock_ms or (lambda: int(trio.current_time() * 1000)),
        clock_s=clock_s or trio.current_time,
    )
    broker = Broker(core)
    async with trio.open_nursery() as nursery:
        serve = partial(serve_remoting, broker.handler, config.broker_ip1, 0, faults=core.faults)
        port = await nursery.start(serve)
        nursery.start_soon(broker.run)
        try:
            yield MemoryBroker(broker, machine, ledger, config.broker_ip1, port)
        finally:
            nursery.cancel_scope.cancel()
    machine.close()


@asynccontextmanager
async def served(
    directory: Path,
    config: BrokerConfig | None = None,
    *,
    auto: bool = True,
    clock_ms: Callable[[], int] | None = None,
    clock_s: Callable[[], float] | None = None,
) -> AsyncIterator[tuple[MemoryBroker, Peer]]:
    """A `memory_broker`, and a connection to it."""
    async with (
        memory_broker(directory, config, auto=auto, clock_ms=clock_ms, clock_s=clock_s) as broker,
        connect_peer(broker.host, broker.port) as peer,
    ):
        yield broker, peer


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another task or connection brings about; trio.TooSlowError if it never does."""
    with trio.fail_after(COMES_ABOUT_S):
        while not condition():  # noqa: ASYNC110 -- nothing to be woken by
            await trio.sleep(0.005)
