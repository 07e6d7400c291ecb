"""Planted bugs of the repair of damaged logs. See :mod:`dledger.testing.planted`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

from dledger.log.reading import LogReader
from dledger.log.scrub import Scrub
from dledger.raft.engine import RaftEngine
from dledger.raft.messages import PeerKind, PeerMessage
from dledger.raft.repair import Asking

Planted = AbstractContextManager[object]


def _answering(commit_index: Callable[[RaftEngine], int | None]) -> Planted:
    """A node answers at once whoever lacks entries, with what it takes for committed."""
    original = RaftEngine._deliver

    def deliver(self: RaftEngine, node_id: str, message: PeerMessage, now: float) -> None:
        if message.kind is not PeerKind.LACKING:
            original(self, node_id, message, now)
            return
        index = commit_index(self)
        if index is not None:
            peer = self.transport.peers[node_id]
            self._giving.give(peer, message.fields[0], index)

    return patch.object(RaftEngine, "_deliver", deliver)


def give_what_is_not_committed() -> Planted:
    """Whoever is asked gives all that it holds."""
    return _answering(lambda engine: engine.log.last_index)


def give_without_a_round() -> Planted:
    """Whoever is asked says that nothing is committed behind what it knows to be."""
    return _answering(lambda engine: engine.core.commit_index)


def write_entries_before_their_term() -> Planted:
    """The leader's term is not made durable before its entries are written."""
    return patch.object(Asking, "_take_term", lambda self, term: None)


def replay_what_no_start_has_checked() -> Planted:
    """A replay takes sealed segments as they are."""
    return patch.object(LogReader, "checked_entry", LogReader.entry)


def never_scrub() -> Planted:
    """Nobody reads sealed segments again."""
    return patch.object(Scrub, "next_slice", lambda self, committed_index: None)
