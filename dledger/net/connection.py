"""An accepted connection: its requests, its answers, its end.

A handler is a plain callable. It returns an answer that it has at once. If the answer takes longer
it returns an awaitable, which runs in a task of the connection. If it answers later by itself (a
long poll, a replicated append), it returns None and calls `Connection.send` then. Everything runs
in one thread, and a connection's tasks end with it.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, Protocol

import trio

from dledger.errors import (
    BadInput,
    Busy,
    ConnectionLost,
    DledgerError,
    FrameError,
    RequestTimeout,
)
from dledger.limits import (
    CHARGE_STEP_BYTES,
    LOOP_SLICE_S,
    TLS_CONNECTION_BYTES,
    UNANSWERED_REQUEST_BYTES,
)
from dledger.net.faults import Faults
from dledger.net.link import Link
from dledger.net.quota import ConnectionQuota, Place
from dledger.net.turns import Share, Turns, single_steps, turns_of_loop
from dledger.observe import get_logger
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, Command, HeaderEncoding
from dledger.remoting.unavailable import OUTCOME, OUTCOME_UNKNOWN

if TYPE_CHECKING:
    from dledger.tls.channel import Channel
    from dledger.tls.servers import ServerContexts

log = get_logger(__name__)

_OPAQUE_MASK = 0x7FFF_FFFF

P = ParamSpec("P")


class Handler(Protocol):
    """A server's function for requests."""

    def __call__(
        self, request: Command, connection: Connection
    ) -> Command | Awaitable[Command | None] | None:
        """Answer `request` now, by an awaitable, later with `connection.send` (None), or never
        (None).

        A BadInput raised becomes a SYSTEM_ERROR response with its text; another DledgerError too,
        and is logged. Any other exception is a fault: it is noted and answered, too, and the
        connection is closed. A one-way request is answered like any other: the answer tells that
        nothing is kept for it any more, and is not sent. The request's body is a view that stays
        valid as long as it is referred to.
        """
        ...

    def connected(self, connection: Connection) -> None:
        """Note that a connection was accepted; nothing has been read from it."""
        ...

    def disconnected(self, connection: Connection) -> None:
        """Note that a connection is gone; called once for each one that `connected` saw."""
        ...


class Connection:
    """A connection that a server accepted."""

    def __init__(
        self,
        connection_id: int,
        peer: tuple[str, int],
        link: Link,
        quota: ConnectionQuota,
        requests_in_flight_max: int,
        faults: Faults | None = None,
    ) -> None:
        #: Unique within the process.
        self.id = connection_id
        #: (address, port) of the other end.
        self.peer = peer
        #: The header encoding of its last request: what requests to it should use.
        self.encoding = HeaderEncoding.JSON
        self.link = link
        self._faults = faults or Faults()
        #: Memory that the handler keeps for this client until the connection ends.
        self.kept_bytes = 0
        self._quota = quota
        self._charged_bytes = 0
        self._opaques = itertools.count(1)
        self._close_reason: str | None = None
        self._scope = trio.CancelScope()
        self._asked: dict[int, tuple[trio.Event, list[Command]]] = {}
        #: Requests, one-way ones too, whose answer is not sent yet.
        self.unanswered = 0
        #: Requests that wait for their answer and are large, by opaque.
        self._large: dict[int, int] = {}
        #: The memory of large requests and of encryption.
        self._large_bytes = 0
        self._in_flight = 0
        self._in_flight_max = requests_in_flight_max
        self._answered = trio.Event()
        self._rest_s = 0.0
        self._place: Place | None = quota.enter(peer[0], self.close)

    @property
    def admitted(self) -> bool:
        """Whether there is room for this connection: otherwise it must not be served."""
        return self._place is not None

    @property
    def closed(self) -> bool:
        """Whether it is gone or about to go; what is sent to it is dropped."""
        return self._close_reason is not None

    def send(self, command: Command) -> None:
        """Send a response or a request. Never waits: a client that reads too slowly is closed
        instead. The response to a one-way request is not sent."""
        if self._close_reason is not None:
            return
        flag = command.flag
        if flag & FLAG_RESPONSE:
            self.unanswered -= 1
            if self._large:
                self._large_bytes -= self._large.pop(command.opaque, 0)
            if flag & FLAG_ONEWAY:
                return
        try:
            # If no other request waits on this connection there is nothing to gather.
            self.link.send(command, at_once=self.unanswered == 0 and not self.link.gathering)
        except OSError as error:
            self.close(f"sending failed: {error}")
        except Busy as error:
            self.close(f"the client does not read: {error}")
        except FrameError as error:
            log.error("command not sent", peer=self.peer, code=command.code, reason=str(error))
            if command.is_response and (command.ext or command.body):
                self.unanswered += 1
                self.send(_failed(command, error))
        except Exception as error:
            self.fail(command, error)
        if self.link.outgoing_bytes - self._charged_bytes > CHARGE_STEP_BYTES:
            self.tell_kept()

    def answer_by(self, request: Command, answer: Callable[P, None]) -> Callable[P, None]:
        """Wrap `answer` for a caller that serves another connection: an unexpected exception then
        closes this connection, and does not reach the caller."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                answer(*args, **kwargs)
            except Exception as error:
                self.end(request, error)

        return guarded

    def fail(self, request: Command, error: Exception) -> None:
        """Serving `request` raised an unexpected exception: close the connection."""
        self._faults.note(
            "request handler failed",
            error,
            peer=self.peer,
            connection=self.id,
            code=request.code,
            opaque=request.opaque,
        )
        self.close(f"request {request.code} met a fault of the server: {type(error).__name__}")

    def tell_kept(self) -> None:
        """Tell the room how much memory is kept for this connection, if that has changed."""
        kept_bytes = (
            self.link.held_bytes
            + self.kept_bytes
            + self._large_bytes
            + self.unanswered * UNANSWERED_REQUEST_BYTES
        )
        if abs(kept_bytes - self._charged_bytes) > CHARGE_STEP_BYTES and self._place is not None:
            self._charged_bytes = kept_bytes
            self._quota.charge(self._place, kept_bytes)

    def send_oneway_request(self, command: Command) -> None:
        """Tell the client something that needs no answer, in the encoding that it uses."""
        command.opaque = next(self._opaques) & _OPAQUE_MASK
        command.flag |= FLAG_ONEWAY
        command.encoding = self.encoding
        self.send(command)

    async def request(self, command: Command, timeout_s: float) -> Command:
        """Ask the client something, in the encoding that it uses, and wait for its response.

        Raises ConnectionLost, also if the connection breaks meanwhile, and RequestTimeout.
        """
        if self.closed:
            raise ConnectionLost(f"{self.peer}: not asked: {self._close_reason}")
        command.opaque = next(self._opaques) & _OPAQUE_MASK
        command.encoding = self.encoding
        answered, answers = trio.Event(), list[Command]()
        self._asked[command.opaque] = (answered, answers)
        self.send(command)
        try:
            with trio.move_on_after(timeout_s):
                await answered.wait()
        finally:
            self._asked.pop(command.opaque, None)
        if answers:
            return answers[0]
        if self.closed:
            raise ConnectionLost(f"{self.peer}: no answer before it broke: {self._close_reason}")
        raise RequestTimeout(
            f"{self.peer}: no answer to request {command.code} within {timeout_s} s"
        )

    def rest(self, seconds: float) -> None:
        """Read and handle nothing more from this client for a while: it costs too much."""
        self._rest_s = max(self._rest_s, seconds)

    def close(self, reason: str) -> None:
        """Close the connection; what the socket does not take at once is lost. The reason is
        logged."""
        if not self.closed:
            self._close_reason = reason
            log.info("connection closed", peer=self.peer, connection=self.id, reason=reason)
            self._scope.cancel()

    async def serve(self, handler: Handler, tls: ServerContexts | None = None) -> None:
        """Serve until either end closes; for the server. Raises nothing but cancellation."""
        try:
            handler.connected(self)
            with self._scope:
                if tls is not None and not await self._begin(tls):
                    return
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write_forever)
                    await self._read_forever(handler, nursery)
        finally:
            if self._close_reason is None:
                self._close_reason = "the server stops"
            if self._place is not None:
                self._quota.leave(self._place)
                self._place = None  # it refers to this connection, which should be freed at once
            with suppress(OSError):
                self.link.flush()
            self.link.close()
            for answered, _ in self._asked.values():
                answered.set()
            handler.disconnected(self)

    async def _begin(self, tls: ServerContexts) -> bool:
        """Agree with the client on TLS or plain text; whether that succeeded."""

        async def begin(sock: socket.socket) -> socket.socket | Channel:
            return await tls.begin(sock, single_steps())

        try:
            if await self.link.begin(begin):
                self._large_bytes += TLS_CONNECTION_BYTES
                self.tell_kept()
        except OSError as error:
            self.close(str(error))
            return False
        return True

    async def _write_forever(self) -> None:
        """Write what was not written at once, in turns."""
        turns, share = turns_of_loop(), Share()
        try:
            while True:
                await self.link.wait_outgoing()
                while True:
                    if turns.crowded:
                        await turns.wait(share)
                    began_s = turns.clock_s()
                    done = self.link.write()
                    turns.used(share, turns.clock_s() - began_s)
                    if done:
                        break
                    await self.link.wait_writable()
        except OSError as error:
            self.close(f"sending failed: {error}")

    async def _read_forever(self, handler: Handler, nursery: trio.Nursery) -> None:
        turns, share = turns_of_loop(), Share()
        try:
            while True:
                await self.link.wait_readable()
                if turns.crowded:
                    await turns.wait(share)
                await self._read(handler, nursery, turns, share)
        except EOFError as end:
            self._close_reason = str(end)
            self._scope.cancel()
        except (FrameError, OSError) as error:
            self.close(str(error))

    async def _read(
        self, handler: Handler, nursery: trio.Nursery, turns: Turns, share: Share
    ) -> None:
        """Handle the requests that have come. Many, or costly ones, take more than one turn."""
        clock_s = turns.clock_s
        began_s = clock_s()
        self.link.gathering = True
        for command in self.link.take():
            if self._in_flight >= self._in_flight_max:
                await self._wait_for_room()
                began_s = clock_s()
            self._handle(command, handler, nursery)
            if self._rest_s or clock_s() - began_s > LOOP_SLICE_S:
                self._flush()
                turns.used(share, clock_s() - began_s)
                if self._rest_s:
                    rest_s, self._rest_s = self._rest_s, 0.0
                    await trio.sleep(rest_s)
                await turns.wait(share)
                began_s = clock_s()
                self.link.gathering = True
        self._flush()
        turns.used(share, clock_s() - began_s)
        self.tell_kept()

    async def _wait_for_room(self) -> None:
        """Wait until a task has answered; meanwhile nothing is read, so the client has to wait."""
        self._flush()
        self._answered = trio.Event()
        await self._answered.wait()
        self.link.gathering = True

    def _flush(self) -> None:
        self.link.gathering = False
        self.link.flush()

    def _handle(self, request: Command, handler: Handler, nursery: trio.Nursery) -> None:
        if request.flag & FLAG_RESPONSE:
            self._take_answer(request)
            return
        if self._close_reason is not None:
            return
        self.encoding = request.encoding
        if self._place is not None and not self._place.spoke:
            self._quota.spoke(self._place)
        self.unanswered += 1
        if request.size_bytes > UNANSWERED_REQUEST_BYTES or self._large:
            self._note_large(request)
        try:
            result = handler(request, self)
        except Exception as error:
            self.end(request, error)
            return
        if isinstance(result, Command):
            self.send(result)
        elif result is not None:
            self._in_flight += 1
            if isinstance(request.body, memoryview) and len(request.body) < CHARGE_STEP_BYTES:
                # A view would keep alive all bytes that arrived with it until the task begins.
                request.body = bytes(request.body)
            nursery.start_soon(self._finish, request, result)

    def _note_large(self, request: Command) -> None:
        """Count a large request as kept until it is answered."""
        if request.opaque in self._large:
            self.close(f"opaque {request.opaque} is that of a request that waits for its answer")
        elif request.size_bytes > UNANSWERED_REQUEST_BYTES:
            self._large[request.opaque] = request.size_bytes
            self._large_bytes += request.size_bytes

    def _take_answer(self, response: Command) -> None:
        if response.opaque not in self._asked:
            log.debug("response to nothing", peer=self.peer, opaque=response.opaque)
            return
        answered, answers = self._asked[response.opaque]
        answers.append(response)
        answered.set()

    async def _finish(self, request: Command, awaitable: Awaitable[Command | None]) -> None:
        response, failed = None, None
        try:
            response = await awaitable
        except Exception as error:
            failed = error
        self._in_flight -= 1
        self._answered.set()
        if failed is not None:
            self.end(request, failed)
        elif response is not None:
            self.send(response)

    def end(self, request: Command, error: Exception) -> None:
        """Answer a request whose handler raised `error`."""
        self.send(
            _refused(request, error) if isinstance(error, BadInput) else _failed(request, error)
        )
        if isinstance(error, BadInput):
            log.info("request refused", peer=self.peer, code=request.code, reason=str(error))
        elif isinstance(error, DledgerError):
            log.error("request handler failed", peer=self.peer, code=request.code, exc_info=error)
        else:
            self.fail(request, error)


def _refused(request: Command, error: Exception) -> Command:
    return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))


def _failed(request: Command, error: Exception) -> Command:
    """The answer of a server that failed on the way: it may have done what was asked, or not."""
    remark = f"{type(error).__name__}: {error}"
    return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark, ext={OUTCOME: OUTCOME_UNKNOWN})
