"""Connections: one for each server address, shared by everything in the client that talks to that
server.

RocketMQ's servers identify a client by its connection, and answers may come in any order, so one
connection per address is both enough and required. The first caller that needs a connection dials
it; others wait for that. A broken one is dialled again only when a caller needs it, since the
caller has the deadline.

Our servers read every header encoding, and ours is the shortest. RocketMQ's servers (they are
called stock servers here) close a connection on which it comes. So a connection that breaks before
any answer raises the question whether the server is ours, and one request in JSON answers it: our
servers give their language as PYTHON. A stock server has not read the request that was lost, so it
is sent again. Once a stock server is known, each new address is asked before it is used.

Connections outlive a cancellation around the client: over them it tells its servers what it has
done and that it leaves; then it closes them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup

from dledger.addresses import parse_address
from dledger.errors import Busy, ConnectFailed, ConnectionLost, RemotingError, RequestTimeout
from dledger.net import Peer
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, HeaderEncoding, Language
from dledger.remoting.headers import GetRouteinfoByTopicHeader, encode_header
from dledger.remoting.message import DEFAULT_TOPIC
from dledger.tls.options import AskedTls
from mqclient import limits
from mqclient.connection.credentials import Credentials
from mqclient.connection.encrypted import dialler
from mqclient.connection.lifetime import Living
from mqclient.errors import ClientClosed

#: Called with the server's address for each request that a server sends to us.
ServerRequest = Callable[[str, Command], Command | None]


@dataclass(slots=True)
class _Slot:
    """An address: the live connection, if any, and the lock that lets only one caller dial."""

    peer: Peer | None = None
    dialling: anyio.Lock = field(default_factory=anyio.Lock)


class PeerPool(Living):
    """`async with PeerPool() as pool: answer = await pool.request(address, command, timeout_s)`.

    At most `limits.PEERS_MAX` addresses; the connections close when the block is left.
    """

    def __init__(
        self,
        on_request: ServerRequest | None = None,
        credentials: Credentials | None = None,
        tls: AskedTls = None,
    ) -> None:
        self._on_request = on_request
        self._credentials = credentials
        #: Dials by TLS; None for plain text.
        self.dialler = dialler(tls)
        self._slots: dict[str, _Slot] = {}
        self._tasks: TaskGroup | None = None
        self._stock: dict[str, int] = {}
        self._ours: set[str] = set()

    @property
    def met_stock(self) -> bool:
        """Whether any server of this pool turned out to be RocketMQ's."""
        return bool(self._stock)

    async def stock_version(self, address: str, timeout_s: float) -> int | None:
        """RocketMQ's version (MQVersion) of a server, 0 of ours; None if it can't be asked now."""
        if address not in self._stock and address not in self._ours:
            with suppress(RemotingError):
                peer = await self.connect(address, timeout_s)
                await self._ask_kind(peer, address, timeout_s)
        return 0 if address in self._ours else self._stock.get(address)

    async def _start(self) -> None:
        self._tasks = await anyio.create_task_group().__aenter__()

    async def _end(self, *, failed: bool) -> None:
        tasks, self._tasks = self._tasks, None
        for slot in self._slots.values():
            if slot.peer is not None:
                slot.peer.close()
        if tasks is not None:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

    def stay_behind(self) -> None:
        """Close this copy of each connection in a fork; the other process's goes on."""
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
        except ConnectionLost:
            if peer.has_answered or peer.encoding is not None or address in self._ours:
                raise
            left = until - anyio.current_time()
            if left <= 0 or not await self.stock_version(address, left):
                raise
        peer = await self.connect(address, left)
        return await peer.request(command, max(0.001, until - anyio.current_time()))

    async def _dial(self, address: str, timeout_s: float) -> Peer:
        tasks = self._tasks
        if tasks is None:
            raise ClientClosed(f"no connection to {address}: the client is not open")
        host, port = parse_address(address)
        on_request = self._on_request
        peer = await Peer.open(
            tasks,
            host,
            port,
            connect_timeout_s=timeout_s,
            on_request=None if on_request is None else partial(on_request, address),
            outlives=True,
            tls=self.dialler,
        )
        try:
            if address in self._stock:
                peer.encoding = HeaderEncoding.JSON
            elif self._stock and address not in self._ours:
                with suppress(RemotingError):
                    await self._ask_kind(peer, address, timeout_s)
            if self._credentials is not None:
                await self._sign_on(self._credentials, peer, address, timeout_s)
        except BaseException:
            peer.close()  # nobody else knows of it
            raise
        if self._tasks is not tasks:
            peer.close()
            raise ClientClosed(f"no connection to {address}: the client was closed meanwhile")
        return peer

    async def _sign_on(
        self, credentials: Credentials, peer: Peer, address: str, timeout_s: float
    ) -> None:
        """Sign all requests over a connection, in the way of its server."""
        if address not in self._stock and address not in self._ours:
            await self._ask_kind(peer, address, timeout_s)
        is_ours = address in self._ours
        peer.sign = await credentials.signer(peer, is_ours=is_ours, timeout_s=timeout_s)

    async def _ask_kind(self, peer: Peer, address: str, timeout_s: float) -> None:
        """Learn whose a server is by a question that all of them answer. Raises RemotingError."""
        question = encode_header(GetRouteinfoByTopicHeader(DEFAULT_TOPIC))
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        command = Command(code, question, encoding=HeaderEncoding.JSON)
        answer = await peer.request(command, timeout_s)
        if answer.language is Language.PYTHON:
            self._ours.add(address)
        else:
            self._stock[address] = answer.version
            peer.encoding = HeaderEncoding.JSON

    def _drop_closed(self) -> None:
        """Make room for a new address: forget those whose connection is gone."""
        for address, slot in list(self._slots.items()):
            if (slot.peer is None or slot.peer.closed) and not slot.dialling.locked():
                del self._slots[address]
                self._stock.pop(address, None)
                self._ours.discard(address)
        if len(self._slots) >= limits.PEERS_MAX:
            raise ConnectFailed(f"already connected to {limits.PEERS_MAX} servers, the bound")
