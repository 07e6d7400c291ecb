"""Passes a request to the handler of its code, once what that code needs is given.

The handlers declare at their methods which codes they serve, and what these need (`serves`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace

from dledger.errors import AppendError, NotConfirmed
from dledger.net import Connection
from dledger.net.serving import Answer, Right, Served
from dledger.remoting.command import Command
from dledger.trust.guard import Asker, Mode
from dledger.trust.rights import SIGNED
from mqbroker.refusal import Refused
from mqbroker.requests.core import Core
from mqbroker.requests.door import was_forwarded
from mqbroker.requests.forwarding import Forwarding
from mqbroker.requests.later import Later, OutcomeT
from mqbroker.requests.needs import Needs
from mqbroker.requests.replies import EXPECTED
from mqbroker.requests.unsupported import not_supported

Table: TypeAlias = Mapping[int, Served[Needs]]
_Answer: TypeAlias = Command | Later[Any] | Awaitable[Command | Later[Any] | None] | None
# Looked up once here, instead of twice for each request.
_NOTHING, _LEADER = Needs.NOTHING, Needs.LEADER


class Dispatcher:
    """The handler that `serve_remoting` runs. It calls `disconnected` when a connection is gone."""

    def __init__(
        self, core: Core, table: Table, disconnected: Callable[[Connection], None]
    ) -> None:
        self.disconnected = disconnected
        self._core = core
        self.table: Table = core.auditor.wrapped(table, core.door.who)
        #: Codes for which nothing is asked about who sends them.
        self._open: Table = {}
        self._forwarding = Forwarding(core)
        self._latencies = core.replies.latencies
        self._clock_s = core.clock_s
        self.take_mode()

    def take_mode(self) -> None:
        """Ask about users, or don't, as the settings say from now on. Without users most requests
        by far are open."""
        has_users = self._core.guard.mode is not Mode.OFF
        self._core.guard.asker = Asker("", "")
        self._open = {
            code: each
            for code, each in self.table.items()
            if each.right is not Right.ADMIN and not has_users
        }

    def __call__(self, request: Command, connection: Connection) -> Answer:
        """Answer a request, at once or later."""
        request.arrived_s = self._clock_s()
        try:
            served = self._open.get(request.code)
            if served is None:
                served = self._guarded(request, connection)
            method, needs, _, _ = served
            self._core.definitions.maker = connection
            answer: _Answer
            if needs is _NOTHING or (needs is _LEADER and self._core.role.serving):
                answer = method(request, connection)
            else:
                answer = self._led(served, request, connection)
            if isinstance(answer, Later):
                answer.begin(partial(self._tell, request, connection, answer))
                return None
        except EXPECTED as error:
            answer = self._core.replies.refusal(request, connection, error)
        except Exception:
            self._latencies.failed(request)
            raise
        # Nearly all answers. (To ask whether one is awaitable takes a microsecond.)
        if isinstance(answer, Command):
            self._latencies.answered(request, answer.code)
            return answer
        if answer is None:
            return None
        return self._later(request, connection, answer)

    def _guarded(self, request: Command, connection: Connection) -> Served[Needs]:
        """The handler of a code, if the sender may use it. Raises Refused if not, and for a code
        that no handler serves."""
        served = self.table.get(request.code)
        if served is None:
            raise not_supported(request.code)
        mode, door = self._core.guard.mode, self._core.door
        passed_on = self._is_passed_on(served, request)
        if mode is Mode.OFF:
            self._core.guard.asker = Asker("", connection.peer[0])
        elif mode is Mode.ENFORCE and passed_on:
            door.admit(request, connection, SIGNED)  # the leader knows what the right depends on
        else:
            door.admit(request, connection, served.rights)
        # Rights of requests that are passed on are asked about there, since a tag counts once.
        if served.right is Right.ADMIN and mode is not Mode.ENFORCE and not passed_on:
            door.check(request, connection, served.rights)
        return served

    def _is_passed_on(self, served: Served[Needs], request: Command) -> bool:
        is_for_leader = served.needs is Needs.FORWARDED and not was_forwarded(request)
        return is_for_leader and not self._core.role.serving

    def _led(self, served: Served[Needs], request: Command, connection: Connection) -> _Answer:
        """The answer to a request that needs a leader."""
        method, needs, right, _ = served
        role = self._core.role
        if self._is_passed_on(served, request):
            is_admin = self._core.door.is_admin(request, connection)
            if right is Right.ADMIN and not is_admin:
                raise self._core.door.refusal(request, connection, served.rights)
            asker = self._core.guard.asker
            if served.rights.changes:
                who = self._core.door.who(request, connection)
                self._core.auditor.noting(served, request, who).passed()
            return self._forwarding.forward(request, asker, is_admin=is_admin)
        role.check_serving()
        if needs is Needs.CONFIRMED:
            return self._when_confirmed(served, request, connection)
        answer: _Answer = method(request, connection)
        return answer

    def connected(self, connection: Connection) -> None:
        """Nothing to note: a connection is known by its first heartbeat."""

    async def _when_confirmed(
        self, served: Served[Needs], request: Command, connection: Connection
    ) -> Command | Later[Any] | None:
        await self._core.log.read_index()
        answer: _Answer = served.method(request, connection)
        if answer is None or isinstance(answer, Command | Later):
            return answer
        return await answer

    def _tell(
        self,
        request: Command,
        connection: Connection,
        later: Later[OutcomeT],
        outcome: OutcomeT | Refused | AppendError,
    ) -> None:
        """Answer a request whose outcome is there, once name servers know its topics.

        The caller may be applying an entry, or telling others of it: no exception reaches it.
        """
        core = self._core
        try:
            if isinstance(outcome, Refused | AppendError):
                core.replies.refuse(request, connection, outcome)
                return
            for count, topic in enumerate(later.topics, 1):
                if topic in core.announcements.unconfirmed:
                    rest = replace(later, topics=later.topics[count:])
                    answer = partial(self._tell, request, connection, rest, outcome)
                    core.announcements.when_confirmed(topic, answer)
                    return
            reached = core.replies.send(request, connection, later.answer(outcome))
            if later.reached is not None:
                later.reached(reached)
        except Refused as refused:
            core.replies.refuse(request, connection, refused)
        except Exception as error:
            self._latencies.failed(request)
            connection.end(request, error)

    async def _later(
        self,
        request: Command,
        connection: Connection,
        awaited: Awaitable[Command | Later[Any] | None],
    ) -> Command | None:
        self._core.definitions.maker = connection
        try:
            answer = await awaited
            if isinstance(answer, Later):
                answer.begin(partial(self._tell, request, connection, answer))
                return None
        except (*EXPECTED, NotConfirmed) as error:
            answer = self._core.replies.refusal(request, connection, error)
        except Exception:
            self._latencies.failed(request)
            raise
        if answer is not None:
            self._latencies.answered(request, answer.code)
        return answer
