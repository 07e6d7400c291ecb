"""Planted bugs of the time at which a step is due: a deadline that is not named passes unseen."""

from __future__ import annotations

import math
from unittest.mock import PropertyMock, patch

from dledger.raft.acknowledging import Acknowledging
from dledger.raft.election.handover import HandOver
from dledger.raft.engine import RaftEngine
from dledger.raft.library.adapter import Core
from dledger.raft.membership.changes import Changes
from dledger.raft.membership.joining import Joining
from dledger.raft.replication.reads import Reads
from dledger.raft.replication.sending import Sending
from dledger.raft.roles import Role
from dledger.testing.planted.raft import Planted


def sleep_through_an_election() -> Planted:
    """A node that hears no leader is not stepped when its patience is over."""
    original = RaftEngine.next_step_at

    def next_step_at(self: RaftEngine) -> float:
        return original(self) if self.core.role is Role.LEADER else math.inf

    return patch.object(RaftEngine, "next_step_at", next_step_at)


def sleep_through_heartbeats() -> Planted:
    """A leader that has nothing to send is not stepped to say that it is there."""
    return patch.object(Core, "heartbeat_at", lambda self: math.inf)


def sleep_through_lost_quorum() -> Planted:
    """A leader is not stepped when nobody has answered for too long."""
    original = RaftEngine.next_step_at

    def next_step_at(self: RaftEngine) -> float:
        if self.core.role is not Role.LEADER:
            return original(self)
        with patch.object(Core, "patience_ends_at", math.inf):
            return original(self)

    return patch.object(RaftEngine, "next_step_at", next_step_at)


def forget_what_was_held_back() -> Planted:
    """A leader is not stepped to send more to a peer that flow control held back."""
    return patch.object(Sending, "next_at", lambda self, stepped_at: self._core.heartbeat_at())


def forget_a_read() -> Planted:
    """A leader is not stepped to ask again for a read that nobody has confirmed."""
    return patch.object(Reads, "next_at", PropertyMock(return_value=math.inf))


def forget_a_transfer() -> Planted:
    """A leader is not stepped when its successor did not take over in time."""
    return patch.object(HandOver, "next_at", PropertyMock(return_value=math.inf))


def forget_a_learner() -> Planted:
    """A leader is not stepped when a learner may have its whole state."""
    return patch.object(Changes, "next_at", lambda self, stepped_at: math.inf)


def forget_what_is_missing() -> Planted:
    """A node that lacks its state, or has not saved it, is not stepped to look again."""
    return patch.object(Joining, "next_at", lambda self, stepped_at: math.inf)


def count_early_acks_unnoticed() -> Planted:
    """A leader is not stepped when its own sync lets it count acknowledgements that came before."""
    original = Acknowledging.count_early_acks

    def count_early_acks(self: Acknowledging) -> bool:
        original(self)
        return False

    return patch.object(Acknowledging, "count_early_acks", count_early_acks)
