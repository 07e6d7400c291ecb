"""PySyncObj, and every private name of it that this package touches.

The version is pinned exactly, and `tests/unit/dledger/raft/test_library.py` fails if the library's
source differs from the one that this was written against. The private names and what they mean:

==============================  ====================================================================
`__raftCurrentTerm`             the current term (read)
`__raftState`                   follower 0, candidate 1, leader 2 (read)
`__raftElectionDeadline`        when the library may start an election; pre-vote holds it (set)
`__raftNextIndex`               per peer: the next index to send (set: it must not go back)
`__raftMatchIndex`              per peer: what it is known to hold (read; set to 0: nothing)
`__lastResponseTime`            per peer: when it last answered, for check-quorum (set, read)
`__raftLastApplied`             set to the commit index: we apply, the library does not
`__raftCommitIndex`             the commit index (read; set to what a majority holds)
`__raftLeader`                  the leader's Node, or None (read)
`__noopIDx`                     index of the no-op of this node's own term as a leader (read)
`__raftLog`                     our journal, asserted
`__otherNodes`                  the peers that vote (set)
`__readonlyNodes`               the peers that are sent entries and do not vote (set)
`__newAppendEntriesTime`        when the next heartbeat is due (set, read)
`__getEntries`                  overridden: the same, with less work for the last entry alone
`__sendAppendEntries`           overridden: our transport sends, whole entries and no pickles
`_checkCommandsToApply`         overridden: appends go straight into the log, nothing is queued
`_poller`                       replaced: sockets are ours, there is nothing to poll
`__applyLogEntries`             overridden: nothing is applied, unpickled or called in there
`__tryLogCompaction`            overridden: no dumps
`__loadDumpFile`                overridden: a snapshot through the library is refused
==============================  ====================================================================
"""

from __future__ import annotations

import _socket
import logging
import math
import socket
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from dledger.checksum import crc32
from dledger.errors import StorageError
from dledger.failpoints import failpoint
from dledger.program.extras import without
from dledger.raft.roles import Role, Timing
from dledger.world import steady_s

# Encrypting its own connections, which it has none of here, would take the library 7 MB.
with without("cryptography"):
    import pysyncobj.syncobj as syncobj_module
    from pysyncobj import SyncObj, SyncObjConf
    from pysyncobj.journal import Journal
    from pysyncobj.node import Node as LibraryNode
    from pysyncobj.transport import Transport

__all__ = ["Core", "Journal", "Node", "Role", "Timing", "Transport"]

#: SHA-256 of pysyncobj/syncobj.py 0.3.17, which all of the above was read from.
SOURCE_SHA256 = "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4"

COMMAND_NOOP = 1
COMMAND_OPAQUE = 0x10
"""A command type that the library neither applies nor unpickles."""

# The library warns of truncating applied entries whenever a message repeats entries that are held
# already. Our journal keeps those, so the warning is about something that does not happen.
logging.getLogger("pysyncobj.syncobj").disabled = True
# pysyncobj/win_inet_pton.py replaces this with a version that works on Windows only.
socket.inet_ntop = _socket.inet_ntop

# The library shares its clock with the rest of the node.
syncobj_module.monotonicTime = steady_s

_create_journal = syncobj_module.createJournal


def _pass_our_journal(journal: object) -> object:
    return journal if isinstance(journal, Journal) else _create_journal(journal)


# The constructor reads term, vote and commit index from its journal, so ours must be there by then.
syncobj_module.createJournal = _pass_our_journal


class Node(LibraryNode):  # type: ignore[misc]
    """A node by its id. Its hash is the same in every process, whatever PYTHONHASHSEED is.

    The library iterates over sets of nodes, and a simulated run must be the same every time.
    """

    def __init__(self, node_id: str) -> None:
        super().__init__(node_id)
        self._hash = crc32(node_id.encode())

    def __hash__(self) -> int:
        return self._hash


_ROLES = tuple(Role)


class _NothingToPoll:
    def poll(self, timeout: float) -> None:
        """Return at once: the library would ask the kernel about an empty set of sockets."""


class Core(SyncObj):  # type: ignore[misc]
    """The library's state machine, ticked by our engine."""

    #: Sends a peer the entries that it lacks; set before the first tick.
    send_entries: Callable[[Node, float], None]
    _SyncObj__raftCurrentTerm: int
    _SyncObj__raftCommitIndex: int
    #: When this leader's patience ends, as computed last. By now it may end later.
    _patience_ends_at = -math.inf

    def __init__(
        self,
        node_id: str,
        journal: Journal,
        transport: Transport,
        timing: Timing,
        on_role: Callable[[int, int], None],
    ) -> None:
        config = SyncObjConf(
            autoTick=False,
            journalFile=journal,
            dynamicMembershipChange=False,
            commandsWaitLeader=False,
            appendEntriesUseBatch=True,
            raftMinTimeout=timing.election_timeout_min_s,
            raftMaxTimeout=timing.election_timeout_max_s,
            appendEntriesPeriod=timing.heartbeat_s,
            # Check-quorum: a leader that hears from no majority for this long steps down.
            leaderFallbackTimeout=max(timing.election_timeout_max_s, 1.0),
            connectionTimeout=max(3.5, timing.election_timeout_max_s),
            logCompactionMinEntries=1 << 62,
            logCompactionMinTime=1 << 62,
            onStateChanged=on_role,
        )
        SyncObj.__init__(self, Node(node_id), [], config, transport=transport)
        assert self._SyncObj__raftLog is journal, "the library did not take our journal"
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex
        self._poller = _NothingToPoll()

    # -- overridden: sending, applying, dumps and snapshots are ours -----------------------

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        now = self.now
        self._SyncObj__newAppendEntriesTime = now + self.conf.appendEntriesPeriod
        for node in (*self._SyncObj__otherNodes, *self._SyncObj__readonlyNodes):
            self.send_entries(node, now)

    def _SyncObj__getEntries(  # noqa: N802
        self,
        fromIDx: int,  # noqa: N803
        count: int | None = None,
        maxSizeBytes: int | None = None,  # noqa: N803
    ) -> Sequence[Any]:
        """The entries from an index on. Mostly a leader builds on the last one, and asks for it
        alone."""
        last = self._SyncObj__raftLog[-1]
        if fromIDx == last[1]:
            return (last,)
        entries: Sequence[Any] = SyncObj._SyncObj__getEntries(self, fromIDx, count, maxSizeBytes)
        return entries

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Do nothing: an append is in the log at once, or refused."""

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex
        return False

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """No dumps: the log is never rewritten."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803
        raise StorageError("a snapshot through the Raft library is refused")

    # -- typed access ----------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The role of this node at the moment."""
        return _ROLES[self._SyncObj__raftState]

    @property
    def leader_id(self) -> str | None:
        """The leader that this node follows, or itself."""
        leader = self._SyncObj__raftLeader
        return None if leader is None else str(leader.id)

    @property
    def term(self) -> int:
        """The current term of this node."""
        return self._SyncObj__raftCurrentTerm

    @property
    def commit_index(self) -> int:
        """Everything up to here is committed, as far as this node knows."""
        return self._SyncObj__raftCommitIndex

    @property
    def noop_index(self) -> int | None:
        """The index of the no-op that this node appended when it last became leader."""
        index = self._SyncObj__noopIDx
        return None if index is None else int(index)

    @property
    def election_deadline(self) -> float:
        """When the library may start an election."""
        return float(self._SyncObj__raftElectionDeadline)

    @election_deadline.setter
    def election_deadline(self, when: float) -> None:
        self._SyncObj__raftElectionDeadline = when

    @property
    def patience_ends_at(self) -> float:
        """Before this time no tick concludes that the leader, or the leader's majority, is gone.

        While its voters stay, a leader's patience can only grow. So it is computed again only when
        it may end before the next heartbeat, and not in every step.
        """
        if self._SyncObj__raftState != Role.LEADER:
            return float(self._SyncObj__raftElectionDeadline)
        if self._patience_ends_at <= self._SyncObj__newAppendEntriesTime:
            self._patience_ends_at = self._quorum_lost_at()
        return self._patience_ends_at

    def _quorum_lost_at(self) -> float:
        others = self._SyncObj__otherNodes
        needed = (len(others) + 1) // 2
        if not needed:
            return math.inf
        answered = sorted([self._SyncObj__lastResponseTime[node] for node in others])
        return float(answered[-needed] + self.conf.leaderFallbackTimeout)

    def heartbeat_at(self) -> float:
        """When a leader sends the next heartbeat."""
        return float(self._SyncObj__newAppendEntriesTime)

    def tick(self, now: float, *, may_elect: bool) -> None:
        """Give the library a turn if there is something for it to do.

        That is an election, which it begins if its deadline has passed, and which needs leave; and
        for a leader its next heartbeat, or the end of its patience. What else the library's tick
        does is done elsewhere, or is nothing: commits are counted by `count_acknowledgements`.
        """
        self._SyncObj__raftLastApplied = self._SyncObj__raftCommitIndex
        if self._SyncObj__raftState != Role.LEADER:
            due = may_elect
        else:
            due = now > self._SyncObj__newAppendEntriesTime or now >= self.patience_ends_at
        if due:
            self.doTick(0)

    def set_members(self, voters: Iterable[Node], learners: Iterable[Node]) -> None:
        """Count these voters from now on, besides this node; send entries to voters and
        learners."""
        others, readonly = set(voters), set(learners)
        before: set[Node] = self._SyncObj__otherNodes | self._SyncObj__readonlyNodes
        for node in before - others - readonly:
            self._SyncObj__raftNextIndex.pop(node, None)
            self._SyncObj__raftMatchIndex.pop(node, None)
            self._SyncObj__lastResponseTime.pop(node, None)
        for node in (others | readonly) - before:
            self._SyncObj__raftNextIndex[node] = self._SyncObj__raftLog[-1][1] + 1
            self._SyncObj__raftMatchIndex[node] = 0
            self._SyncObj__lastResponseTime[node] = self.now
        self._SyncObj__otherNodes: set[Node] = others
        self._SyncObj__readonlyNodes: set[Node] = readonly
        self._patience_ends_at = -math.inf

    def send_append_entries(self) -> None:
        """Send what the peers lack, now."""
        self._SyncObj__sendAppendEntries()

    def next_index(self, node: Node) -> int:
        """The next index that will be sent to a peer."""
        return int(self._SyncObj__raftNextIndex.get(node, 0))

    def match_index(self, node: Node) -> int:
        """The last entry of this leader that a peer is known to hold."""
        return int(self._SyncObj__raftMatchIndex.get(node, 0))

    def count_acknowledgements(self) -> None:
        """Commit what a majority holds, if this node leads.

        The library's tick does the same, but looks at every entry. After this it has nothing left
        to do. Only an entry of the current term is committed by counting, and all entries before it
        with it. An entry of an older term could still be replaced (Raft, section 5.4.2).
        """
        if self._SyncObj__raftState != Role.LEADER:
            return
        journal, match = self._SyncObj__raftLog, self._SyncObj__raftMatchIndex
        held = map(match.get, self._SyncObj__otherNodes, repeat(0))
        index = majority_index([*held, journal.log.last_index])
        if index > self.commit_index and journal.term_of(index) == self.term:
            failpoint("raft.committed")
            self._SyncObj__raftCommitIndex = index
            journal.setRaftCommitIndex(index)

    @property
    def now(self) -> float:
        """The library's clock, in seconds."""
        return float(syncobj_module.monotonicTime())

    def last_contact(self, node: Node) -> float:
        """When a peer last answered this leader."""
        return float(self._SyncObj__lastResponseTime.get(node, 0.0))

    def set_last_contact(self, node: Node, when: float) -> None:
        """Set when a peer last answered, which check-quorum uses."""
        self._SyncObj__lastResponseTime[node] = when

    def set_next_index(self, node: Node, index: int) -> None:
        """Set the next index to send to a peer."""
        self._SyncObj__raftNextIndex[node] = index

    def forget_match(self, node: Node) -> None:
        """Count nothing for a peer until it acknowledges again."""
        if node in self._SyncObj__raftMatchIndex:
            self._SyncObj__raftMatchIndex[node] = 0


def majority_index(held: list[int]) -> int:
    """The highest index that more than half of the nodes hold; `held` has one item for each
    node."""
    return sorted(held, reverse=True)[len(held) // 2]


def use_clock(clock: Callable[[], float]) -> None:
    """Make the library read another clock, in seconds. For simulations, whose nodes have one each:
    it is a module global."""
    syncobj_module.monotonicTime = clock
