"""A leader changes who belongs to its group, one member at a time.

A new member begins as a learner: it is sent the log, but its acknowledgements are not counted. So a
node that holds nothing yet never slows down or stops a group. It becomes a voter, by a second
entry, when it holds nearly all that the leader does, is eligible
(:mod:`dledger.raft.membership.eligibility`), and no longer asks for the state. The leader of that
time does so, so an addition is finished even if its first leader dies. A removal is one entry.

:mod:`dledger.raft.membership.configuration` says which changes are safe. A leader also refuses a
change after which the group could not go on: if no majority of the new voters is in touch with it.
A leader is not removed while it leads: it hands over first, and its successor removes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dledger.errors import BadInput, ChangePending, UnknownMember, WouldLoseMajority
from dledger.raft.limits import IN_TOUCH_S, LAG_ENTRIES_MAX, STATE_ASKED_S, VOTERS_MIN
from dledger.raft.membership.configuration import Configuration, Member
from dledger.raft.roles import Role

if TYPE_CHECKING:
    from dledger.raft.parts import Consensus, Replica
    from dledger.raft.peer import Peer


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member as this node knows it. A learner will be a voter, but is not counted yet.

    `linked`: connected to this node. Only a leader knows how many entries it may lack. `problem`:
    why this node could not dial it last.
    """

    node_id: str
    host: str
    port: int
    service: str
    role: Literal["voter", "learner"]
    linked: bool
    lag_entries: int | None
    problem: str | None = None


class Changes:
    """Decides which changes a leader may make now. The engine appends them."""

    def __init__(self, consensus: Consensus, replica: Replica) -> None:
        self._core = consensus.core
        self._peers = consensus.peers
        self._log = replica.log
        self._members = replica.members

    def addition(self, node_id: str, member: Member) -> Mapping[str, Member] | None:
        """The members after a learner is added; None if it is a member already.

        Raises ChangePending, BadInput.
        """
        current = self._current()
        held = current.members.get(node_id)
        if held is not None and held.address == member.address:
            return None
        if held is not None:
            raise BadInput(
                f"{node_id} is a member at {held.host}:{held.port}: remove it before it is added "
                f"at {member.host}:{member.port}"
            )
        return current.with_learner(node_id, member)

    def removal(self, node_id: str) -> Mapping[str, Member]:
        """The members after one is removed. Raises ChangePending, UnknownMember,
        WouldLoseMajority."""
        current = self._current()
        if node_id not in current.members:
            raise UnknownMember(
                f"{node_id} is not a member; the members are {', '.join(sorted(current.members))}"
            )
        members = current.without(node_id)
        if current.votes(node_id):
            if len(Configuration(members).voters) < VOTERS_MIN:
                raise WouldLoseMajority(
                    f"without {node_id} only one voter would be left, and no second copy of its "
                    "entries: add another member first"
                )
            self._check_in_touch(members)
        return members

    def promotion(self, now: float) -> Mapping[str, Member] | None:
        """The members after a learner is made a voter; None if none has caught up or a change is
        pending."""
        current = self._members.current
        if not current.learners or self._members.changing(self._core.commit_index):
            return None
        for node_id in current.learners:
            peer = self._peers.known.get(node_id)
            if peer is not None and self._has_caught_up(peer, now):
                members = current.with_voter(node_id)
                return members if self._missing(members) is None else None
        return None

    def next_at(self, stepped_at: float) -> float:
        """When the next step is due to see if a learner has the whole state, even if no message
        arrives."""
        peers, learners = self._peers.known, self._members.current.learners
        if not learners:
            return math.inf
        known = [peers[node_id] for node_id in learners if node_id in peers]
        asked = [peer.newcomer.state_asked_at + STATE_ASKED_S for peer in known]
        return min([at for at in asked if at >= stepped_at], default=math.inf)

    @property
    def status(self) -> tuple[MemberStatus, ...]:
        """The members of the group, by node id."""
        return tuple(
            self._status_of(node_id, member)
            for node_id, member in sorted(self._members.current.members.items())
        )

    def _status_of(self, node_id: str, member: Member) -> MemberStatus:
        peer = self._peers.known.get(node_id)
        leads = self._core.role is Role.LEADER
        return MemberStatus(
            node_id,
            member.host,
            member.port,
            member.service,
            role="voter" if member.votes else "learner",
            linked=peer is None or peer.link is not None,
            lag_entries=None if not leads else 0 if peer is None else self.lag(peer),
        )

    def lag(self, peer: Peer) -> int:
        """How many of the leader's entries a peer may lack."""
        return self._log.last_index - self._core.match_index(peer.node)

    def _current(self) -> Configuration:
        if self._members.changing(self._core.commit_index):
            raise ChangePending(
                "another change of the members is not committed yet: try again in a moment"
            )
        return self._members.current

    def _has_caught_up(self, peer: Peer, now: float) -> bool:
        return (
            self._in_touch(peer)
            and self.lag(peer) <= LAG_ENTRIES_MAX
            and now - peer.newcomer.state_asked_at > STATE_ASKED_S
        )

    def _in_touch(self, peer: Peer) -> bool:
        """Whether a peer is eligible, has acknowledged something in this term, and not long ago."""
        answered_s = self._core.now - self._core.last_contact(peer.node)
        return self._core.match_index(peer.node) > 0 and answered_s < IN_TOUCH_S

    def _check_in_touch(self, members: Mapping[str, Member]) -> None:
        missing = self._missing(members)
        if missing is None:
            return
        silent = f"of the members that would be left, {', '.join(missing)}"
        if any(self._may_answer_yet(node_id) for node_id in missing):
            raise ChangePending(
                f"{silent} have not answered this leader yet: try again in a moment"
            )
        raise WouldLoseMajority(
            f"{silent} do not answer: the rest is not a majority, and the group would stop. "
            "Start them first, or add another member"
        )

    def _may_answer_yet(self, node_id: str) -> bool:
        """Whether a member is connected to this leader, and has not acknowledged anything yet."""
        peer = self._peers.known.get(node_id)
        return peer is not None and peer.link is not None and not self._core.match_index(peer.node)

    def _missing(self, members: Mapping[str, Member]) -> list[str] | None:
        """The voters that do not answer, if the others are no majority of these members' voters."""
        wanted = Configuration(dict(members))
        peers = self._peers.known
        there = {node_id for node_id in peers if self._in_touch(peers[node_id])}
        there.add(self._peers.node_id)
        return None if wanted.is_majority(there) else sorted({*wanted.voters} - there)
