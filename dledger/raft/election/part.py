"""The part of a node in elections: when to start one, and what to answer to other candidates.

The library counts votes and raises terms. It starts an election when its deadline has passed. This
module moves the deadline so that this happens only when
:class:`~dledger.raft.election.rules.ElectionGate` allows it, or when the leader asked this node to
take over. It also handles the other nodes' messages about elections, except votes.

A node that is still replaying its log would win like any other, and then keep the group waiting
until it has applied everything. So it lets the others go first, for a short time; and it does not
take over from a leader that serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from dledger.failpoints import failpoint
from dledger.raft.election.transfer import Obstacle
from dledger.raft.limits import (
    GIVE_WAY_S,
    LINK_LOST_WAIT_S,
    REPLAY_ENTRIES_MAX,
    RETRY_WAIT_S,
    YIELD_WAIT_S,
)
from dledger.raft.messages import (
    Consult,
    Declined,
    Prevote,
    Prevoted,
    Resigned,
    TakeOver,
    Vote,
    Willing,
)
from dledger.raft.roles import Role

if TYPE_CHECKING:
    from dledger.raft.election.rules import ElectionGate
    from dledger.raft.parts import Consensus, Replica


class Elections:
    """Stands between the messages of peers and the library's election deadline."""

    def __init__(
        self,
        consensus: Consensus,
        replica: Replica,
        gate: ElectionGate,
        unapplied: Callable[[], int],
        lacks_room: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        """`unapplied`: how many entries this node would have to apply before it could serve.
        `lacks_room`: whether it could take no messages."""
        self.core = consensus.core
        self._transport = consensus.transport
        self._peers = consensus.peers
        self._hard_state = replica.hard_state
        self._members = replica.members
        self._log = replica.log
        self._gate = gate
        self._unapplied = unapplied
        self._lacks_room = lacks_room
        self._clock = clock
        self._may_elect = self._gave_way = False
        self._is_wished = False
        self._asked_in_term: int | None = None
        self._resigned_term: int | None = None
        #: Elections that this node has begun, by reason.
        self.begun: Counter[str] = Counter()
        self.core.election_deadline = clock() + gate.wait(RETRY_WAIT_S)

    def is_wished(self) -> bool:
        """Whether the leader asked this node to take over: then voters need not miss that leader
        first."""
        return self._is_wished

    @property
    def hears_leader(self) -> bool:
        """Whether this node follows a leader that is alive, as far as it can tell."""
        return self._gate.leader_alive(self._clock())

    # -- around the library's tick ---------------------------------------------------------

    def before_tick(self, now: float) -> bool:
        """Decide whether the library may elect in the coming tick; returns whether it will."""
        if self._asked_to_elect():
            self.begun["handed over"] += 1
            return True
        if self._hold_election(now):
            self.begun[self._gate.reason] += 1
            return True
        return False

    def after_tick(self, now: float, *, electing: bool) -> None:
        """Act on the outcome of the tick."""
        self._is_wished = False
        self._say_if_resigned(now)
        if electing and self.core.role is Role.CANDIDATE:
            self.core.election_deadline = now + self._gate.wait(RETRY_WAIT_S)

    # -- what happens ----------------------------------------------------------------------

    def heard_from_leader(self, now: float) -> None:
        """The leader of the current term sent something."""
        self._gate.heard_from_leader(now)
        self._may_elect = self._gave_way = False

    def may_vote(self, message: Vote, now: float) -> bool:
        """Whether to pass a vote request on to the library. Not if a leader is alive, unless it
        asked for this election."""
        if not self._hard_state.state.eligible:
            return False
        return message.is_wished or not self._gate.leader_alive(now)

    def resigned(self, term: int | None) -> None:
        """Note that this node led `term`, and leads no longer."""
        self._resigned_term = term

    def leader_lost(self) -> None:
        """Ask for an election soon, as this node's leader is certainly gone."""
        if self.core.role is not Role.LEADER:
            self._gate.leader_lost()
            soon = self._clock() + self._gate.wait(LINK_LOST_WAIT_S)
            self.core.election_deadline = min(self.core.election_deadline, soon)

    def deliver(self, node_id: str, message: Prevoted | TakeOver | Resigned | Consult) -> None:
        """Handle an answer to this node's pre-vote, or a message of a leader that goes."""
        if isinstance(message, Prevoted):
            self.take_prevote(node_id, message)
        else:
            self.heed_leader(node_id, message)

    def heed_leader(self, node_id: str, message: TakeOver | Resigned | Consult) -> None:
        """The leader says that it leads no longer, or asks this node to take over, or whether it
        could."""
        if (node_id, message.term) != (self.core.leader_id, self.core.term):
            return
        if isinstance(message, TakeOver):
            failpoint("transfer.asked")
            self._asked_in_term = message.term
        elif isinstance(message, Consult):
            self._answer_leader(self._obstacle)
        else:
            self.leader_lost()

    def _hold_election(self, now: float) -> bool:
        """Keep the library from an election until a majority agreed. Returns whether it will
        now."""
        core = self.core
        if core.role is Role.LEADER or core.election_deadline > now:
            return False
        if self._may_elect:
            self._may_elect = False
            return True
        core.election_deadline = now + self._gate.wait(RETRY_WAIT_S)
        if not self._may_stand:
            return False
        if self._replays and not self._gave_way:
            self._gave_way = True
            core.election_deadline = now + self._gate.wait(GIVE_WAY_S)
            return False
        last = self._log.last
        assert last is not None
        if self._gate.ask(core.term):
            self._start_election()
        else:
            self._peers.broadcast(Prevote(core.term, last.index, last.term))
        return False

    @property
    def _may_stand(self) -> bool:
        """Whether this node may be a candidate: a voter that remembers its promises.

        This goes by its own configuration. It grants its vote to others in any case: a candidate
        may know a newer configuration, in which this node is a voter.
        """
        return self._hard_state.state.eligible and self._members.current.votes(self._peers.node_id)

    @property
    def _replays(self) -> bool:
        """Whether this node could not serve soon if it led."""
        return self._unapplied() > REPLAY_ENTRIES_MAX

    def _start_election(self) -> None:
        failpoint("raft.elect")
        self._may_elect = True
        self.core.election_deadline = 0.0

    def _say_if_resigned(self, now: float) -> None:
        """Tell the others that this node stepped down because no majority answered it.

        The others elect first: whatever kept their answers from this node would also keep their
        votes from it.
        """
        if self._resigned_term is None:
            return
        term, self._resigned_term = self._resigned_term, None
        if term == self.core.term:
            self._peers.broadcast(Resigned(term))
            self.core.election_deadline = now + self._gate.election_timeout()

    def answer_prevote(self, node_id: str, message: Prevote, now: float) -> None:
        """Answer a pre-vote: would this node vote for the other, and does it miss the leader
        too?"""
        core, last = self.core, self._log.last
        assert last is not None
        grant = (
            message.term >= core.term
            and (message.last_term, message.last_index) >= (last.term, last.index)
            and self._hard_state.state.eligible
            and core.role is not Role.LEADER
            and not self._gate.leader_alive(now)
        )
        if grant and not self._may_elect and self._gate.yields_to(node_id, message.term):
            self._gate.cancel()
            core.election_deadline = max(
                core.election_deadline, now + self._gate.wait(YIELD_WAIT_S)
            )
        peer = self._peers.known[node_id]
        self._peers.post(peer, Prevoted(core.term, grant, message.term))

    def take_prevote(self, node_id: str, message: Prevoted) -> None:
        """Take the answer to a pre-vote of this node."""
        if message.term > self.core.term:
            self._gate.cancel()
            self._transport.step_down(self._peers.known[node_id], message.term)
        elif message.granted and self._gate.granted(node_id, message.asked_term):
            self._start_election()

    def _asked_to_elect(self) -> bool:
        """Start an election without a pre-vote, if the leader of this term asked for it."""
        if self._asked_in_term is None:
            return False
        asked, self._asked_in_term = self._asked_in_term, None
        if asked != self.core.term or self.core.role is not Role.FOLLOWER:
            return False
        obstacle = self._obstacle
        if obstacle is not None:
            self._answer_leader(obstacle)
            return False
        self._gate.cancel()
        self._is_wished = True
        self.core.election_deadline = 0.0
        return True

    @property
    def _obstacle(self) -> Obstacle | None:
        """Why this node would be no good leader now."""
        if not self._may_stand:
            return Obstacle.NOT_ELIGIBLE
        if self._replays:
            return Obstacle.REPLAYS
        return Obstacle.NO_ROOM if self._lacks_room() else None

    def _answer_leader(self, obstacle: Obstacle | None) -> None:
        leader, term = self._peers.known.get(self.core.leader_id or ""), self.core.term
        if leader is not None:
            answer = Willing(term) if obstacle is None else Declined(term, obstacle)
            self._peers.post(leader, answer)
