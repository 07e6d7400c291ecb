"""Bugs that Raft implementations have had, to be put back in: the simulation must catch each.

A judge that can't fail proves nothing. Each bug here takes one fix out, or breaks one rule, for
the time of a `with` block; the test runs seeds until the simulation objects. The numbers are those
of the holes in `docs/raft-holes.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from dledger.log.entry import Header
from dledger.log.hard_state import HardState, HardStateFile
from dledger.log.store import SegmentedLog, SyncJob
from dledger.raft.election import ElectionGate
from dledger.raft.engine import RaftEngine
from dledger.raft.journal import LogJournal
from dledger.raft.library import Core
from dledger.raft.messages import PeerKind, PeerMessage, encode_message
from dledger.raft.transport import Peer, PeerTransport

Planted = AbstractContextManager[object]


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """`holes`: the numbers of the audit's holes that it reopens; empty for others.

    One that is not `unsafe` breaks no invariant: only a directed test can show it.
    """

    name: str
    holes: tuple[int, ...]
    plant: Callable[[], Planted]
    unsafe: bool = True
    nodes: int = 3


def _acknowledge_before_sync() -> Planted:
    vouch_for_all = property(lambda self: self._log.last_index)
    return patch.object(PeerTransport, "vouched_index", vouch_for_all)


def _forget_term_and_vote() -> Planted:
    def save(self: HardStateFile, state: HardState) -> None:
        self.state = state

    return patch.object(HardStateFile, "save", save)


def _count_stale_acknowledgements() -> Planted:
    original = PeerTransport.deliver_ack

    def deliver(self: PeerTransport, peer: Peer, message: PeerMessage) -> None:
        original(self, peer, replace(message, term=self.core.term))

    return patch.object(PeerTransport, "deliver_ack", deliver)


def _count_own_copy_before_sync() -> Planted:
    original = PeerTransport.deliver_ack

    def deliver(self: PeerTransport, peer: Peer, message: PeerMessage) -> None:
        vouch_for_all = property(lambda self: self._log.last_index)
        with patch.object(PeerTransport, "vouched_index", vouch_for_all):
            original(self, peer, message)

    return patch.object(PeerTransport, "deliver_ack", deliver)


def _truncate_matching_entries() -> Planted:
    def delete(self: LogJournal, entryFrom: int) -> None:  # noqa: N803
        first = self.log.first_index + entryFrom
        if first <= self.log.last_index:
            self.log.commit_index = min(self.log.commit_index, first - 1)
            self.log.cut(first)

    return patch.object(LogJournal, "deleteEntriesFrom", delete)


def _send_again_what_is_in_flight() -> Planted:
    return patch.object(Core, "set_next_index", lambda self, node, index: None)


def _take_commit_index_unclamped() -> Planted:
    original = PeerTransport._onMessageReceived

    def receive(self: PeerTransport, node: object, message: dict[str, Any]) -> None:
        if message["type"] == "append_entries":
            message["commit_index"] = self._unclamped
        original(self, node, message)

    deliver = PeerTransport.deliver_append

    def deliver_append(self: PeerTransport, peer: Peer, message: PeerMessage) -> bool:
        self._unclamped = message.fields[0]
        return deliver(self, peer, message)

    return _all(
        patch.object(PeerTransport, "_onMessageReceived", receive),
        patch.object(PeerTransport, "deliver_append", deliver_append),
    )


def _trust_the_library_reset_hints() -> Planted:
    def hold(self: PeerTransport, peer: Peer, term: int, message: dict[str, Any]) -> None:
        next_index, reset = message["next_node_idx"], message["reset"]
        needs = next_index - 1 if message["success"] else 0
        frame = encode_message(PeerKind.ACK, term, next_index, reset, message["success"], 1 << 40)
        peer.held.append((needs, frame))

    def deliver(self: PeerTransport, peer: Peer, message: PeerMessage) -> None:
        if message.term == self.core.term:
            next_index, reset, success, _ = message.fields
            self._count_ack(peer, next_index, reset=bool(reset), success=bool(success))

    return _all(
        patch.object(PeerTransport, "_hold_ack", hold),
        patch.object(PeerTransport, "deliver_ack", deliver),
    )


def _trust_a_commit_index_beyond_the_log() -> Planted:
    def commit_index(self: LogJournal) -> int:
        return self.log.commit_index + 40

    return patch.object(LogJournal, "getRaftCommitIndex", commit_index)


def _never_resolve_appends_of_a_deposed_leader() -> Planted:
    return patch.object(RaftEngine, "_role_changed", lambda self, old, new: None)


def _append_what_was_refused() -> Planted:
    original = RaftEngine._role_changed

    def changed(self: RaftEngine, old: int, new: int) -> None:
        waiting = list(self._waiting)
        original(self, old, new)
        for append in waiting:
            append.cancelled = False
            self.core.conf.commandsWaitLeader = True
            self.core.propose(append)

    return patch.object(RaftEngine, "_role_changed", changed)


def _vote_twice_in_a_term() -> Planted:
    return patch.object(LogJournal, "getVotedForNodeId", lambda self: None)


def _count_a_vote_twice() -> Planted:
    def deliver(self: PeerTransport, peer: Peer, message: PeerMessage) -> None:
        if message.term == self.core.term:
            for _ in range(2):
                self._onMessageReceived(peer.node, {"type": "response_vote", "term": message.term})

    return patch.object(PeerTransport, "deliver_voted", deliver)


def _accept_an_old_vote_file() -> Planted:
    return patch.object(LogJournal, "check_hard_state", lambda self: None)


def _vouch_for_what_a_cut_replaced() -> Planted:
    original = SegmentedLog.finish_sync

    def finish(self: SegmentedLog, job: SyncJob, error: OSError | None = None) -> None:
        original(self, job, error)
        self.durable_index = max(self.durable_index, min(job.target_index, self.last_index))

    return patch.object(SegmentedLog, "finish_sync", finish)


def _skip_the_chain_check() -> Planted:
    def append_copy(self: SegmentedLog, header: Header, raw_header: Any, body: Any) -> None:
        self._stage(header, raw_header, body)

    original = LogJournal._add_copy

    def add(self: LogJournal, copy: Any, index: int, term: int) -> None:
        if index <= self.log.last_index:
            return
        original(self, copy, index, term)

    return _all(
        patch.object(SegmentedLog, "append_copy", append_copy),
        patch.object(LogJournal, "_add_copy", add),
    )


def _elect_without_asking() -> Planted:
    """No pre-vote, no stickiness: harmless to safety, so only liveness can show it."""
    return _all(
        patch.object(ElectionGate, "_won", lambda self: True),
        patch.object(ElectionGate, "leader_alive", lambda self, now: False),
    )


def _sync_nothing() -> Planted:
    return patch.object(SyncJob, "run", lambda self: None)


def _acknowledge_one_more() -> Planted:
    original = PeerTransport._hold_ack

    def hold(self: PeerTransport, peer: Peer, term: int, message: dict[str, Any]) -> None:
        if message["success"]:
            last = self._log.last_index
            message = {**message, "next_node_idx": max(message["next_node_idx"], last + 1)}
        original(self, peer, term, message)

    return patch.object(PeerTransport, "_hold_ack", hold)


@contextmanager
def _all(*patches: AbstractContextManager[object]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield


PLANTED = (
    PlantedBug("acknowledge before the sync", (7,), _acknowledge_before_sync),
    PlantedBug("count the leader's copy before its sync", (7,), _count_own_copy_before_sync),
    PlantedBug("accept a vote file older than the log", (7,), _accept_an_old_vote_file),
    PlantedBug("forget term and vote", (7,), _forget_term_and_vote),
    PlantedBug("vote again after a restart", (7,), _vote_twice_in_a_term),
    PlantedBug("count stale acknowledgements", (2,), _count_stale_acknowledgements),
    PlantedBug("truncate matching entries", (1,), _truncate_matching_entries),
    PlantedBug("send again what is in flight", (1,), _send_again_what_is_in_flight),
    PlantedBug("take the commit index unclamped", (1, 4), _take_commit_index_unclamped),
    PlantedBug("trust the library's reset hints", (3,), _trust_the_library_reset_hints),
    PlantedBug("trust a commit index beyond the log", (8,), _trust_a_commit_index_beyond_the_log),
    PlantedBug("append what was refused", (16,), _append_what_was_refused),
    PlantedBug("never tell of lost leadership", (16,), _never_resolve_appends_of_a_deposed_leader),
    PlantedBug("count a vote twice", (), _count_a_vote_twice),
    PlantedBug("vouch for what a cut replaced", (), _vouch_for_what_a_cut_replaced),
    PlantedBug("skip the chain check and keep conflicting entries", (), _skip_the_chain_check),
    PlantedBug("sync nothing", (), _sync_nothing),
    PlantedBug("acknowledge the whole log", (), _acknowledge_one_more),
    PlantedBug("elect without asking", (13,), _elect_without_asking, unsafe=False),
)


def plant(name: str) -> Planted:
    """A context in which the bug of that name is in. Raises KeyError if there is none."""
    return {bug.name: bug for bug in PLANTED}[name].plant()
