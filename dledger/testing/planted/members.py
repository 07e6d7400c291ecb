"""Planted bugs of membership changes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from unittest.mock import patch

from dledger.buffers import Buffer
from dledger.errors import NotLeader
from dledger.raft.engine import RaftEngine
from dledger.raft.library import adapter as library
from dledger.raft.library.adapter import Core
from dledger.raft.library.transport import PeerTransport
from dledger.raft.membership import changes, members
from dledger.raft.membership.configuration import Configuration, Member, decode_members
from dledger.raft.membership.members import Members
from dledger.raft.peers import Peers
from dledger.raft.roles import Role
from dledger.testing.planted.raft import together

Planted = AbstractContextManager[object]


def change_twice_at_once() -> Planted:
    """A leader makes a change although the one before may still be cut."""
    return patch.object(Members, "changing", lambda self, commit_index: False)


def change_before_the_own_term_is_committed() -> Planted:
    """A leader changes the members as soon as it is elected."""

    def check(self: RaftEngine) -> None:
        if self.core.role is not Role.LEADER:
            raise NotLeader(None)

    return patch.object(RaftEngine, "_check_appends", check)


def remove_two_at_once() -> Planted:
    """An entry removes two members."""
    original = Configuration.without

    def without(self: Configuration, node_id: str) -> dict[str, Member]:
        rest = original(self, node_id)
        return rest if len(rest) < 3 else original(Configuration(rest), max(rest))

    return patch.object(Configuration, "without", without)


def act_only_by_what_is_committed() -> Planted:
    """A configuration is in force when its entry is committed, by the majority of the old one."""

    def committed(self: Members, commit_index: int) -> None:
        while self.later and self.later[0].index <= commit_index:
            self.base = self.later.pop(0)
            self.on_change()

    return together(
        patch.object(Members, "current", property(lambda self: self.base)),
        patch.object(Members, "committed", committed),
    )


def keep_what_was_cut() -> Planted:
    """A follower stays with a configuration whose entry was cut from its log."""
    return patch.object(Members, "cut", lambda self, first_index: None)


def forget_the_members() -> Planted:
    """Members after a restart are those of the config file."""
    return patch.object(Members, "_save", lambda self: None)


def save_the_members_too_late() -> Planted:
    """The file is written when the entry is committed, and not before it is appended."""

    def append(self: Members, index: int, term: int, body: Buffer) -> None:
        if index > self.base.index:
            self.later.append(Configuration(decode_members(body), index, term))
            self.on_change()

    original = Members.committed

    def committed(self: Members, commit_index: int) -> None:
        before = self.base
        original(self, commit_index)
        if self.base is not before:
            self._save()

    return together(
        patch.object(Members, "append", append), patch.object(Members, "committed", committed)
    )


def believe_the_file_alone() -> Planted:
    """A start takes what the file says, whether or not the log holds the entry."""
    return patch.object(members, "_holds", lambda log, configuration: True)


def begin_anew_without_the_members() -> Planted:
    """A log that begins behind a head is not told of the changes before it."""
    return patch.object(Peers, "tell_members", lambda self, peer: None)


def take_a_head_whose_members_were_passed_over() -> Planted:
    """A candidate, which takes no members from others, begins anew behind a leader's head."""
    return patch.object(PeerTransport, "_has_taken_the_members", lambda self: True)


def count_learners_too() -> Planted:
    """Learners' copies count towards the majority of the voters."""

    def count(self: Core) -> None:
        if self.role is not Role.LEADER:
            return
        journal = self._SyncObj__raftLog
        others, learners = self._SyncObj__otherNodes, self._SyncObj__readonlyNodes
        held = [self.match_index(node) for node in (*others, *learners)]
        held = sorted([*held, journal[-1][1]], reverse=True)[: len(others) + 1]
        index = library.majority_index(held)
        if index > self.commit_index and journal.library_entry(index)[2] == self.term:
            self._SyncObj__raftCommitIndex = index
            journal.setRaftCommitIndex(index)

    return patch.object(Core, "count_acknowledgements", count)


def leave_one_copy() -> Planted:
    """A group of two gives one of its members away."""
    return patch.object(changes, "VOTERS_MIN", 1)
