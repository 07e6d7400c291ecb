"""An answer that waits for an outcome, such as that of an append.

A handler checks its request, and returns what to begin and how its outcome is answered. All else
is the dispatcher's, once for all handlers: it begins, refuses what fails, answers when name servers
know the topics, and keeps an exception of one answer from everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from dledger.remoting.command import Command
from mqbroker.leader.appending.in_flight import Tell

OutcomeT = TypeVar("OutcomeT")


class Later(msgspec.Struct, Generic[OutcomeT], frozen=True):
    """What a handler returns to be answered later."""

    begin: Callable[[Tell[OutcomeT]], object]
    """Is given the callback that must be told the outcome, once. May raise what handlers may."""
    answer: Callable[[OutcomeT], Command]
    """Makes the response. May raise Refused."""
    topics: Sequence[str] = ()
    """The topics that name servers have to know before the answer is sent."""
    reached: Callable[[bool], None] | None = None
    """Is told whether the answer was written to an open connection."""
