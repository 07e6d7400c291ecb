"""The answering end: accept connections and bound what each may cost.

A connection has bounds on its send buffer, its tasks, the time for one frame, and its silence. A
connection that exceeds a bound is closed, with a logged reason; one that comes when all places are
taken is refused. One task sweeps over all connections and checks the times, so serving a request
reads no clock.
"""

from __future__ import annotations

import itertools
import socket
import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio

from dledger import limits as bounds
from dledger.keepalive import end_unacknowledged, probe_idle
from dledger.net.connection import Connection, Handler
from dledger.net.faults import Faults
from dledger.net.link import Link
from dledger.net.listening import accept_forever
from dledger.net.quota import ConnectionQuota
from dledger.observe import get_logger
from dledger.program.pulse import look
from dledger.world import listen

if TYPE_CHECKING:
    from dledger.tls.servers import ServerContexts

log = get_logger(__name__)

#: Should this process be killed, the kernel resets its connections instead of ending them. RocketMQ
#: clients of 4.9 fail pending requests only on a reset; otherwise each send waits for its timeout.
_RESET_ON_DEATH = struct.pack("ii", 1, 0)

_connection_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds on the cost of one connection to a server. For all connections together:
    `dledger.net.quota`."""

    requests_in_flight_per_connection_max: int = bounds.REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
    send_buffer_bytes_max: int = bounds.SEND_BUFFER_BYTES_MAX
    frame_bytes_max: int = bounds.FRAME_BYTES_MAX
    frame_completion_s: float = bounds.FRAME_COMPLETION_S
    connection_idle_s: float = bounds.CONNECTION_IDLE_S


async def serve_remoting(
    handler: Handler,
    host: str,
    port: int,
    *,
    limits: ServerLimits | None = None,
    faults: Faults | None = None,
    quota: ConnectionQuota | None = None,
    tls: ServerContexts | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `handler` until cancelled; then every connection is closed.

    Unexpected exceptions are noted in `faults`. Ports of one server share a `quota`; without one a
    port has room for `CONNECTIONS_MAX`. `tls` says whom it takes encrypted; without it all speak
    plain text. `task_status` is told the port, which matters for port 0: any free one. Raises
    OSError if the address can't be listened on.
    """
    with listen(host, port, bounds.CONNECTIONS_PENDING_MAX) as listener:
        # Connections inherit the options from their listener, even before they are accepted.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_DEATH)
        end_unacknowledged(listener, bounds.CLIENT_UNACKNOWLEDGED_S)
        probe_idle(listener, bounds.CLIENT_PROBED_AFTER_S, bounds.CLIENT_PROBED_EVERY_S)
        server = _Server(
            handler, limits or ServerLimits(), faults or Faults(), quota or ConnectionQuota(), tls
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.sweep_forever)
            task_status.started(listener.getsockname()[1])
            start = partial(server.start, nursery)
            await accept_forever(listener, start, server.faults)


@dataclass(slots=True)
class _Progress:
    """The progress of a connection that the sweeper saw, and since when it has not changed (trio's
    clock, s)."""

    activity: int
    active_since: float
    frames: int
    frame_since: float


class _Server:
    def __init__(
        self,
        handler: Handler,
        limits: ServerLimits,
        faults: Faults,
        quota: ConnectionQuota,
        tls: ServerContexts | None,
    ) -> None:
        self._handler = handler
        self._tls = tls
        self.faults = faults
        self._limits = limits
        self._quota = quota
        self._progress: dict[Connection, _Progress] = {}
        self._refusals_logged = quota.refused

    def start(self, nursery: trio.Nursery, accepted: socket.socket, peer: tuple[str, int]) -> None:
        """Serve a connection, if there is room for it."""
        limits = self._limits
        link = Link(accepted, limits.send_buffer_bytes_max, limits.frame_bytes_max)
        connection = Connection(
            next(_connection_ids),
            peer,
            link,
            self._quota,
            limits.requests_in_flight_per_connection_max,
            self.faults,
        )
        if not connection.admitted:
            link.close()
            return
        now = trio.current_time()
        self._progress[connection] = _Progress(0, now, 0, now)
        nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: Connection) -> None:
        try:
            await connection.serve(self._handler, self._tls)
        except Exception as error:
            # A bug, in `connected` or `disconnected` or here: the others are still served.
            self.faults.note("connection failed", error, peer=connection.peer)
        finally:
            del self._progress[connection]

    async def sweep_forever(self) -> None:
        """Once a second, close connections that were silent or busy with one frame for too long."""
        while True:
            await look(bounds.CONNECTIONS_LOOK_S)
            now = trio.current_time()
            for connection, progress in self._progress.items():
                try:
                    if reason := self._overdue(connection, progress, now):
                        connection.close(reason)
                    connection.tell_kept()
                except Exception as error:  # one connection's: the others are still looked after
                    self.faults.note("connection not looked after", error, peer=connection.peer)
            if refused := self._quota.refused - self._refusals_logged:
                self._refusals_logged += refused
                log.warning("connections refused", count=refused, reason=self._quota.refusal)

    def _overdue(self, connection: Connection, progress: _Progress, now: float) -> str | None:
        """Note what changed since the last sweep; returns the reason to close, if there is one."""
        link = connection.link
        if link.activity != progress.activity:
            progress.activity = link.activity
            progress.active_since = now
        if link.frames != progress.frames or not link.partial_bytes:
            progress.frames = link.frames
            progress.frame_since = now
        if now - progress.frame_since > self._limits.frame_completion_s:
            return f"a frame is not complete after {self._limits.frame_completion_s} s"
        if now - progress.active_since > self._limits.connection_idle_s:
            return f"silent for {self._limits.connection_idle_s} s"
        return None
