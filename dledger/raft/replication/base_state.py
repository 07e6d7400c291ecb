"""The state on which a log builds: that of the state machine before the log's first entry.

A log whose head is gone has only the later part of what happened. So a node holds an entry only
together with everything before it: the earlier entries, and the state before the first of them.
Invariant: a node can restore whatever it is counted for, state and entries, from its own disk after
any crash. So while its saved state ends before its log begins it is not counted and does not become
eligible.

The crash that would break it: a node has begun anew behind a leader's head and acknowledges
entries, but has the state in memory only, or not at all. It is killed. The others' disks are
replaced, one after the other, each when the one before is eligible again. Then all acknowledged
entries are in the logs, and no node can serve them, since no node has the state that they build on.

Until its state is saved, a node copies entries as a learner does, eligible or not, and no append
waits for it. If it is eligible it may vote: a vote depends on its log only, and keeps a node that
lacks committed entries from leading. As a leader it commits nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dledger.buffers import Buffer
from dledger.log.store import SegmentedLog

if TYPE_CHECKING:
    from dledger.raft.replication.state_machine import StateMachine


class Hold(Enum):
    """The work that must wait until the next slice of a picture."""

    NOTHING = "nothing"
    APPLYING = "applying"


@runtime_checkable
class PortableState(Protocol):
    """A state machine whose state can be copied to other nodes, so that the head of its log may
    go."""

    applied_index: int
    saved_index: int
    """A restart finds the state up to here on the disk. 0: none."""

    def capture(self) -> Generator[Hold, None, tuple[int, Buffer]]:
        """The state now: the index that was applied last, and its bytes. In slices
        (`dledger.slices`): each says what must wait until the next one."""

    def install(self, index: int, payload: Buffer, first_index: int) -> Generator[None, None, None]:
        """Replace the state by another replica's, as of `index`. In slices: the last one does it,
        and nothing is applied before. If that is too late, it is closed before.

        The log begins with `first_index`, and entries are applied from there on. Those up to
        `index` are applied too, for data that is derived from entries and not in the payload.
        `applied_index` must be `first_index` - 1 afterwards. `saved_index` moves when the state is
        saved, which should be soon: see `Ledger.state_unsaved`.
        """


class BaseState:
    """Whether the state before a log's first entry is there, in memory and on the disk.

    If a machine's state can't be copied, either its log begins with the first entry, or the caller
    vouches that a restart finds the state.
    """

    def __init__(self, log: SegmentedLog, machine: StateMachine) -> None:
        self._log = log
        self._machine = machine
        self._portable = machine if isinstance(machine, PortableState) else None

    @property
    def is_missing(self) -> bool:
        """Whether the state is missing: the log begins behind the last applied entry, so nothing
        can be applied."""
        return self._machine.applied_index + 1 < self._log.first_index

    @property
    def is_saved(self) -> bool:
        """Whether a restart would find the state, so that this node may be counted."""
        machine = self._portable
        return machine is None or machine.saved_index + 1 >= self._log.first_index
