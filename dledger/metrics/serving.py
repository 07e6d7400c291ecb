"""The port for figures: HTTP/1.1 by h11 over trio, in the server's own loop, with bounds.

A connection has a time for its request, for taking its answer, and for being idle; a request has a
size and no body. When all places are taken, a newcomer replaces the oldest connection that has not
been given figures. So strangers who hold connections keep no Prometheus away. Handshakes of TLS,
requests that follow each other without a pause, and long answers, take turns of the loop with
clients' requests. A connection ends with each answer that is not of figures, so guessing a token
costs one connection a guess.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TypeAlias

import h11
import trio

from dledger.errors import ConfigError
from dledger.keepalive import end_unacknowledged
from dledger.limits import CLIENT_UNACKNOWLEDGED_S, LOOP_SLICE_S
from dledger.metrics import limits
from dledger.metrics.requests import Answer, Asked
from dledger.net.faults import Faults
from dledger.net.listening import accept_forever
from dledger.net.quota import ConnectionQuota
from dledger.net.turns import Share, single_steps, turns_of_loop
from dledger.tls.channel import Channel
from dledger.tls.servers import ServerContexts
from dledger.world import listen

Answers: TypeAlias = Callable[[Asked], Awaitable[Answer]]


async def serve_figures(
    answers: Answers,
    host: str,
    port: int,
    faults: Faults,
    *,
    tls: ServerContexts | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `tls`: by TLS, too. `task_status` is told the port. ConfigError if it
    can't be had."""
    quota = ConnectionQuota(limits.CONNECTIONS_MAX, limits.MEMORY_BYTES_MAX)
    with _listen(host, port) as listener:
        end_unacknowledged(listener, CLIENT_UNACKNOWLEDGED_S)
        async with trio.open_nursery() as nursery:

            def start(accepted: socket.socket, peer: tuple[str, int]) -> None:
                connection = _Connection(accepted, peer[0], answers, quota, faults, tls)
                nursery.start_soon(connection.serve)

            task_status.started(listener.getsockname()[1])
            await accept_forever(listener, start, faults)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port, limits.CONNECTIONS_MAX)
    except OSError as error:
        raise ConfigError(
            f"can't tell figures on {host}:{port}: {error.strerror}; stop what uses that port, or "
            "set metricsPromExporterPort (0 lets the system choose), or metricsPromExporterHost"
        ) from error


class _Connection:
    """An accepted connection: a request, its answer, and so on."""

    def __init__(
        self,
        accepted: socket.socket,
        source: str,
        answers: Answers,
        quota: ConnectionQuota,
        faults: Faults,
        tls: ServerContexts | None,
    ) -> None:
        accepted.setblocking(False)
        self._accepted = accepted
        self._socket: socket.socket | Channel = accepted
        self._tls = tls
        self._source = source
        self._answers = answers
        self._faults = faults
        self._quota = quota
        self._scope = trio.CancelScope()
        self._is_head = False
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.REQUEST_BYTES_MAX)
        self._place = quota.enter(source, lambda _: self._scope.cancel())
        self._turns, self._share = turns_of_loop(), Share()
        self._began_s = self._turns.clock_s()

    async def serve(self) -> None:
        """Answer until one of both ends it."""
        try:
            with self._scope, suppress(OSError, h11.ProtocolError):
                if self._place is not None and await self._begin():
                    await self._serve()
        except Exception as error:
            self._faults.note("figures not served", error, peer=self._source)
        finally:
            if self._place is not None:
                self._quota.leave(self._place)
            self._socket.close()

    async def _begin(self) -> bool:
        """Agree on TLS or plain text, within a request's time; whether that succeeded."""
        if self._tls is None:
            return True
        with trio.move_on_after(limits.REQUEST_S):
            self._socket = await self._tls.begin_figures(self._accepted, single_steps())
            self._began_s = self._turns.clock_s()
            return True
        return False

    async def _serve(self) -> None:
        patience_s = limits.REQUEST_S
        while True:
            try:
                request = await self._request(patience_s)
                answer = await self._answer(request) if request is not None else None
            except h11.RemoteProtocolError as error:
                request, answer = None, Answer.text(error.error_status_hint, str(error))
            if answer is None:
                return
            with trio.move_on_after(limits.ANSWER_S) as taken:
                await self._send(answer)
            if taken.cancelled_caught or not answer.keeps or self._http.our_state is not h11.DONE:
                return
            self._http.start_next_cycle()
            await self._rest()
            patience_s = limits.IDLE_S

    async def _request(self, patience_s: float) -> h11.Request | None:
        """The next request, whole; None if the connection has ended, or has been silent."""
        request, began = None, False
        with trio.move_on_after(patience_s) as scope:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    data = await self._receive()
                    if not began:
                        began = True
                        scope.deadline = min(scope.deadline, trio.current_time() + limits.REQUEST_S)
                    self._http.receive_data(data)
                elif isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.EndOfMessage):
                    return request
                elif isinstance(event, h11.Data):
                    raise h11.RemoteProtocolError(
                        "a request for figures has no body", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                    )
                else:
                    return None
        return None

    async def _answer(self, request: h11.Request) -> Answer:
        if request.method not in (b"GET", b"HEAD"):
            return Answer.text(HTTPStatus.METHOD_NOT_ALLOWED, "figures are read: GET or HEAD")
        self._is_head = request.method == b"HEAD"
        headers = dict(request.headers)
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        try:
            asked = Asked.of(
                request.target.decode("latin-1"),
                self._source,
                authorization,
                encrypted=self._socket is not self._accepted,
                certified=isinstance(self._socket, Channel) and bool(self._socket.raw_certificate),
            )
        except ValueError as error:
            return Answer.text(HTTPStatus.BAD_REQUEST, f"the address can't be read: {error}")
        return await self._answers(asked)

    async def _receive(self) -> bytes:
        while True:
            try:
                return self._socket.recv(limits.RECEIVE_BYTES)
            except BlockingIOError:
                await self._turn_after(partial(trio.lowlevel.wait_readable, self._socket))

    async def _send(self, answer: Answer) -> None:
        assert self._place is not None
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"),
        ]
        if answer.challenge:
            headers.append(("WWW-Authenticate", answer.challenge))
        if not answer.keeps:
            headers.append(("Connection", "close"))
        if answer.keeps:
            self._quota.spoke(self._place)
        self._quota.charge(self._place, len(answer.body))
        parts: list[h11.Event] = [h11.Response(status_code=answer.status, headers=headers)]
        if not self._is_head:
            parts.append(h11.Data(data=answer.body))
        parts.append(h11.EndOfMessage())
        for part in parts:
            await self._write(self._http.send(part) or b"")
        self._quota.charge(self._place, 0)

    async def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left[: limits.SEND_BYTES]) :]
                await self._rest()
            except BlockingIOError:
                await self._turn_after(partial(trio.lowlevel.wait_writable, self._socket))

    async def _rest(self) -> None:
        """Give the loop to others once a slice of its time is used: requests and answers of one
        connection may follow each other without a wait."""
        if self._turns.clock_s() - self._began_s > LOOP_SLICE_S:
            await self._turn_after(trio.lowlevel.checkpoint)

    async def _turn_after(self, wait: Callable[[], Awaitable[None]]) -> None:
        """End this turn, wait, and have the next turn of the loop, as clients' requests have."""
        self._turns.used(self._share, self._turns.clock_s() - self._began_s)
        await wait()
        if self._turns.crowded:
            await self._turns.wait(self._share)
        self._began_s = self._turns.clock_s()
