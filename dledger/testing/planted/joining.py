"""Planted bugs of eligibility, lost disks and logs without a head."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

from msgspec.structs import astuple

from dledger.log import store
from dledger.log.head import LogHead, encode_head
from dledger.log.jobs import TrimJob
from dledger.log.store import SegmentedLog
from dledger.raft.acknowledging import Acknowledging
from dledger.raft.membership.eligibility import Barrier, Forming
from dledger.raft.membership.joining import Joining
from dledger.raft.messages import Ack, Answer, Eligible
from dledger.raft.peer import Peer
from dledger.raft.replication.base_state import BaseState
from dledger.raft.replication.state_transfer import StateTransfer
from dledger.testing.planted.raft import together

Planted = AbstractContextManager[object]


def vote_with_an_emptied_disk() -> Planted:
    """Every node is eligible from the start, whatever its disk has forgotten."""

    def take(self: Joining) -> None:
        if not self.eligible:
            self._become_eligible()

    return patch.object(Joining, "_become_eligible_if_new", take)


def make_eligible_only_where_nobody_has_a_term() -> Planted:
    """A member is new only in term 0: a quick candidate leaves the others ineligible."""

    def fresh(self: Joining) -> bool:
        return self._log.last_index <= 1 and self._core.term == 0

    return patch.object(Joining, "_fresh", property(fresh))


def vote_anew_in_a_new_group() -> Planted:
    """A member of a new group becomes eligible in the term in which it may have voted before."""
    return patch.object(Forming, "unused_term", property(lambda self: 0))


def count_a_learner() -> Planted:
    """A leader takes a learner's acknowledgements for those of a member."""
    original = Acknowledging.deliver_ack

    def deliver(
        self: Acknowledging, peer: Peer, message: Answer, received_at: float | None = None
    ) -> None:
        original(self, peer, Ack(*astuple(message)), received_at)

    return patch.object(Acknowledging, "deliver_ack", deliver)


def make_a_learner_eligible_at_once() -> Planted:
    """A learner becomes eligible with the first thing that it acknowledges."""
    return together(
        patch.object(Barrier, "passed", lambda self, commit_index, held_index: True),
        patch.object(Joining, "_take_offer", lambda self, peer, message: self._become_eligible()),
    )


def remove_before_the_head_is_written() -> Planted:
    """Old segments go first; where the log begins is written down afterwards."""

    def remove(self: SegmentedLog, job: TrimJob) -> None:
        for path in job.paths:
            self._disk.remove(path)
        self._disk.sync_folder(self.folder)
        self._disk.replace(self.folder / "head", encode_head(job.head))

    return patch.object(SegmentedLog, "remove_head", remove)


def begin_anew_without_the_first_entry() -> Planted:
    """A new head is written without the entry that the log begins with."""

    def encode(head: LogHead) -> bytes:
        return encode_head(LogHead(head.base_position, head.first_index, head.chain_crc))

    return patch.object(store, "encode_head", encode)


def apply_under_a_picture() -> Planted:
    """Entries are applied between two slices of a picture that is given to another node."""
    return patch.object(StateTransfer, "holds", property(lambda self: False))


def count_without_the_state() -> Planted:
    """A node becomes eligible and is counted without the state before its log's first entry."""
    return patch.object(BaseState, "is_saved", True)


def take_memory_for_a_saved_state() -> Planted:
    """A state that was received counts, even if it is not saved."""
    return patch.object(BaseState, "is_saved", property(lambda self: not self.is_missing))


def become_eligible_without_the_state() -> Planted:
    """A learner becomes eligible for its log alone."""
    original = Joining._take_offer

    def take(self: Joining, peer: Peer, message: Eligible) -> None:
        with patch.object(BaseState, "is_saved", True):
            original(self, peer, message)

    return patch.object(Joining, "_take_offer", take)


def apply_before_the_state_is_there() -> Planted:
    """A node applies its log's first entry although what came before it is missing."""
    return patch.object(BaseState, "is_missing", property(lambda self: False))
