"""What a peer says of itself is believed within bounds. Pure.

A member that knows the secret may still be broken, or of a version that was, and one word of it
would be kept by all others for ever: a term is never taken back. So two claims are looked at
before anything else is done with a message. A refusal closes the link. To the protocol that is a
message that was lost, so it can make nothing unsafe; it can only keep this node from going on
with that peer.

*A term.* Each election raises the group's term by one, and takes a candidate at least 50 ms
(`election.RETRY_WAIT_S`), while others hold theirs back. Even if all of 16 members did nothing but
elect, all the time, without ever waiting for each other, a term would rise by 320 a second, and by
2^32 in 155 days; with one election at each timeout that takes 130 years. So no absence explains a
term that is further ahead than that. Who would use up all 2^63 terms must send 2^31 such messages,
each of which waits for a disk. A node in term 0 has never heard of any election and can't judge: it
takes what its group has.

*To lead.* At most one node leads a term (Raft's election safety). So what only a leader says,
entries and where its log begins, is taken in one term from one node: from the first that it was
accepted from. Another one that says it in the same term is refused, before it can make this node
cut or drop anything. That also holds if it is this node that leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.errors import FrameError
from dledger.limits import TERM_JUMP_MAX
from dledger.raft.library.messages import Append, Head, PeerMessage
from dledger.raft.roles import Role

if TYPE_CHECKING:
    from dledger.raft.library.adapter import Core

_SAID_BY_LEADERS = (Append, Head)


class Claims:
    """What one node has believed so far."""

    def __init__(self, core: Core, node_id: str) -> None:
        self._core = core
        self._node_id = node_id
        self._led_by: tuple[int, str] | None = None

    def check(self, node_id: str, message: PeerMessage) -> None:
        """Raise FrameError for a claim that can't be true."""
        own = self._core.term
        check_term(own, message.term, node_id)
        if isinstance(message, _SAID_BY_LEADERS) and message.term == own:
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
        """What a node said as the leader of a term was good."""
        self._led_by = term, node_id


def check_term(own: int, term: int, node_id: str) -> None:
    """Raise FrameError if no elections explain a peer's term."""
    if own and term > own + TERM_JUMP_MAX:
        raise FrameError(
            f"{node_id} says that it is in term {term}, and this node is in {own}: so many "
            "elections there can't have been. If the group is in that term, empty this replica's "
            "folder, so that it copies from its peers"
        )
