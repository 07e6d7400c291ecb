"""Passes a request to the handler of its code, once what that code needs is given.

The handlers declare at their methods which codes they serve, and what these need (`serves`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol, TypeAlias

from dledger.errors import AppendError, NotConfirmed, StorageError
from dledger.net import Connection
from dledger.net.serving import Answer, Right, Served
from dledger.remoting.command import Command
from mqbroker.refusal import Refused, unreadable
from mqbroker.requests.core import Core
from mqbroker.requests.forwarding import Forwarding, was_forwarded
from mqbroker.requests.needs import Needs
from mqbroker.requests.unsupported import not_supported

Table: TypeAlias = Mapping[int, Served[Needs]]
# Looked up once here, instead of twice for each request.
_NOTHING, _LEADER = Needs.NOTHING, Needs.LEADER


class Departures(Protocol):
    """Is told that a connection is gone."""

    def disconnected(self, connection: Connection) -> None:
        """The connection is gone."""


class Dispatcher:
    """The handler that `serve_remoting` runs."""

    def __init__(self, core: Core, table: Table, departures: Departures) -> None:
        self._core = core
        self.table = table
        #: Most requests by far: nothing is asked about who sends them.
        self._open = {code: each for code, each in table.items() if each.right is not Right.ADMIN}
        self._departures = departures
        self._forwarding = Forwarding(core)

    def __call__(self, request: Command, connection: Connection) -> Answer:
        """Answer a request, at once or later."""
        try:
            served = self._open.get(request.code)
            if served is None:
                served = self._guarded(request, connection)
            method, needs, _ = served
            self._core.definitions.maker = connection
            if needs is _NOTHING or (needs is _LEADER and self._core.role.serving):
                answer = method(request, connection)
            else:
                answer = self._led(served, request, connection)
        except Refused as refused:
            return self._core.replies.refusal(request, connection, refused)
        except StorageError as error:
            return self._core.replies.refusal(request, connection, unreadable(error))
        # Nearly all answers. (To ask whether one is awaitable takes a microsecond.)
        if answer is None or isinstance(answer, Command):
            return answer
        return self._later(request, connection, answer)

    def _guarded(self, request: Command, connection: Connection) -> Served[Needs]:
        """What serves a code that only administrators may ask for. Refused for others, and for a
        code that nobody serves."""
        served = self.table.get(request.code)
        if served is None:
            raise not_supported(request.code)
        # What is passed on is asked about there, since a tag counts once.
        if not self._is_passed_on(served, request):
            self._core.door.check(request, connection)
        return served

    def _is_passed_on(self, served: Served[Needs], request: Command) -> bool:
        is_for_leader = served.needs is Needs.FORWARDED and not was_forwarded(request)
        return is_for_leader and not self._core.role.serving

    def _led(self, served: Served[Needs], request: Command, connection: Connection) -> Answer:
        """The answer to a request that needs a leader."""
        method, needs, right = served
        role = self._core.role
        if self._is_passed_on(served, request):
            is_admin = self._core.door.is_admin(request, connection)
            if right is Right.ADMIN and not is_admin:
                raise self._core.door.refusal(request, connection)
            return self._forwarding.forward(request, is_admin=is_admin)
        role.check_serving()
        if needs is Needs.CONFIRMED:
            return self._when_confirmed(served, request, connection)
        return method(request, connection)

    def connected(self, connection: Connection) -> None:
        """Nothing to note: a connection is known by its first heartbeat."""

    def disconnected(self, connection: Connection) -> None:
        """Pass it on."""
        self._departures.disconnected(connection)

    async def _when_confirmed(
        self, served: Served[Needs], request: Command, connection: Connection
    ) -> Command | None:
        await self._core.log.read_index()
        answer = served.method(request, connection)
        return answer if answer is None or isinstance(answer, Command) else await answer

    async def _later(
        self, request: Command, connection: Connection, answer: Awaitable[Command | None]
    ) -> Command | None:
        self._core.definitions.maker = connection
        try:
            return await answer
        except Refused as refused:
            return self._core.replies.refusal(request, connection, refused)
        except StorageError as error:
            return self._core.replies.refusal(request, connection, unreadable(error))
        except (AppendError, NotConfirmed) as error:
            not_done = self._core.role.refusal_of(error)
            return self._core.replies.refusal(request, connection, not_done)
