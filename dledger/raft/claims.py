"""Claims of a peer that a node believes: its term, and that it leads. Pure.

A member that knows the secret may still have a fault, or run an older version that has one. A wrong
term would be kept by all others for ever, since a node never goes back to a lower term. So a node
checks two claims before it does anything else with a message. If it refuses one it closes the link.
For the protocol the message is then lost, so a refusal can't make anything unsafe; it only stops
the exchange with that peer.

*A term.* Each election raises the group's term by one and takes a candidate at least 50 ms
(`limits.RETRY_WAIT_S`). Even if all of 16 members did nothing but elect, without waiting for each
other, the term would rise by 320 a second, and by 2^32 in 155 days. With one election at each
timeout that takes 130 years. So elections that this node missed can't explain a term that is
further ahead. To use up all 2^63 terms a peer must send 2^31 such messages, each of which waits for
a disk. A node in term 0 has never heard of an election and has nothing to compare with: it takes
its group's term.

*To lead.* At most one node leads a term (Raft's election safety). Only a leader sends entries and
the head of its log. In one term a node takes these from one peer only: from the first that it
accepted them from. If another one sends them in the same term it is refused, before this node cuts
or drops anything for it. The same holds if this node itself leads the term.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.errors import FrameError
from dledger.limits import TERM_JUMP_MAX
from dledger.raft.messages import Append, Head, PeerMessage
from dledger.raft.roles import Role

if TYPE_CHECKING:
    from dledger.raft.library.adapter import Core

_SAID_BY_LEADERS = (Append, Head)


class Claims:
    """The leader that one node has accepted, and its term."""

    def __init__(self, core: Core, node_id: str) -> None:
        self._core = core
        self._node_id = node_id
        self._led_by: tuple[int, str] | None = None

    def check(self, node_id: str, message: PeerMessage) -> None:
        """Raise FrameError for a claim that can't be true."""
        own, term = self._core.term, message.term
        if term > own:
            check_term(own, term, node_id)
        elif term == own and isinstance(message, _SAID_BY_LEADERS):
            leader = self._leader_of(own)
            if leader not in (None, node_id):
                raise FrameError(
                    f"{node_id} claims by {message.kind.name} to lead term {own}, which "
                    f"{leader} leads"
                )

    def _leader_of(self, term: int) -> str | None:
        if self._core.role is Role.LEADER:
            return self._node_id
        led_term, leader = self._led_by or (None, None)
        return leader if led_term == term else None

    def accepted(self, node_id: str, term: int) -> None:
        """A message of this node as the leader of `term` was accepted."""
        self._led_by = term, node_id


def check_term(own: int, term: int, node_id: str) -> None:
    """Raise FrameError if no elections explain a peer's term."""
    if own and term > own + TERM_JUMP_MAX:
        raise FrameError(
            f"{node_id} says that it is in term {term}, and this node is in {own}: there can't "
            "have been so many elections. If the group is in that term, empty this replica's "
            "folder, so that it copies from its peers"
        )
