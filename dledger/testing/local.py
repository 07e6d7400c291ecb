"""A ledger of one node, in memory: the same calls as :class:`dledger.Ledger`, no Raft, no files.

Appends are placed at once, at the positions that a real log would give them, and committed and
applied when :meth:`LocalLedger.commit` is called, or by themselves when `auto` is set. Leadership
comes and goes by :meth:`lead` and :meth:`follow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from dledger import limits
from dledger.buffers import Buffer
from dledger.errors import (
    AppendError,
    NotLeader,
    OutcomeUnknown,
    StorageError,
    TooLarge,
    TransferFailed,
    WouldLoseMajority,
)
from dledger.ledger.config import LedgerStatus
from dledger.ledger.exporting import ExportPlan
from dledger.log.entry import (
    HEADER_BYTES,
    Draft,
    Entry,
    Kind,
    body_size,
    make_header,
    padded,
    place_body,
)
from dledger.raft.appends import Appended
from dledger.raft.membership.configuration import Member, check_member
from dledger.raft.replication.state_machine import StateMachine

_Waiting = tuple[Entry, Callable[[Appended | AppendError], None]]


class KeepsNothing:
    """A state machine without a state. `led` is set when its node may append."""

    def __init__(self) -> None:
        self.applied_index = 0
        self.led = trio.Event()

    def apply(self, entry: Entry) -> object:
        """Take an entry, and return None as its result."""
        return None

    def leading(self, term: int) -> None:
        """Set `led`: appends may begin."""
        self.led.set()

    def following(self, leader: str | None, term: int) -> None:
        """Take no appends: another node leads."""


class LocalLedger:
    """A node that is its own majority."""

    def __init__(self, machine: StateMachine, *, auto: bool = True, lead: bool = True) -> None:
        self._machine = machine
        #: Whether what is appended is committed at once.
        self.auto = auto
        self._entries: list[Entry] = []
        #: Whether its leader is alive, while it follows.
        self.hears_leader = True
        self._waiting: list[_Waiting] = []
        self._end = 0
        self._holds = self._held = 0
        self._term = 0
        self._leader: str | None = None
        if lead:
            self.lead()

    def lead(self) -> None:
        """Become leader of a new term: a no-op is committed and applied first."""
        self._term += 1
        self._leader = "local"
        self._place(b"", Kind.NOOP, lambda _: None)
        self.commit()
        self._machine.leading(self._term)

    def follow(self, leader: str | None = None) -> None:
        """Lose leadership: what is not committed is gone, and its outcome unknown."""
        self._term += 1
        self._leader = leader
        lost, self._waiting = self._waiting, []
        if lost:
            self._end = lost[0][0].position
            del self._entries[lost[0][0].index - 1 :]
        for _, on_done in lost:
            on_done(OutcomeUnknown("leadership was lost before the entry was committed"))
        self._machine.following(leader, self._term)

    def append_nowait(
        self, body: Buffer | Draft, kind: int, on_done: Callable[[Appended | AppendError], None]
    ) -> None:
        """Place an entry; it is committed at once if `auto` is set, else by :meth:`commit`."""
        if self._leader != "local":
            raise NotLeader(self._leader)
        if body_size(body) + HEADER_BYTES > limits.ENTRY_BYTES_MAX:
            raise TooLarge(f"an entry of {body_size(body)} bytes is above the limit")
        self._place(body, kind, on_done)
        if self.auto:
            self.commit()

    def _place(
        self, body: Buffer | Draft, kind: int, on_done: Callable[[Appended | AppendError], None]
    ) -> None:
        index, position = len(self._entries) + 1, self._end
        content = bytes(place_body(body, position + HEADER_BYTES, index, self._term))
        entry = Entry(index, self._term, kind, position, memoryview(content))
        self._entries.append(entry)
        self._waiting.append((entry, on_done))
        self._end = position + padded(HEADER_BYTES + len(content))

    @property
    def uncommitted(self) -> list[Entry]:
        """The entries that wait for :meth:`commit`."""
        return [entry for entry, _ in self._waiting]

    def commit(self, count: int | None = None) -> None:
        """Commit and apply the first `count` waiting entries, or all."""
        if self._holds:
            self._held = len(self._waiting) if count is None else self._held + count
            return
        ready = self._waiting[:count]
        del self._waiting[:count]
        for entry, on_done in ready:
            result = self._machine.apply(entry)
            self._machine.applied_index = entry.index
            on_done(Appended(entry.index, entry.term, entry.position, result))

    async def append(self, body: Buffer | Draft, kind: int = Kind.MESSAGES) -> Appended:
        """Append an entry and commit it. Raises AppendError."""
        outcome: list[Appended | AppendError] = []
        self.append_nowait(body, kind, outcome.append)
        if not outcome:
            self.commit()
        if isinstance(outcome[0], AppendError):
            raise outcome[0]
        return outcome[0]

    async def read_index(self, timeout_s: float = limits.READ_TIMEOUT_S) -> int:
        """The end of what is committed: there are no peers to ask."""
        if self._leader != "local":
            raise NotLeader(self._leader)
        return self._machine.applied_index

    async def transfer_leadership(self, target: str | None = None) -> str:
        """Refuse: there is no other node."""
        if self._leader != "local":
            raise NotLeader(self._leader)
        raise TransferFailed(f"{target} can't take over; this group has no other members")

    async def add_member(self, node_id: str, host: str, port: int, service: str = "") -> None:
        """Refuse: it is one node for ever. Raises BadInput, as a real one does."""
        check_member(node_id, Member(host, port, service=service))
        raise WouldLoseMajority(f"{node_id} can't be added to a log in memory")

    async def remove_member(self, node_id: str) -> None:
        """Refuse: it is one node for ever."""
        raise WouldLoseMajority(f"without {node_id} no member would be left")

    def export_plan(self) -> ExportPlan:
        """Refuse: there are no files."""
        raise StorageError("a log in memory has no files to copy")

    def view(self, position: int, size: int) -> memoryview:
        """Bytes of a header, without a chain, or of a body, by position. Raises StorageError."""
        for entry in self._entries:
            if (position, size) == (entry.position, HEADER_BYTES):
                fields = {"index": entry.index, "term": entry.term, "kind": entry.kind}
                return memoryview(make_header(0, position=position, body=entry.body, **fields)[1])
            start = position - entry.body_position
            if start >= 0 and start + size <= len(entry.body):
                return entry.body[start : start + size]
        raise StorageError(f"positions {position} + {size} are not in one entry")

    def entries(self, first_index: int, last_index: int | None = None) -> Iterator[Entry]:
        """Applied entries from `first_index` to `last_index` (None: to the last one), in order."""
        end = self._machine.applied_index
        last = end if last_index is None else min(last_index, end)
        yield from self._entries[first_index - 1 : last]

    @contextmanager
    def applying_held(self) -> Iterator[None]:
        """Commit nothing within the block; what is committed in it is applied behind it."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                held, self._held = self._held, 0
                self.commit(held)

    async def wait_applied(self, index: int) -> None:
        """Return if everything up to `index` is applied; nothing here happens by itself."""
        if self._machine.applied_index < index:
            raise StorageError(f"index {index} is not committed; call commit()")

    async def wait_durable(self, index: int) -> None:
        """Return if there is such an entry: memory is all that there is."""
        if len(self._entries) < index:
            raise StorageError(f"there is no entry {index}")

    def digests(self) -> list[tuple[int, int]]:
        """No digests: one log has no other to be compared with."""
        return []

    def bytes_behind(self, index: int) -> int:
        """Bytes of the entries behind an index."""
        entries = self._entries
        return self._end - entries[index].position if index < len(entries) else 0

    @property
    def status(self) -> LedgerStatus:
        """Status of this node at this moment, as a `Ledger` tells it."""
        serving = self._leader == "local"
        applied = self._machine.applied_index
        return LedgerStatus(
            node_id="local",
            role="leader" if serving else "follower",
            term=self._term,
            leader_id=self._leader,
            last_index=len(self._entries),
            commit_index=applied,
            applied_index=applied,
            first_position=0,
            end_position=self._end,
            fenced=None,
            hears_leader=self.hears_leader,
            durable_index=len(self._entries),
        )
