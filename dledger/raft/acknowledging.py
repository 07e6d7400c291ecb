"""Acknowledgements: which of them this node sends, and which of others it counts.

- A follower sends an acknowledgement only when the entries are durable on it (7). A leader counts
  one only when its own copy is durable, so that it never counts itself too early.
- An acknowledgement of another term is dropped (2). None moves the next index back, so nothing in
  flight is sent twice (1).
- A follower rejects a message with its own commit index + 1. Everything below surely matches, so
  one round trip finds where both logs agree. A rejection of a message that was sent before the last
  reset is ignored (3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dledger.errors import FrameError
from dledger.failpoints import failpoint
from dledger.raft.limits import ACK_AGAIN_S, NO_SPACE_ASK_S, SIGN_OF_LIFE_S
from dledger.raft.messages import Ack, Answer, Learned
from dledger.raft.peer import Held, Peer

if TYPE_CHECKING:
    from dledger.raft.library.adapter import Node
    from dledger.raft.parts import Consensus, Replica


class Acknowledging:
    """The acknowledgements of a node, in both directions."""

    def __init__(self, consensus: Consensus, replica: Replica, *, sync: bool) -> None:
        self._core = consensus.core
        self._transport = consensus.transport
        self._peers = consensus.peers
        self._members = replica.members
        self._log = replica.log
        self._hard_state = replica.hard_state
        self._base_state = replica.base_state
        self._sync = sync
        self._asked_without_space_at = float("-inf")

    @property
    def eligible(self) -> bool:
        """Whether this node may vote and is counted."""
        return self._hard_state.state.eligible

    @property
    def vouched_index(self) -> int:
        """The last entry that this node may acknowledge: the last durable one, or the last if flush
        is async."""
        return self._log.durable_index if self._sync else self._log.last_index

    @property
    def is_counted(self) -> bool:
        """Whether a leader may count this node's acknowledgements for a majority."""
        return self.eligible and self._base_state.is_saved

    @property
    def counted_index(self) -> int:
        """The last entry that this node counts for itself when it leads."""
        return self.vouched_index if self._base_state.is_saved else 0

    # -- this node's own copy --------------------------------------------------------------

    def hold(self, peer: Peer, term: int, message: dict[str, Any]) -> None:
        """The library answers a leader: send that as soon as this node can vouch for it."""
        next_index, reset = message["next_node_idx"], message["reset"]
        if reset:
            next_index = min(next_index, self._core.commit_index + 1)
            if self._log.space.lacking is not None:
                # There would still be no room for the entries: ask for them only now and then.
                if self._core.now - self._asked_without_space_at < NO_SPACE_ASK_S:
                    self._show_life(peer, term)
                    return
                self._asked_without_space_at = self._core.now
        elif not message["success"] or self._was_acknowledged(peer, term, next_index):
            return
        success = bool(message["success"])
        needs = next_index - 1 if success else 0
        answer = self._answer(
            term, next_index, bool(reset), success, peer.answers.received_sequence
        )
        waits_already = bool(peer.answers.held)
        peer.answers.held.append(Held(answer, needs))
        if waits_already and needs > self.vouched_index:
            # Acknowledge at least what is durable by now: a node whose disk takes a second for a
            # sync must not look dead.
            self._show_life(peer, term)

    def _show_life(self, peer: Peer, term: int) -> None:
        if self._is_quiet(peer):
            next_index = self.vouched_index + 1
            answer = self._answer(term, next_index, False, True, peer.answers.received_sequence)
            self._acknowledge(peer, answer)

    @property
    def _answer(self) -> type[Answer]:
        return Ack if self.is_counted else Learned

    def _was_acknowledged(self, peer: Peer, term: int, next_index: int) -> bool:
        """Whether the leader got this same acknowledgement just now, over this link.

        Only acknowledgements that count are left out, and only for a while: a leader that could not
        use the first one must get another.
        """
        answers = peer.answers
        if answers.held or answers.acknowledged != (term, next_index):
            return False
        return self._core.now - answers.acknowledged_at < ACK_AGAIN_S and self.is_counted

    def _is_quiet(self, peer: Peer) -> bool:
        return self._core.now - peer.answers.acknowledged_at > SIGN_OF_LIFE_S

    def _acknowledge(self, peer: Peer, answer: Answer) -> None:
        if peer.link is not None:
            peer.answers.acknowledged_at = self._core.now
            failpoint("raft.acknowledge")
            self._peers.post(peer, answer)

    def received(self, peer: Peer, sequence: int) -> None:
        """A leader's message with this number is about to be answered."""
        peer.answers.received_sequence = sequence

    def release_held(self) -> None:
        """Send the acknowledgements whose entries this node can vouch for."""
        for peer in self._peers.known.values():
            if peer.answers.held:
                self._release(peer)

    def _release(self, peer: Peer) -> None:
        """Send a peer the acknowledgements whose entries this node can vouch for.

        Of several that accept entries only the last is sent: it says what the others do. One of an
        older term is dropped. Its entries may have been cut; then it would wait for other entries
        with the same indexes, and hold back all later acknowledgements.
        """
        vouched, term, answers = self.vouched_index, self._core.term, peer.answers
        latest: Answer | None = None
        while answers.held:
            answer, needed_index = answers.held[0]
            if answer.term >= term and needed_index > vouched:
                break
            answers.held.popleft()
            if answer.term < term:
                continue
            if latest is not None and not (latest.success and answer.success):
                self._acknowledge(peer, latest)
            latest = answer
        if latest is not None:
            self._acknowledge(peer, latest)
            counts = latest.success and isinstance(latest, Ack)
            answers.acknowledged = (latest.term, latest.next_index) if counts else None

    # -- others' acknowledgements ----------------------------------------------------------

    def deliver_ack(self, peer: Peer, message: Answer, received_at: float | None = None) -> None:
        """Hand an acknowledgement to the library if it is of this term and this leader can count
        it.

        A learner's only says what to send next. `received_at`: when it arrived, if it had to wait.
        """
        if message.term != self._core.term:
            if message.term > self._core.term:
                self._transport.step_down(peer, message.term)
            return
        if str(peer.node.id) not in self._members.current.members:
            return
        next_index = message.next_index
        if next_index - 1 > self._log.last_index:
            raise FrameError(f"an acknowledgement up to {next_index - 1}, which was never sent")
        peer.sent.flow.acknowledged(next_index - 1)
        if message.reset:
            if message.sequence <= peer.answers.reset_sequence:
                return
            peer.answers.reset_sequence = peer.sent.sequence
            peer.sent.flow.start_again()
            self._peers.ask_to_send()
        elif isinstance(message, Ack) and next_index - 1 > self.counted_index:
            peer.answers.early = message, self._core.now if received_at is None else received_at
            return
        if not isinstance(message, Learned):
            self._count_ack(peer, next_index, reset=message.reset, success=message.success)
            return
        last_contact = self._core.last_contact(peer.node)
        self._count_ack(peer, next_index, reset=message.reset, success=message.success)
        # The peer may also have forgotten the entries that it acknowledged before.
        self._core.forget_match(peer.node)
        self._core.set_last_contact(peer.node, last_contact)

    def _count_ack(self, peer: Peer, next_index: int, *, reset: bool, success: bool) -> None:
        before = self._core.next_index(peer.node)
        self._transport.answered(peer.node, next_index, reset=reset, success=success)
        if not reset:
            self._keep_next_index(peer.node, before)

    def _keep_next_index(self, node: Node, before: int) -> None:
        if self._core.next_index(node) < before:
            self._core.set_next_index(node, before)

    def count_early_acks(self) -> bool:
        """Count early acknowledgements, as this node's own copy became durable now. Returns whether
        there was one."""
        found = False
        for peer in self._peers.known.values():
            early = peer.answers.early
            if early is not None:
                peer.answers.early, found = None, True
                self.deliver_late_ack(peer, *early)
        return found

    def deliver_late_ack(self, peer: Peer, message: Ack, received_at: float) -> None:
        """Handle an acknowledgement that arrived some time ago, and was not urgent.

        It shows that the peer was alive when it arrived, not now: a leader that has been cut off
        since must not take it for a fresh sign of life.
        """
        last_contact = self._core.last_contact(peer.node)
        self.deliver_ack(peer, message, received_at)
        if self._core.last_contact(peer.node) != last_contact:
            self._core.set_last_contact(peer.node, max(last_contact, received_at))
