"""Planted bugs of linearizable reads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

from msgspec.structs import replace

from dledger.errors import NotLeader
from dledger.raft.engine import RaftEngine
from dledger.raft.messages import Confirm, Confirmed
from dledger.raft.peer import Peer
from dledger.raft.ready import Ready
from dledger.raft.replication.reads import OnRead, Reads
from dledger.raft.roles import Role
from dledger.testing.planted.raft import together

Planted = AbstractContextManager[object]


def answer_a_read_without_asking() -> Planted:
    """A leader answers reads by itself: it may have been deposed without knowing."""
    return patch.object(Reads, "_is_confirmed", lambda self: True)


def join_a_round_under_way() -> Planted:
    """A read is answered by confirmations that were sent before it was asked."""
    original = Reads.add

    def add(self: Reads, on_read: OnRead) -> None:
        if self._asking:
            self._asking.append(on_read)
        else:
            original(self, on_read)

    return patch.object(Reads, "add", add)


def count_any_confirmation() -> Planted:
    """A confirmation counts whatever round it is of, so also one sent before the read."""
    original = Reads.deliver

    def deliver(self: Reads, peer: Peer, message: Confirm | Confirmed) -> None:
        if isinstance(message, Confirmed):
            message = replace(message, number=self._round)
        original(self, peer, message)

    return patch.object(Reads, "deliver", deliver)


def read_before_the_own_terms_commit() -> Planted:
    """A new leader takes and answers reads before its own no-op is committed and applied."""
    original = RaftEngine.step

    def read(self: RaftEngine, on_read: OnRead) -> None:
        if self.core.role is not Role.LEADER:
            raise NotLeader(None)
        self._reads.add(on_read)

    def step(self: RaftEngine) -> Ready:
        ready = original(self)
        if self.core.role is Role.LEADER:
            self._reads.step(self._clock(), self.machine.applied_index)
        return replace(ready, messages=ready.messages + self.peers.take_posted())

    return together(patch.object(RaftEngine, "read", read), patch.object(RaftEngine, "step", step))
