"""Planted bugs of elections, replication and commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from unittest.mock import patch

from msgspec.structs import replace

from dledger.buffers import Buffer
from dledger.errors import NotLeader
from dledger.log.entry import Draft, Header
from dledger.log.hard_state import HardState, HardStateFile
from dledger.log.store import SegmentedLog
from dledger.raft import messages
from dledger.raft.acknowledging import Acknowledging
from dledger.raft.appends import OnDone
from dledger.raft.election.part import Elections
from dledger.raft.election.rules import ElectionGate
from dledger.raft.election.transfer import Follower, Next, Transfer
from dledger.raft.engine import RaftEngine
from dledger.raft.library import adapter as library
from dledger.raft.library.adapter import Core, Node
from dledger.raft.library.journal import LogJournal
from dledger.raft.library.transport import PeerTransport
from dledger.raft.messages import (
    Ack,
    Answer,
    Append,
    Copy,
    Prevote,
    Vote,
    Voted,
)
from dledger.raft.peer import Held, Peer
from dledger.raft.ready import Ready
from dledger.raft.replication.applying import Applying
from dledger.raft.roles import Role

Planted = AbstractContextManager[object]
LibraryMessage = dict[str, int]


@contextmanager
def together(*patches: Planted) -> Iterator[None]:
    """Several patches in one block, undone in reverse order."""
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield


# -- replication -------------------------------------------------------------------------------


def send_again() -> Planted:
    """An acknowledgement moves the next index back to itself."""
    return patch.object(Acknowledging, "_keep_next_index", lambda self, node, index: None)


def truncate_matching() -> Planted:
    """Entries after the one that a message builds on are all cut."""

    def delete(self: LogJournal, entryFrom: int) -> None:  # noqa: N803
        first = self.log.first_index + entryFrom
        if first <= self.log.last_index:
            self.log.commit_index = min(self.log.commit_index, first - 1)
            self.log.cut(first)

    return patch.object(LogJournal, "deleteEntriesFrom", delete)


def send_again_and_truncate() -> Planted:
    """Both bugs at once, as in the library: one crash of a leader loses committed entries."""
    return together(send_again(), truncate_matching())


def act_on_what_was_garbled() -> Planted:
    """A frame is taken for what a peer sent, although its CRC says otherwise."""
    return patch.object(messages, "_checks", lambda frame, head_length, crc: True)


def count_stale_acks() -> Planted:
    """An acknowledgement counts whatever its term."""
    original = Acknowledging.deliver_ack

    def deliver(
        self: Acknowledging, peer: Peer, message: Answer, received_at: float | None = None
    ) -> None:
        original(self, peer, replace(message, term=self._core.term), received_at)

    return patch.object(Acknowledging, "deliver_ack", deliver)


def trust_reset_hints() -> Planted:
    """A rejection names the index that the library would, and none is ignored."""

    def hold(self: Acknowledging, peer: Peer, term: int, message: LibraryMessage) -> None:
        next_index, reset = message["next_node_idx"], message["reset"]
        success, sequence = bool(message["success"]), peer.answers.received_sequence + (1 << 40)
        answer = Ack(term, next_index, bool(reset), success, sequence)
        peer.answers.held.append(Held(answer, next_index - 1 if success else 0))

    return patch.object(Acknowledging, "hold", hold)


def keep_conflicting_entries() -> Planted:
    """A follower keeps what it has, and appends the rest without looking at the chain."""

    def append_copy(self: SegmentedLog, header: Header, raw_header: Buffer, body: Buffer) -> None:
        self._stage(header, raw_header, body)

    original = LogJournal._add_copy

    def add(self: LogJournal, copy: Copy, index: int, term: int) -> None:
        if index > self.log.last_index:
            original(self, copy, index, term)

    return together(
        patch.object(SegmentedLog, "append_copy", append_copy),
        patch.object(LogJournal, "_add_copy", add),
    )


# -- acknowledging and committing --------------------------------------------------------------


def acknowledge_before_sync() -> Planted:
    """A node vouches for what it has only written."""
    return patch.object(Acknowledging, "vouched_index", property(lambda self: self._log.last_index))


def count_own_copy_early() -> Planted:
    """A leader counts itself although only the others' copies are durable."""
    original = Acknowledging.deliver_ack

    def deliver(
        self: Acknowledging, peer: Peer, message: Answer, received_at: float | None = None
    ) -> None:
        with acknowledge_before_sync():
            original(self, peer, message, received_at)

    return patch.object(Acknowledging, "deliver_ack", deliver)


def acknowledge_the_whole_log() -> Planted:
    """A follower acknowledges all that it has, and not only what a message verified."""
    original = Acknowledging.hold

    def hold(self: Acknowledging, peer: Peer, term: int, message: LibraryMessage) -> None:
        if message["success"]:
            end = max(message["next_node_idx"], self._log.last_index + 1)
            message = {**message, "next_node_idx": end}
        original(self, peer, term, message)

    return patch.object(Acknowledging, "hold", hold)


def take_commit_unclamped() -> Planted:
    """A follower takes the leader's commit index for a log that may not be the leader's."""
    receive = PeerTransport._onMessageReceived
    deliver = PeerTransport.deliver_append
    said: list[int] = [0]

    def take(self: PeerTransport, node: Node, message: LibraryMessage) -> None:
        if "commit_index" in message:
            message["commit_index"] = said[0]
        receive(self, node, message)

    def deliver_append(self: PeerTransport, peer: Peer, message: Append) -> bool:
        said[0] = message.commit_index
        return deliver(self, peer, message)

    return together(
        patch.object(PeerTransport, "_onMessageReceived", take),
        patch.object(PeerTransport, "deliver_append", deliver_append),
    )


def trust_commit_beyond_log() -> Planted:
    """A known commit index may, at the start, lie beyond the end of the log."""
    return patch.object(LogJournal, "getRaftCommitIndex", lambda self: self.log.commit_index + 40)


def elect_as_the_clock_goes_on() -> Planted:
    """The library elects when its deadline passes within a step, whatever was decided before."""
    return patch.object(Core, "tick", lambda self, now, *, may_elect: self.doTick(0))


def commit_by_counting() -> Planted:
    """A leader commits entries of earlier terms as soon as a majority holds them."""

    original = Core.tick

    def tick(self: Core, now: float, *, may_elect: bool) -> None:
        original(self, now, may_elect=may_elect)
        if self.role is Role.LEADER:
            held = sorted(
                [*(self.match_index(node) for node in self.otherNodes), 1 << 62], reverse=True
            )
            index = held[len(held) // 2]
            if index > self.commit_index:
                self._SyncObj__raftCommitIndex = index
                self._SyncObj__raftLog.setRaftCommitIndex(index)

    return patch.object(Core, "tick", tick)


def count_less_than_a_majority() -> Planted:
    """A leader commits what one node less than a majority holds."""
    return patch.object(
        library, "majority_index", lambda held: sorted(held, reverse=True)[len(held) // 2 - 1]
    )


def serve_early() -> Planted:
    """A new leader serves although what earlier terms left is not applied yet."""
    return patch.object(Core, "noop_index", property(lambda self: 1))


def answer_early() -> Planted:
    """An append is acknowledged when it is in the leader's own log."""
    original = Applying.apply

    def apply(self: Applying, commit_index: int) -> Iterator[None]:
        for index in range(self._machine.applied_index + 1, self._log.last_index + 1):
            self._pending.applied(self._log.reader.entry(index), None)
        return original(self, commit_index)

    return patch.object(Applying, "apply", apply)


def apply_early() -> Planted:
    """A node applies what is in its log, committed or not."""
    original = Applying.apply
    return patch.object(
        Applying, "apply", lambda self, commit_index: original(self, self._log.last_index)
    )


# -- terms, votes, leadership ------------------------------------------------------------------


def forget_term_and_vote() -> Planted:
    """Term and vote are kept in memory only; eligibility is on the disk."""
    original = HardStateFile.save

    def save(self: HardStateFile, state: HardState) -> None:
        original(self, HardState(eligible=state.eligible))
        self.state = state

    return together(patch.object(HardStateFile, "save", save), accept_old_vote())


def vote_again() -> Planted:
    """A restart remembers the term, but not the vote."""
    return patch.object(LogJournal, "getVotedForNodeId", lambda self: None)


def accept_old_vote() -> Planted:
    """A vote file older than the log goes unnoticed."""
    return patch.object(LogJournal, "check_hard_state", lambda self: None)


def count_a_vote_twice() -> Planted:
    """A voter counts for two."""

    def deliver(self: PeerTransport, peer: Peer, message: Voted) -> None:
        if message.term == self._core.term:
            for _ in range(2):
                self._onMessageReceived(peer.node, {"type": "response_vote", "term": message.term})

    return patch.object(PeerTransport, "deliver_voted", deliver)


def vote_for_a_shorter_log() -> Planted:
    """A node votes for any candidate, even if it lacks entries that this node holds."""
    deliver, answer = PeerTransport.deliver_vote, Elections.answer_prevote
    newest = 1 << 60

    def deliver_vote(self: PeerTransport, peer: Peer, message: Vote) -> None:
        deliver(self, peer, replace(message, last_index=newest, last_term=newest))

    def answer_prevote(self: Elections, node_id: str, message: Prevote, now: float) -> None:
        answer(self, node_id, replace(message, last_index=newest, last_term=newest), now)

    return together(
        patch.object(PeerTransport, "deliver_vote", deliver_vote),
        patch.object(Elections, "answer_prevote", answer_prevote),
    )


def elect_without_asking() -> Planted:
    """No pre-vote and no stickiness: harmless to safety, so only liveness can show it."""
    return together(
        patch.object(ElectionGate, "_won", lambda self: True),
        patch.object(ElectionGate, "leader_alive", lambda self, now: False),
    )


def never_check_quorum() -> Planted:
    """A leader that hears from no majority goes on leading."""
    original = vars(library)["SyncObjConf"]

    def conf(**options: object) -> object:
        return original(**{**options, "leaderFallbackTimeout": 1e9})

    return patch.object(library, "SyncObjConf", conf)


def take_over_without_an_election() -> Planted:
    """A node that is asked to take over leads at once, without asking for votes."""
    original = Elections._asked_to_elect

    def asked(self: Elections) -> bool:
        if original(self):
            self.core._SyncObj__setCurrentTerm(self.core.term + 1, None)
            self.core._SyncObj__onBecomeLeader()
        return False

    return patch.object(Elections, "_asked_to_elect", asked)


def hand_over_for_ever() -> Planted:
    """A leader whose successor does not take over goes on waiting for it."""
    original = Transfer.next

    def following(self: Transfer, now: float, target: Follower, uncommitted: int) -> Next:
        decided = original(self, now, target, uncommitted)
        return Next.WAIT if decided is Next.GIVE_UP else decided

    return patch.object(Transfer, "next", following)


# -- appends -----------------------------------------------------------------------------------


def never_tell_of_lost_leadership() -> Planted:
    """The appends of a deposed leader are never answered."""
    return patch.object(RaftEngine, "_role_changed", lambda self, old, new: None)


def append_what_was_refused() -> Planted:
    """A node appends what it refused as a follower, once it leads."""
    append_now, step = RaftEngine.append, RaftEngine.step
    refused: list[tuple[RaftEngine, Buffer | Draft, int]] = []

    def append(self: RaftEngine, body: Buffer | Draft, kind: int, on_done: OnDone) -> None:
        try:
            append_now(self, body, kind, on_done)
        except NotLeader:
            refused.append((self, body, kind))
            raise

    def step_and_append(self: RaftEngine) -> Ready:
        ready = step(self)
        if self.standing.serving:
            mine = [held for held in refused if held[0] is self]
            refused[:] = [held for held in refused if held[0] is not self]
            for _, body, kind in mine:
                append_now(self, body, kind, lambda outcome: None)
        return ready

    return together(
        patch.object(RaftEngine, "append", append),
        patch.object(RaftEngine, "step", step_and_append),
    )
