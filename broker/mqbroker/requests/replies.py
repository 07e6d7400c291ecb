"""Sends answers after the handler has returned, and logs refusals.

Refusals are logged once a second for each kind (code and request code), with the number of those
left out. So a client that keeps asking a follower, or sends garbage, can't fill the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from dledger.errors import AppendError, NotConfirmed, StorageError
from dledger.failpoints import failpoint
from dledger.net import Connection
from dledger.observe import get_logger
from dledger.remoting.bodies import Dialect
from dledger.remoting.command import Command, HeaderEncoding
from mqbroker import limits
from mqbroker.flow.latencies import NOT_WRITTEN, SUCCESS, Latencies
from mqbroker.leader.role import Role
from mqbroker.refusal import Refused, unreadable

_log = get_logger("mqbroker.requests.replies")


@dataclass(slots=True)
class _Kind:
    logged_s: float
    left_out: int = 0


#: The errors by which a request fails in a way that is expected.
Expected: TypeAlias = Refused | StorageError | AppendError | NotConfirmed
EXPECTED: Final = (Refused, StorageError, AppendError)


class Replies:
    """Sends answers to clients, and counts how long requests took. `clock_s` is a monotonic
    clock."""

    def __init__(self, role: Role, clock_s: Callable[[], float]) -> None:
        self._role = role
        self._clock_s = clock_s
        #: How long requests took.
        self.latencies = Latencies(clock_s)
        self._kinds: dict[tuple[int, int], _Kind] = {}

    def send(self, request: Command, connection: Connection, response: Command) -> bool:
        """Answer a request whose handler has returned already; returns whether its connection is
        open.

        It is not if it is known to be gone, or breaks as the answer is written.
        """
        failpoint("reply.send")
        connection.send(response)
        reached = not connection.closed
        self.latencies.answered(request, response.code, SUCCESS if reached else NOT_WRITTEN)
        return reached

    def refuse(self, request: Command, connection: Connection, error: Expected) -> None:
        """Answer a request that has failed."""
        self.send(request, connection, self.refusal(request, connection, error))

    def refusal(self, request: Command, connection: Connection, error: Expected) -> Command:
        """The answer to a request that has failed, logged."""
        if isinstance(error, Refused):
            refused = error
        elif isinstance(error, StorageError):
            refused = unreadable(error)
        else:
            refused = self._role.refusal_of(error)
        self.log_refusal(request, connection, refused)
        return request.reply(code=refused.code, remark=str(refused), ext=refused.ext)

    def log_refusal(self, request: Command, connection: Connection, refused: Refused) -> None:
        """Log that a request, or a part of it, was refused."""
        key, now_s = (request.code, refused.code), self._clock_s()
        kind = self._kinds.get(key)
        if kind is not None and now_s - kind.logged_s < limits.REFUSAL_LOG_INTERVAL_S:
            kind.left_out += 1
            return
        if kind is None and len(self._kinds) >= limits.REFUSAL_KINDS_MAX:
            self._kinds.clear()
        left_out = kind.left_out if kind is not None else 0
        self._kinds[key] = _Kind(now_s)
        host, port = connection.peer
        _log.info(
            "request refused",
            code=int(refused.code),
            reason=str(refused),
            request=request.code,
            peer=f"{host}:{port}",
            left_out=left_out,
        )


def dialect_for(request: Command) -> Dialect:
    """Maps keyed by queues: in the loose dialect for stock clients, as JSON for ours."""
    return Dialect.STANDARD if request.encoding is HeaderEncoding.MSGPACK else Dialect.LOOSE
