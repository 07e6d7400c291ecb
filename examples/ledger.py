"""The replicated log by itself: three nodes, one key-value store, no broker in sight.

    python examples/ledger.py

`open_ledger` gives a program a log that a majority of its nodes holds on disk before an append
returns. What the entries mean is the program's own: here, each one sets a key. The three nodes live
in one process to keep the example short; in earnest each has a machine of its own.
"""

from __future__ import annotations

import json
import socket
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from dledger import Entry, Kind, Ledger, LedgerConfig, open_ledger

SET = 100
"""A kind of entry of our own; kinds below 16 are the log's."""


class Store:
    """A state machine: it is given every committed entry, in order, on every node."""

    def __init__(self) -> None:
        self.applied_index = 0
        self.values: dict[str, str] = {}

    def apply(self, entry: Entry) -> object:
        """Apply a committed entry. The append on the leader returns this method's result as its
        `result`."""
        self.applied_index = entry.index
        if entry.kind != SET:
            return None
        key, value = json.loads(bytes(entry.body))
        before = self.values.get(key)
        self.values[key] = value
        return before

    def leading(self, term: int) -> None:
        """Do nothing as this node begins to lead: a store is the same on every node."""

    def following(self, leader: str | None, term: int) -> None:
        """Do nothing as a follower."""


async def leader_of(ledgers: list[Ledger]) -> Ledger:
    """Wait until one of the nodes serves as leader."""
    while True:
        for ledger in ledgers:
            if ledger.status.role == "leader":
                return ledger
        await trio.sleep(0.01)


async def main() -> None:
    """Open three nodes, set some keys, and look at the result on each."""
    ports = free_ports(3)
    peers = {f"n{k}": ("127.0.0.1", port) for k, port in enumerate(ports)}
    with tempfile.TemporaryDirectory() as directory:
        async with AsyncExitStack() as stack:
            stores, ledgers = [], []
            for node in peers:
                config = LedgerConfig("example", node, peers, Path(directory, node))
                stores.append(Store())
                ledgers.append(await stack.enter_async_context(open_ledger(config, stores[-1])))

            leader = await leader_of(ledgers)
            print(f"{leader.status.node_id} leads in term {leader.status.term}")

            for number in range(1000):
                body = json.dumps([f"key-{number % 10}", f"value-{number}"]).encode()
                appended = await leader.append(body, SET)
            print(f"entry {appended.index} replaced {appended.result!r}")

            for ledger, store in zip(ledgers, stores, strict=True):
                await ledger.wait_applied(appended.index)
                status = ledger.status
                print(
                    f"{status.node_id}: {status.last_index} entries, {status.end_position} bytes, "
                    f"key-9 = {store.values['key-9']}"
                )
            noops = [entry for entry in leader.entries(1) if entry.kind == Kind.NOOP]
            print(f"read again: term {noops[-1].term} began with entry {noops[-1].index}")


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    trio.run(main)
