"""The asking end of a connection: requests out, responses matched to them.

Responses come back in any order and are matched by `opaque`. When a connection breaks, everything
in flight on it is answered with ConnectionLost at once, because whether the server acted is not
known. Runs under trio and under asyncio.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup

from dledger.addresses import check_host, check_port
from dledger.errors import (
    BadInput,
    Busy,
    ConnectFailed,
    ConnectionLost,
    DledgerError,
    FrameError,
    RemotingError,
    RequestTimeout,
)
from dledger.keepalive import end_unacknowledged
from dledger.limits import (
    BUSY_RETRY_S,
    CONNECT_TIMEOUT_S,
    HOST_CHARACTERS_MAX,
    REQUESTS_IN_FLIGHT_PER_PEER_MAX,
    SERVER_UNACKNOWLEDGED_S,
)
from dledger.net.link import Link
from dledger.observe import get_logger
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import FLAG_ONEWAY, Command, HeaderEncoding
from dledger.world import world

if TYPE_CHECKING:
    import ssl

    from dledger.tls.channel import Channel

OnResponse: TypeAlias = Callable[[Command | RemotingError], None]
OnRequest: TypeAlias = Callable[[Command], Command | None]

_OPAQUE_MASK = 0x7FFF_FFFF
_OWN_END = "closed by this end"
_MAY_TAKE_TLS = ". A port that takes TLS alone does so: then give tls= (mqadmin: --tls)"

log = get_logger(__name__)


class Dialler(Protocol):
    """The TLS options for dialling servers."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        ...


class Peer:
    """A connection to a server, for one thread. Make it with `Peer.open` or `connect_peer`."""

    def __init__(
        self, link: Link, address: str, on_request: OnRequest | None, *, outlives: bool = False
    ) -> None:
        #: "host:port" of the server.
        self.address = address
        self._link = link
        self._on_request = on_request
        #: The headers' encoding, if the server reads no MSGPACK: RocketMQ's do not.
        self.encoding: HeaderEncoding | None = None
        #: Signs each request, in the order in which they are sent.
        self.sign: Callable[[Command], None] | None = None
        #: By opaque: where in the stream of bytes the request begins, and its callback.
        self._in_flight: dict[int, tuple[int, OnResponse]] = {}
        self._opaques = itertools.count(1)
        self._close_reason: str | None = None
        self._closed = anyio.Event()
        self._scope = anyio.CancelScope(shield=outlives)
        #: Said of a connection that the server ended before it answered anything.
        self._hint = ""

    @classmethod
    async def open(
        cls,
        task_group: TaskGroup,
        host: str,
        port: int,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        on_request: OnRequest | None = None,
        outlives: bool = False,
        tls: Dialler | None = None,
    ) -> Peer:
        """Connect to a server's port. A task of `task_group` serves the connection, and never
        raises.

        One that `outlives` a cancellation around it is ended by `close` alone: so its owner, too,
        can say good-bye over it.

        `on_request` answers what the server asks by itself (RocketMQ's brokers do); its result is
        sent unless the request is one-way or the result None. Raises ConnectFailed.
        """
        connected = await connect(host, port, connect_timeout_s, tls)
        peer = cls(Link(connected), f"{host}:{port}", on_request, outlives=outlives)
        peer._hint = "" if tls else _MAY_TAKE_TLS
        task_group.start_soon(peer._run)
        return peer

    @property
    def closed(self) -> bool:
        """Whether the connection is gone or about to go."""
        return self._close_reason is not None

    @property
    def has_answered(self) -> bool:
        """Whether anything has come from the server over this connection."""
        return self._link.frames > 0

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await self._closed.wait()

    def close(self, reason: str = _OWN_END) -> None:
        """Close the connection at once. Requests in flight end before this returns: with
        ConnectionLost, or with ConnectFailed if the socket had not taken their first byte, so that
        they were not sent."""
        if self._close_reason is not None:
            return
        if not self.has_answered and reason != _OWN_END:
            reason += self._hint
        self._close_reason = reason
        self._scope.cancel()
        in_flight, self._in_flight = self._in_flight, {}
        for begins_at, on_response in in_flight.values():
            if begins_at < self._link.written_bytes:
                lost = ConnectionLost(f"{self.address}: no answer before it broke: {reason}")
                self._answer(on_response, lost)
            else:
                self._answer(on_response, ConnectFailed(f"{self.address}: not sent: {reason}"))

    def stay_behind(self) -> None:
        """Close this copy of the socket, and nothing else: it is in a fork of the process that
        connected.

        The server would see no end of the connection while a child holds a copy.
        """
        self._close_reason = "it belongs to the process that this one is a fork of"
        self._link.stay_behind()

    async def request(self, command: Command, timeout_s: float) -> Command:
        """Send a request and wait for its response, whatever code it has.

        Raises ConnectFailed and Busy (not sent), ConnectionLost and RequestTimeout (outcome
        unknown).
        """
        done = anyio.Event()
        results: list[Command | RemotingError] = []

        def on_response(result: Command | RemotingError) -> None:
            results.append(result)
            done.set()

        opaque = self.request_nowait(command, on_response)
        try:
            with anyio.move_on_after(timeout_s):
                await done.wait()
        finally:
            self._in_flight.pop(opaque, None)
        if not results:
            raise RequestTimeout(
                f"{self.address}: no answer to request {command.code} within {timeout_s} s"
            )
        if isinstance(results[0], RemotingError):
            raise results[0]
        return results[0]

    def request_nowait(self, command: Command, on_response: OnResponse) -> int:
        """Send a request; `on_response` is called once: with the response, or as `close` says.

        Sets `command.opaque` and returns it. Raises ConnectFailed on a closed connection, Busy at a
        bound and FrameError for what can't be encoded; `on_response` is not called then.
        """
        if len(self._in_flight) >= REQUESTS_IN_FLIGHT_PER_PEER_MAX:
            raise Busy(f"{self.address}: {len(self._in_flight)} requests in flight", BUSY_RETRY_S)
        command.opaque = next(self._opaques) & _OPAQUE_MASK
        # A single request need not wait for the loop's next turn: there is nothing to gather.
        idle = not self._in_flight
        # Set before it is sent: if sending breaks the connection, this request is answered too.
        self._in_flight[command.opaque] = self._link.queued_bytes, on_response
        try:
            self._send(command, at_once=idle)
        except DledgerError:
            self._in_flight.pop(command.opaque, None)
            raise
        return command.opaque

    def send_oneway(self, command: Command) -> None:
        """Send a request that the server must not answer. Raises like `request_nowait`."""
        command.opaque = next(self._opaques) & _OPAQUE_MASK
        command.flag |= FLAG_ONEWAY
        self._send(command)

    def _send(self, command: Command, *, at_once: bool = False) -> None:
        if self._close_reason is not None:
            raise ConnectFailed(f"{self.address}: not sent: {self._close_reason}")
        if self.encoding is not None and not command.is_response:
            command.encoding = self.encoding
        if self.sign is not None and not command.is_response:
            self.sign(command)
        try:
            self._link.send(command, at_once=at_once)
        except OSError as error:
            self.close(f"sending failed: {error}")

    async def _run(self) -> None:
        """Serve the connection until it breaks or is closed."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._write_forever)
                    await self._read_forever()
        except Exception:
            # A bug of ours; the connection's owner has others to look after.
            log.exception("connection failed", peer=self.address)
        finally:
            self.close("the task that served it was cancelled")
            self._link.close()
            self._closed.set()

    async def _write_forever(self) -> None:
        try:
            await self._link.write_forever()
        except OSError as error:
            self.close(f"sending failed: {error}")

    async def _read_forever(self) -> None:
        try:
            while True:
                for command in await self._link.receive():
                    self._handle(command)
        except (EOFError, OSError, FrameError) as error:
            self.close(str(error))

    def _handle(self, command: Command) -> None:
        if not command.is_response:
            self._handle_request(command)
        elif waiting := self._in_flight.pop(command.opaque, None):
            self._answer(waiting[1], command)
        # A response without a waiting request came after that request had timed out.

    def _handle_request(self, request: Command) -> None:
        response: Command | None
        if self._on_request is None:
            response = request.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"code {request.code} is not known"
            )
        else:
            try:
                response = self._on_request(request)
            except Exception as error:
                log.exception("request handler failed", peer=self.address, code=request.code)
                response = request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        if response is not None and not request.is_oneway and not self.closed:
            try:
                self._send(response)
            except (Busy, FrameError) as error:
                self.close(f"a response could not be sent: {error}")

    def _answer(self, on_response: OnResponse, result: Command | RemotingError) -> None:
        """Call back; a bug in one callback must not keep the others from their answers."""
        try:
            on_response(result)
        except Exception:
            log.exception("response callback failed", peer=self.address)


@asynccontextmanager
async def connect_peer(
    host: str,
    port: int,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    on_request: OnRequest | None = None,
    tls: Dialler | None = None,
) -> AsyncIterator[Peer]:
    """Connect for the length of an `async with` block. Raises ConnectFailed."""
    connected = await connect(host, port, connect_timeout_s, tls)
    peer = Peer(Link(connected), f"{host}:{port}", on_request)
    peer._hint = "" if tls else _MAY_TAKE_TLS
    failure: Exception | None = None
    async with anyio.create_task_group() as task_group:
        task_group.start_soon(peer._run)
        try:
            yield peer
        except Exception as error:
            failure = error
        finally:
            peer.close()
    if failure is not None:
        # Raised here, the caller sees its own exception and no ExceptionGroup around it.
        raise failure


async def connect(
    host: str, port: int, timeout_s: float, tls: Dialler | None = None
) -> socket.socket | Channel:
    """Connect to the first address of `host` that answers, by TLS if need be. Raises "
    "ConnectFailed."""
    try:
        check_host(host)
        check_port(port)
    except BadInput as error:
        raise ConnectFailed(f"{host[:HOST_CHARACTERS_MAX]!r}:{port}: {error}") from error
    problem = f"no answer within {timeout_s} s"
    with anyio.move_on_after(timeout_s):
        try:
            addresses = await world().lookup(host, port)
        except OSError as error:
            raise ConnectFailed(f"{host}:{port}: the name can't be resolved: {error}") from error
        for family, address in addresses:
            connecting = world().socket(family)
            end_unacknowledged(connecting, SERVER_UNACKNOWLEDGED_S)
            try:
                await _connect_socket(connecting, address)
                if tls is not None:
                    from dledger.tls.handshake import dial  # noqa: PLC0415 - it loads ssl

                    return await dial(connecting, tls.context, host)
            except OSError as error:
                connecting.close()
                problem = str(error)
            except BaseException:
                connecting.close()
                raise
            else:
                return connecting
    raise ConnectFailed(f"{host}:{port}: {problem}")


async def _connect_socket(
    connecting: socket.socket, address: tuple[str | int | bytes, ...]
) -> None:
    connecting.setblocking(False)
    code = connecting.connect_ex(address)
    if code == errno.EINPROGRESS:
        await anyio.wait_writable(connecting)
        code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
