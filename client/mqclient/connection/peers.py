"""One connection per server address, shared by everything in the client that talks to that server.

RocketMQ's servers identify a client by its connection, and answers may come in any order, so one
connection per address is both enough and required. The first caller that needs a connection dials
it; others wait for that. A broken one is dialled again only when a caller needs it, since the
caller has the deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup

from dledger.addresses import parse_address
from dledger.errors import Busy, ConnectFailed, RequestTimeout
from dledger.net import Peer
from dledger.remoting.command import Command
from mqclient import limits
from mqclient.connection.lifetime import Living
from mqclient.errors import ClientClosed

#: Called with the server's address for each request that a server sends to us.
ServerRequest = Callable[[str, Command], Command | None]


@dataclass(slots=True)
class _Slot:
    """One address: the live connection, if any, and the lock that lets only one caller dial."""

    peer: Peer | None = None
    dialling: anyio.Lock = field(default_factory=anyio.Lock)


class PeerPool(Living):
    """`async with PeerPool() as pool: answer = await pool.request(address, command, timeout_s)`.

    At most `limits.PEERS_MAX` addresses; the connections close when the block is left.
    """

    def __init__(self, on_request: ServerRequest | None = None) -> None:
        self._on_request = on_request
        self._slots: dict[str, _Slot] = {}
        self._tasks: TaskGroup | None = None

    async def _start(self) -> None:
        self._tasks = await anyio.create_task_group().__aenter__()

    async def _end(self, *, failed: bool) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

    def stay_behind(self) -> None:
        """In a fork: close this copy of each connection; the other process's goes on."""
        super().stay_behind()
        for slot in self._slots.values():
            if slot.peer is not None:
                slot.peer.stay_behind()

    def connected(self, address: str) -> Peer | None:
        """The live connection to `address`, or None: then `connect` must be awaited."""
        slot = self._slots.get(address)
        if slot is None or slot.peer is None or slot.peer.closed:
            return None
        return slot.peer

    async def connect(self, address: str, timeout_s: float = limits.CONNECT_TIMEOUT_S) -> Peer:
        """The live connection to `address`, dialled if need be. Raises ConnectFailed."""
        peer = self.connected(address)
        if peer is not None:
            return peer
        slot = self._slots.get(address)
        if slot is None:
            if len(self._slots) >= limits.PEERS_MAX:
                self._drop_closed()
            slot = self._slots.setdefault(address, _Slot())
        with anyio.move_on_after(timeout_s):
            async with slot.dialling:
                if slot.peer is None or slot.peer.closed:
                    slot.peer = await self._dial(address, timeout_s)
                return slot.peer
        raise ConnectFailed(f"no connection to {address} within {timeout_s:.2f} s")

    async def request(self, address: str, command: Command, timeout_s: float) -> Command:
        """Send a request and wait for its answer; `timeout_s` covers connecting too.

        Raises ConnectFailed (not sent), ConnectionLost or RequestTimeout (outcome unknown).
        """
        until = anyio.current_time() + timeout_s
        peer = await self.connect(address, min(timeout_s, limits.CONNECT_TIMEOUT_S))
        left = until - anyio.current_time()
        if left <= 0:
            raise RequestTimeout(f"{address} took {timeout_s:.2f} s to connect; nothing was sent")
        try:
            return await peer.request(command, left)
        except Busy as error:
            raise ConnectFailed(f"{address} has too much to answer already: {error}") from error

    async def _dial(self, address: str, timeout_s: float) -> Peer:
        if self._tasks is None:
            raise ClientClosed(f"no connection to {address}: the client is not open")
        host, port = parse_address(address)
        on_request = self._on_request
        return await Peer.open(
            self._tasks,
            host,
            port,
            connect_timeout_s=timeout_s,
            on_request=None if on_request is None else partial(on_request, address),
        )

    def _drop_closed(self) -> None:
        """Make room for a new address: forget those whose connection is gone."""
        for address, slot in list(self._slots.items()):
            if (slot.peer is None or slot.peer.closed) and not slot.dialling.locked():
                del self._slots[address]
        if len(self._slots) >= limits.PEERS_MAX:
            raise ConnectFailed(f"already connected to {limits.PEERS_MAX} servers, the bound")
