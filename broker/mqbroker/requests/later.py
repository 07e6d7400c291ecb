"""An answer that waits for an outcome, such as that of an append.

A handler checks its request, and returns what to begin and how its outcome is answered. All else
is the dispatcher's, once for all handlers: it begins, refuses what fails, answers when name servers
know the topics, and keeps an exception of one answer from everybody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from dledger.errors import AppendError
from dledger.net.auditing import Noting, watched
from dledger.remoting.command import Command
from mqbroker.leader.appending.in_flight import Tell
from mqbroker.refusal import Refused

OutcomeT = TypeVar("OutcomeT")


class Later(msgspec.Struct, Generic[OutcomeT], frozen=True):
    """The result of a handler that answers later."""

    begin: Callable[[Tell[OutcomeT]], object]
    """Is given the callback, which must get the outcome, once. May raise what handlers may."""
    answer: Callable[[OutcomeT], Command]
    """Makes the response. May raise Refused."""
    topics: Sequence[str] = ()
    """The topics that name servers have to know before the answer is sent."""
    reached: Callable[[bool], None] | None = None
    """Hears whether the answer was written to an open connection."""


def noted(answer: Any, noting: Noting) -> Any:
    """Note an answer when its outcome is there (`dledger.net.auditing`)."""
    if isinstance(answer, Later):
        return _noted_later(answer, noting)
    if answer is None or isinstance(answer, Command):
        return watched(answer, noting)
    return _noted_awaited(answer, noting)


async def _noted_awaited(
    answer: Awaitable[Command | Later[Any] | None], noting: Noting
) -> Command | Later[Any] | None:
    try:
        found = await answer
    except Exception as error:
        noting.failed(error)
        raise
    if isinstance(found, Later):
        return _noted_later(found, noting)
    noting.answered(found)
    return found


def _noted_later(later: Later[Any], noting: Noting) -> Later[Any]:
    def begin(tell: Tell[Any]) -> object:
        def note_and_tell(outcome: Any) -> None:
            if isinstance(outcome, Refused | AppendError):
                noting.failed(outcome)
            else:
                noting.done()
            tell(outcome)

        return later.begin(note_and_tell)

    return msgspec.structs.replace(later, begin=begin)
