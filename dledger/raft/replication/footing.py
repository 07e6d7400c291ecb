"""What a log stands on: the state machine's state before the log's first entry.

A log whose head is gone tells only the rest of what happened. So a node holds an entry only with
all that lies before it: entries, and before the first of them the state. Invariant: what a node is
counted for it can have again from its own disk, state and entries, after any crash. So it is not
counted, and takes no seat, while its saved state ends before its log begins.

The crash that would break it: a node has begun anew behind a leader's head, acknowledges entries,
and has the state in its memory only, or not yet. It is killed. The others' disks are replaced, one
after the other, each when the one before has its seat again. All that was acknowledged is in the
logs, and nobody can serve it, since nobody knows what it builds on.

Until then the node copies entries as a learner does, whether it has a seat or not: it is told what
it lacks, and nobody waits for it. It may vote: its vote speaks for its log, and so keeps who lacks
what is committed from leading. As a leader it commits nothing.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dledger.log.store import SegmentedLog


class Applying(Protocol):
    """Whatever applies the log's entries."""

    applied_index: int


@runtime_checkable
class PortableState(Protocol):
    """A state machine whose log may lose its head: its state can travel without it."""

    applied_index: int
    saved_index: int
    """A restart finds the state that led up to here on the disk. 0: none."""

    def capture(self) -> tuple[int, bytes]:
        """The state now: the index that was applied last, and its bytes."""

    def install(self, index: int, payload: bytes, first_index: int) -> None:
        """Have another replica's state, as of `index`, instead of this one's.

        The log begins with `first_index`, and so does what is applied next: entries up to `index`
        come again, for whatever is derived from entries and was not in the payload.
        `applied_index` must be `first_index` - 1 afterwards. `saved_index` moves when the state is
        saved, which should be soon: see `Ledger.state_unsaved`.
        """


class Footing:
    """Whether the state before a log's first entry is there, in memory and on the disk.

    A machine whose state can't travel has a log that begins with its first entry, or a caller who
    vouched for a state that a restart finds.
    """

    def __init__(self, log: SegmentedLog, machine: Applying) -> None:
        self._log = log
        self._machine = machine
        self._portable = machine if isinstance(machine, PortableState) else None

    @property
    def is_missing(self) -> bool:
        """Whether nothing can be applied: the log begins behind what was applied last."""
        return self._machine.applied_index + 1 < self._log.first_index

    @property
    def is_saved(self) -> bool:
        """Whether a restart would find it, so that this node may be counted."""
        machine = self._portable
        return machine is None or machine.saved_index + 1 >= self._log.first_index
