"""The state machine that the log's entries are applied to, as Raft knows it."""

from __future__ import annotations

from typing import Protocol

from dledger.log.entry import Entry


class StateMachine(Protocol):
    """The meaning of the log's entries. All calls come from one thread, in log order."""

    applied_index: int
    """The machine already holds everything up to here, from its own snapshot. 0: nothing.

    `apply` may lower it: then entries are applied again from there on (`Applying.went_back`).
    """

    def apply(self, entry: Entry) -> object:
        """Apply a committed entry, a no-op too. `entry.body` is valid during the call only."""

    def leading(self, term: int) -> None:
        """Called when this node leads and has applied all entries of earlier terms: appends may
        begin."""

    def following(self, leader: str | None, term: int) -> None:
        """Called when this node does not lead, or no longer. `leader` is None if unknown."""
