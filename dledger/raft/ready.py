"""Decisions of a step, for the shell to carry out. Pure.

The fields stand in the order in which they are carried out (:mod:`dledger.raft.turn`). The safety
of the log depends on that order:

1. entries are handed to the kernel before a message leaves, so no message speaks of an entry that a
   killed process would forget;
2. messages leave. A leader's entries go to its peers before its own sync: it does not count its own
   copy until that is durable;
3. a sync begins. The acknowledgements that wait for it are the messages of the step that hears of
   its end (:meth:`RaftEngine.synced`): no others say that this node holds an entry;
4. committed entries are applied, and only then appends are answered. What is written and sent
   meanwhile is synced in the next turn.

Four things can't wait for the shell, as the rest of a step builds on them: term and vote, the
members, the cut of a conflicting tail, and a new head of the log. The step makes each durable
before it goes on, and so before its messages leave. All four are rare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from dledger.raft.messages import PeerMessage
    from dledger.raft.peer import Link


class Outgoing(msgspec.Struct, frozen=True):
    """A message for a peer. `entries`: the first and the last index of those in its run, which is
    read from the log when they are written; None if the message has its run, or none."""

    link: Link
    message: PeerMessage
    entries: tuple[int, int] | None = None


class Ready(msgspec.Struct, frozen=True):
    """The outcome of a step. `more`: whether another step is due at once."""

    #: Whether there are entries to hand to the kernel, and to sync.
    has_entries: bool
    messages: list[Outgoing]
    #: Entries up to here are committed, and to be applied.
    commit_index: int
    more: bool
