"""A node of a group: messages, appends and time in; entries, messages and what to apply out.

It never waits, neither for a sync nor for a peer: what depends on them is held back until the shell
says that they are there.

The shell puts messages of peers into :meth:`RaftEngine.receive` and appends into
:meth:`RaftEngine.append`, and takes a turn (:mod:`dledger.raft.turn`) when the engine is `urgent`
after that, and at :meth:`RaftEngine.next_step_at`. In between a step would do nothing. A step hands
the peers' messages to the library, and entries to the journal; lets the library tick, so that it
elects and counts acknowledgements; and decides what to send. Its outcome is a
:class:`~dledger.raft.ready.Ready`, which the shell carries out.

The shell makes entries durable, in parallel to the steps: :meth:`SegmentedLog.start_sync`, then
:meth:`RaftEngine.synced`.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from dledger.buffers import Buffer
from dledger.errors import (
    Busy,
    ChangePending,
    DledgerError,
    FrameError,
    NoSpace,
    NotLeader,
)
from dledger.log.entry import Draft, Kind
from dledger.log.hard_state import HardStateFile
from dledger.log.jobs import SyncJob
from dledger.log.store import SegmentedLog
from dledger.raft import messages
from dledger.raft.acknowledging import Acknowledging
from dledger.raft.appends import OnDone, PendingAppends
from dledger.raft.claims import Claims
from dledger.raft.election.handover import HandOver
from dledger.raft.election.part import Elections
from dledger.raft.election.rules import ElectionGate
from dledger.raft.election.transfer import Preference
from dledger.raft.library.adapter import Core
from dledger.raft.library.journal import LogJournal
from dledger.raft.library.transport import PeerTransport
from dledger.raft.limits import (
    BUSY_RETRY_AFTER_S,
    LATE_S,
    MESSAGES_PER_STEP_MAX,
    NO_SPACE_RETRY_AFTER_S,
)
from dledger.raft.membership.changes import Changes
from dledger.raft.membership.configuration import Member, encode_members
from dledger.raft.membership.joining import Joining
from dledger.raft.membership.members import Members
from dledger.raft.messages import Ack, PeerMessage
from dledger.raft.parts import Consensus, Replica
from dledger.raft.peer import Link, Peer
from dledger.raft.peers import Peers
from dledger.raft.ready import Outgoing, Ready
from dledger.raft.replication.applying import Applying
from dledger.raft.replication.base_state import BaseState
from dledger.raft.replication.majority_space import MajoritySpace
from dledger.raft.replication.reads import OnRead, Reads
from dledger.raft.replication.repair import Giving
from dledger.raft.replication.sending import Sending
from dledger.raft.replication.state_machine import StateMachine
from dledger.raft.replication.state_transfer import StateTransfer
from dledger.raft.roles import Role, Standing, Timing


class RaftEngine:
    """A node of a Raft group. Its `clock` and `rng` are given, so that a simulated group repeats
    under a seed."""

    def __init__(
        self,
        node_id: str,
        members: Members,
        log: SegmentedLog,
        hard_state: HardStateFile,
        machine: StateMachine,
        *,
        sync: bool,
        timing: Timing,
        clock: Callable[[], float],
        rng: random.Random,
        preference: Preference | None = None,
    ) -> None:
        self.node_id = node_id
        self.log = log
        self.machine = machine
        self.fenced: str | None = None
        #: Whether something happened that should not wait until the next step is due.
        self.urgent = False
        #: Why this node takes no messages, if its log does not know; None if it does take them.
        self.refusal: str | None = None
        self._clock = clock
        #: When the last step began.
        self.stepped_at = clock()
        self.members = members
        self._inbox: deque[tuple[str, Link, PeerMessage, float]] = deque()
        self._pending = PendingAppends()
        self.base_state = BaseState(log, machine)
        self.transport = transport = PeerTransport(log, members)
        journal = LogJournal(log, hard_state, members)
        log.commit_index = max(log.commit_index, min(machine.applied_index, log.last_index))
        core = self.core = Core(node_id, journal, transport, timing, self._role_changed)
        self.peers = Peers(node_id, core, transport, members)
        consensus = Consensus(core, transport, self.peers)
        replica = Replica(log, hard_state, members, machine, self.base_state)
        acks = self.acknowledging = Acknowledging(consensus, replica, sync=sync)
        self._claims = Claims(core, node_id)
        self.sending = Sending(consensus, replica)
        self.state_transfer = StateTransfer(consensus, replica)
        self.applying = Applying(
            consensus, replica, self._pending, self.sending, self.state_transfer, clock
        )
        gate = ElectionGate(node_id, members.is_majority, timing, rng)
        self.elections = Elections(
            consensus, replica, gate, self.applying.missing, self._lacks_room, clock
        )
        transport.begin(core, self.peers, acks, self.elections.is_wished)
        self._joining = Joining(consensus, replica, acks)
        self.changes = Changes(consensus, replica)
        self._reads = Reads(consensus, replica)
        self._majority_space = MajoritySpace(consensus, replica, timing.heartbeat_s)
        self._giving = Giving(consensus, replica)
        self._hand_over = HandOver(consensus, replica, self.changes, preference, self._lacks_room)

    # -- what the shell calls --------------------------------------------------------------

    def append(
        self, body: Buffer | Draft, kind: int, on_done: OnDone, *, urgent: bool = False
    ) -> None:
        """Append an entry; `on_done` is called once, from a later step. An urgent entry may use the
        room that is kept back on a full disk.

        Raises NotLeader, Busy or TooLarge if the entry was definitely not taken, StorageError if
        the log can't take any more.
        """
        self._check_appends()
        size = self.log.checked_size(body)
        self._pending.check_room(size)
        try:
            self._majority_space.check(size, kind, self.stepped_at, urgent=urgent)
        except NoSpace as error:
            raise Busy(str(error), NO_SPACE_RETRY_AFTER_S) from error
        header = self.log.append(self.log.last_index + 1, self.core.term, kind, body, size)
        self._pending.add(header.index, size, on_done)
        self.urgent = True

    def _check_appends(self) -> None:
        self.applying.check_serving()
        if self._hand_over.target is not None:
            raise Busy(f"leadership goes to {self._hand_over.target}", BUSY_RETRY_AFTER_S)

    @property
    def appends_pending(self) -> int:
        """How many appends on this node wait for their answer."""
        return len(self._pending)

    def read(self, on_read: OnRead) -> None:
        """`on_read` is called once, from a later step: with an index, when everything up to it is
        applied and nothing above it was acknowledged before this call; or with NotLeader.

        Raises NotLeader or Busy at once.
        """
        self.applying.check_serving()
        self._reads.add(on_read)
        self.urgent = True

    def transfer(self, target: str | None, on_done: Callable[[str | None], None]) -> str:
        """Begin to hand leadership to a peer, by default the one that holds most. Returns its id.

        `on_done` is called once, from a later step: with None when this node leads no longer, or
        with the reason why it still leads. Raises NotLeader or TransferFailed at once.
        """
        self.applying.check_serving()
        self.urgent = True
        return self._hand_over.begin(target, self._clock(), on_done)

    @property
    def handing_over_to(self) -> str | None:
        """The next leader, while a transfer is under way and appends are refused."""
        return self._hand_over.target

    def receive(self, node_id: str, link: Link, message: PeerMessage) -> None:
        """A peer's message arrived on a link; the next step handles it."""
        late = isinstance(message, Ack) and self._is_late(node_id, message)
        self.urgent = self.urgent or not late
        self._inbox.append((node_id, link, message, self._clock() if late else math.inf))

    def _is_late(self, node_id: str, message: Ack) -> bool:
        """Whether an acknowledgement is of committed entries. A peer's first one of a term is never
        late, as it shows that the peer is there; nor is any during a transfer."""
        core, peer = self.core, self.peers.known.get(node_id)
        if message.next_index - 1 > core.commit_index or peer is None:
            return False
        if message.reset or message.term != core.term or self.handing_over_to:
            return False
        return core.match_index(peer.node) > 0

    def link_up(self, node_id: str, link: Link) -> None:
        """A connection to a peer stands."""
        self.urgent = True
        self.peers.link_up(node_id, link)
        self._joining.link_up(node_id)

    def link_down(self, node_id: str, link: Link) -> None:
        """Note a broken connection. If it led to the leader, elect without waiting for a
        timeout."""
        self.urgent = True
        was_live = self.peers.link_down(node_id, link)
        self._hand_over.link_down(node_id)
        if was_live:
            self._joining.link_down(node_id)
        if was_live and node_id == self.core.leader_id:
            self.elections.leader_lost()

    def link_drained(self, node_id: str) -> None:
        """The queue to a peer has run low: more may be sent."""
        self.urgent = True
        self.peers.link_drained(node_id)

    def synced(self, job: SyncJob, error: OSError | None = None) -> list[Outgoing]:
        """Note that a sync has ended; returns the acknowledgements that are to be sent now. A step
        is for those of others that count only now. Raises Fenced if the sync failed."""
        self.log.finish_sync(job, error)
        self.acknowledging.release_held()
        if self.acknowledging.count_early_acks():
            self.urgent = True
        return self.peers.take_posted()

    def step(self) -> Ready:
        """Decide all that can be decided now."""
        now = self.stepped_at = self._clock()
        self.urgent = False
        self._deliver_inbox(now)
        electing = self.elections.before_tick(now)
        self.core.count_acknowledgements()
        self.core.tick(now, may_elect=electing)
        self.elections.after_tick(now, electing=electing)
        self.sending.send_new(now)
        self.acknowledging.release_held()
        self._joining.step()
        self.members.committed(self.core.commit_index)
        self._promote(now)
        if self.applying.serving:
            self._reads.step(now, self.machine.applied_index)
            self._hand_over.step(now, self.log.last_index - self.machine.applied_index)
        return self._ready(more=bool(self._inbox) or (self.solo and self._lags()))

    def _ready(self, *, more: bool = False) -> Ready:
        return Ready(self.log.is_dirty, self.peers.take_posted(), self.core.commit_index, more)

    def apply(self, commit_index: int) -> Iterator[Ready]:
        """Apply entries that are committed, and answer their appends, or take a slice of a state.
        Yields what is to be written and sent meanwhile: a burst of new appends before the rest is
        applied, a part of a state. Syncs are left to the next turn."""
        applied_index, was_serving = self.machine.applied_index, self.applying.serving
        self.state_transfer.step(self.stepped_at)
        for _ in self.applying.apply(commit_index):
            self.sending.send_new(self._clock())
            yield self._ready()
        self.applying.announce()
        if self.machine.applied_index > applied_index and self.applying.serving:
            # A step is for what may have waited for that.
            awaited = not was_serving or self._reads.awaits_applied or self.handing_over_to
            self.urgent = self.urgent or bool(awaited)
        if self.peers.has_posted:
            yield self._ready()

    @property
    def has_more(self) -> bool:
        """Whether more is left that can be applied, or taken over, at once."""
        return self.applying.has_more or self.state_transfer.is_busy

    def next_step_at(self) -> float:
        """When the next step is due if nothing makes it `urgent` before.

        Everything that a step does only because time has passed must be named here, or it is done
        late or never. The simulation steps its nodes at these times only.
        """
        stepped_at = self.stepped_at
        picture_at = self.state_transfer.next_at()
        due = min(self.core.patience_ends_at, self._joining.next_at(stepped_at), picture_at)
        if self.core.role is not Role.LEADER:
            return due
        due = min(due, self.sending.next_at(stepped_at))
        if not self.applying.serving:
            return due
        later = self.changes.next_at(stepped_at)
        return min(due, later, self._reads.next_at, self._hand_over.next_at)

    @property
    def solo(self) -> bool:
        """Whether this node is the only voter, so that it commits by itself."""
        return self.peers.solo

    def _lags(self) -> bool:
        return self.core.role is Role.LEADER and self.core.commit_index < self.log.last_index

    # -- messages --------------------------------------------------------------------------

    def _deliver_inbox(self, now: float) -> None:
        for _ in range(min(len(self._inbox), MESSAGES_PER_STEP_MAX)):
            node_id, link, message, received_at = self._inbox.popleft()
            peer = self.peers.known.get(node_id)
            if peer is None or peer.link is not link:
                continue
            try:
                if received_at < now - LATE_S and isinstance(message, Ack):
                    self.acknowledging.deliver_late_ack(peer, message, received_at)
                else:
                    self._deliver(peer, node_id, message, now)
            except FrameError as error:
                link.close(str(error))

    def _deliver(self, peer: Peer, node_id: str, message: PeerMessage, now: float) -> None:
        transport = self.transport
        self._claims.check(node_id, message)
        match message:
            case messages.Append() | messages.Head():
                if transport.deliver_from_leader(peer, message):
                    self._claims.accepted(node_id, message.term)
                    self.elections.heard_from_leader(now)
                    self._majority_space.report(peer, now)
            case Ack():
                self.acknowledging.deliver_ack(peer, message)
            case messages.Vote() | messages.Prevote():
                self._deliver_from_candidate(peer, message, now)
            case messages.Voted():
                transport.deliver_voted(peer, message)
            case messages.Denied():
                transport.step_down(peer, message.term)
            case (
                messages.Prevoted() | messages.TakeOver() | messages.Resigned() | messages.Consult()
            ):
                self.elections.deliver(node_id, message)
            case messages.Willing():
                self._hand_over.deliver(node_id, message)
            case messages.Declined():
                self._majority_space.heard(node_id, message, now)
                self._hand_over.deliver(node_id, message)
            case messages.Confirm() | messages.Confirmed():
                self._reads.deliver(peer, message)
            case messages.Lacking():
                with suppress(NotLeader, Busy):
                    self.read(partial(self._giving.give, peer, message.index))
            case _:
                self._joining.deliver(peer, message)
                self.state_transfer.deliver(peer, message, now)

    def _deliver_from_candidate(
        self, peer: Peer, message: messages.Vote | messages.Prevote, now: float
    ) -> None:
        if isinstance(message, messages.Prevote):
            self._joining.introduce(peer)
            self.elections.answer_prevote(str(peer.node.id), message, now)
        elif self.elections.may_vote(message, now):
            self.transport.deliver_vote(peer, message)

    # -- changing the members --------------------------------------------------------------

    def add_member(self, node_id: str, member: Member, on_done: OnDone) -> bool:
        """Append an entry that adds a learner to the group; False if it is a member already.

        `on_done` is called as for :meth:`append`. Raises what that and :meth:`Changes.addition` do.
        The leader makes the learner a voter when it is ready.
        """
        self._check_appends()
        members = self.changes.addition(node_id, member)
        if members is not None:
            self._append_configuration(members, on_done)
        return members is not None

    def remove_member(self, node_id: str, on_done: OnDone) -> bool:
        """Remove another member by an entry. Always True; raises what :meth:`add_member` does."""
        self._check_appends()
        if node_id == self.node_id:
            raise ChangePending(f"{node_id} leads: it has to hand leadership over first")
        self._append_configuration(self.changes.removal(node_id), on_done)
        return True

    def _promote(self, now: float) -> None:
        learners = self.members.current.learners
        if learners and self.applying.serving and self.handing_over_to is None:
            members = self.changes.promotion(now)
            if members is not None:
                self._append_configuration(members, lambda outcome: None)

    def _append_configuration(self, members: Mapping[str, Member], on_done: OnDone) -> None:
        """Append a new configuration of the group. It is saved and in force before its entry is in
        the log.

        The leader serves, so it has committed an entry of its term, the no-op. The caller has
        checked that no other change is pending.
        """
        body, index, term = encode_members(members), self.log.last_index + 1, self.core.term
        self.urgent = True
        self.members.append(index, term, body)
        self.log.append(index, term, Kind.CONFIGURATION, body)
        self._pending.add(index, len(body), on_done)

    def _role_changed(self, old: int, new: int) -> None:
        """Take a change of role from the library. The appends of a deposed leader are answered at
        once."""
        if new == Role.LEADER:
            self.sending.begin_to_lead()
        if old != Role.LEADER:
            return
        self.peers.drop_entries()
        led_term = self.applying.deposed()
        self._pending.give_up()
        self._reads.fail(NotLeader(None))
        self._hand_over.deposed()
        self.elections.resigned(led_term)

    def _lacks_room(self) -> bool:
        """Whether this node would take no messages if it led."""
        return self.refusal is not None or self.log.space.lacking is not None

    @property
    def standing(self) -> Standing:
        """The leader, as far as this node knows."""
        return self.applying.standing

    def fence(self, error: DledgerError | OSError) -> None:
        """Stop taking part: every pending append and read is answered, with an unknown outcome."""
        self.fenced = str(error)
        self._role_changed(Role.LEADER, Role.FOLLOWER)
        self.applying.fenced()
        self.peers.close_links(self.fenced)
