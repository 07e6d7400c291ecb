"""The broker's interface to the replicated log: a real `Ledger`, or one in memory in tests."""

from __future__ import annotations

from typing import Protocol

from dledger.buffers import Buffer
from dledger.ledger.config import LedgerStatus
from dledger.ledger.exporting import ExportPlan
from dledger.log.entry import Draft
from dledger.raft.appends import OnDone


class Log(Protocol):
    """See `dledger.ledger.ledger.Ledger`, whose methods these are."""

    def append_nowait(self, body: Buffer | Draft, kind: int, on_done: OnDone) -> None:
        """Append; `on_done` is called once, after the entry was applied. Raises NotLeader and the
        like at once."""

    async def read_index(self, timeout_s: float = ...) -> int:
        """Return when a read of the applied state misses nothing that was acknowledged before.
        Raises NotLeader, Busy, NotConfirmed: then nothing may be read."""

    async def transfer_leadership(self, target: str | None = ...) -> str:
        """Hand leadership to another member. Returns its id. Raises NotLeader, TransferFailed."""

    async def add_member(self, node_id: str, host: str, port: int, service: str = ...) -> None:
        """Add a node to the group. Raises MembershipError, BadInput, AppendError."""

    async def remove_member(self, node_id: str) -> None:
        """Remove a node from the group. Raises MembershipError, TransferFailed, AppendError."""

    def export_plan(self) -> ExportPlan:
        """The content of a copy of this replica, made now. Raises StorageError if there is nothing
        to copy."""

    def view(self, position: int, size: int) -> memoryview:
        """Committed bytes of the log, not copied. Raises StorageError if they are not there."""

    def digests(self) -> list[tuple[int, int]]:
        """Indices of committed entries, and what the log up to there amounts to."""

    @property
    def status(self) -> LedgerStatus:
        """State of this replica: its role, term, positions, and why it is fenced, if it is."""

    def bytes_behind(self, index: int) -> int:
        """Bytes of the log behind an entry. Raises StorageError."""
