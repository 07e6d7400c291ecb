"""Notes who changes what at a server, and who is refused: the lines of its audit log.

A change is noted with its outcome, once that is known. Only methods whose codes declare a right to
create, update or delete are wrapped, when the table of handlers is made; nothing else passes here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from dledger.errors import BadInput, OutcomeUnknown
from dledger.limits import AUDIT_BODY_BYTES_MAX
from dledger.net.connection import Connection
from dledger.net.serving import NeedsT, Served
from dledger.program.audit_log import AuditLog
from dledger.remoting.codes import ResponseCode, name_of
from dledger.remoting.command import Command
from dledger.trust.audit import Trail, Verdict
from dledger.trust.rights import OPEN, Look, Rights

Who: TypeAlias = Callable[[Command, Connection], tuple[str, str]]
"""The user that asks, "" for nobody that is known, and the address from which."""
Watch: TypeAlias = Callable[[Any, "Noting"], Any]
"""Has an answer noted when its outcome is there, and returns it."""


class Auditor:
    """Writer of the audit log's lines, about changes and refused requests. `watch` knows the forms
    of answers beside a command and an awaitable."""

    def __init__(
        self,
        trail: Trail,
        log: AuditLog,
        look: Look,
        clock_ms: Callable[[], int],
        watch: Watch | None = None,
    ) -> None:
        self.log = log
        self._trail = trail
        self._look = look
        self._clock_ms = clock_ms
        self._watch = watch or watched

    def refused(
        self, request: Command, who: tuple[str, str], reason: str, rights: Rights = OPEN
    ) -> None:
        """Note that the asker lacks the right."""
        code, now_ms = request.code, self._clock_ms()
        lines = self._trail.refused(
            now_ms, *who, code, name_of(code), reason, partial(self._objects, rights, request)
        )
        self.log.write(lines)

    def noting(self, served: Served[NeedsT], request: Command, who: tuple[str, str]) -> Noting:
        """The writer of a change's line. The line names the objects that are there before the
        change."""
        objects = self._objects(served.rights, request)
        code = request.code

        def note(verdict: Verdict, reason: str) -> None:
            now_ms, name = self._clock_ms(), name_of(code)
            line = self._trail.changed(now_ms, *who, code, name, verdict, objects, reason)
            self.log.write((*self._trail.due(now_ms), line))

        return Noting(note)

    def _objects(self, rights: Rights, request: Command) -> tuple[str, ...]:
        """The objects of a request; for a large body, which names thousands, its size."""
        if len(request.payload) > AUDIT_BODY_BYTES_MAX:
            return (f"a body of {len(request.payload)} bytes",)
        try:
            return rights.objects(request, self._look)
        except BadInput:
            return ()  # its handler says so

    def wrapped(self, table: Mapping[int, Served[NeedsT]], who: Who) -> dict[int, Served[NeedsT]]:
        """The table of a server's handlers, those of changes with notes of what they do."""
        return {
            code: self._wrapped(served, who) if served.rights.changes else served
            for code, served in table.items()
        }

    def _wrapped(self, served: Served[NeedsT], who: Who) -> Served[NeedsT]:
        def noted(request: Command, connection: Connection) -> Any:
            noting = self.noting(served, request, who(request, connection))
            try:
                answer = served.method(request, connection)
            except Exception as error:
                noting.failed(error)
                raise
            return self._watch(answer, noting)

        return served._replace(method=noted)


class Noting:
    """The outcome of one change, to be noted once."""

    def __init__(self, note: Callable[[Verdict, str], None]) -> None:
        self._note = note

    def done(self) -> None:
        """Note that the change was made."""
        self._note("done", "")

    def passed(self) -> None:
        """Note that the leader was asked to make the change."""
        self._note("passed", "")

    def failed(self, error: Exception) -> None:
        """Note that the change has raised an error."""
        self._note("unknown" if isinstance(error, OutcomeUnknown) else "failed", str(error))

    def answered(self, answer: Command | None) -> None:
        """Note the change as the answer says that it went."""
        if answer is None or answer.code == ResponseCode.SUCCESS:
            self.done()
        else:
            self._note("failed", answer.remark or "")


def watched(answer: Any, noting: Noting) -> Any:
    """Note an answer that is there, or awaited."""
    if answer is None or isinstance(answer, Command):
        noting.answered(answer)
        return answer
    return _awaited(answer, noting)


async def _awaited(answer: Awaitable[Command | None], noting: Noting) -> Command | None:
    try:
        found = await answer
    except Exception as error:
        noting.failed(error)
        raise
    noting.answered(found)
    return found
