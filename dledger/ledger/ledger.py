"""A replicated log, ready to use: :func:`open_ledger`.

A program asks one node to append, read, hand over leadership, change members, and remove old
segments. `dledger.ledger.node` takes part in the group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, closing
from dataclasses import replace
from functools import partial

import trio

from dledger import limits
from dledger.buffers import Buffer
from dledger.errors import (
    ConfigError,
    DledgerError,
    LedgerClosed,
    NotConfirmed,
    NotLeader,
    OutcomeUnknown,
    PeerPortClosed,
    Rot,
    StorageError,
)
from dledger.ledger.config import LedgerConfig, LedgerStatus
from dledger.ledger.exporting import ExportPlan, digests
from dledger.ledger.node import Node
from dledger.ledger.opening import open_replica
from dledger.ledger.outcome import Outcome, outcome_of
from dledger.log.disk import Disk
from dledger.log.entry import Draft, Entry, Kind
from dledger.log.hard_state import HardStateFile
from dledger.log.replica import hold_replica
from dledger.log.segments.retention import SegmentInfo
from dledger.raft.appends import Appended, OnDone
from dledger.raft.membership.configuration import Member
from dledger.raft.network.links import listen
from dledger.raft.replication.state_machine import StateMachine
from dledger.raft.roles import Role
from dledger.trust.rolling import Secrets
from dledger.trust.secret import require_secret

__all__ = ["Ledger", "open_ledger"]


class Ledger(Node):
    """A node of a group. Made by :func:`open_ledger`."""

    # -- appending and reading -------------------------------------------------------------

    def append_nowait(
        self, body: Buffer | Draft, kind: int, on_done: OnDone, *, urgent: bool = False
    ) -> None:
        """Append an entry; `on_done` gets its place or an AppendError, once, after it is applied.
        An urgent entry may use the room that is kept back on a full disk.

        Raises NotLeader, Busy or TooLarge at once if it was definitely not taken.
        """
        if self._closing:
            raise OutcomeUnknown("the ledger is closing")
        try:
            self._engine.append(body, kind, on_done, urgent=urgent)
        except (StorageError, OSError) as error:
            self._stepper.fail(error)
            raise OutcomeUnknown(f"the log can't be written: {error}") from error
        self._stepper.step_soon()

    async def append(self, body: Buffer | Draft, kind: int = Kind.MESSAGES) -> Appended:
        """Append an entry and wait until it is committed and applied here. Raises AppendError."""
        return await outcome_of(partial(self.append_nowait, body, kind))

    async def read_index(self, timeout_s: float = limits.READ_TIMEOUT_S) -> int:
        """Wait for an index up to which everything is applied here, and above which no node
        acknowledged anything before this call. A read of the state after it misses nothing.

        Costs one round trip to a majority, no disk; concurrent calls share it. Raises NotLeader,
        Busy, or NotConfirmed after `timeout_s`; each means that nothing was read.
        """
        outcome: Outcome[int] = Outcome()
        self._engine.read(outcome.set)
        self._stepper.wake()
        with trio.move_on_after(timeout_s):
            return await outcome.wait()
        raise NotConfirmed(
            f"no majority has confirmed within {timeout_s} s that {self.config.node_id} still "
            "leads; nothing was read. Ask again: this node, or the new leader"
        )

    async def transfer_leadership(self, target: str | None = None) -> str:
        """Hand leadership to a peer, by default the one that holds most of the log. Returns its id.

        Until it leads, for a second at most, appends are refused with Busy. Returns when this node
        leads no longer, or raises TransferFailed, or NotLeader.
        """
        return await self._leaving.transfer(target)

    def refuses_messages(self, reason: str | None) -> None:
        """Why the state machine's owner takes no messages now, for want of room; None if it does.

        While there is a reason a leader lets another node lead that has none, as with a full disk.
        What is appended all the same is taken.
        """
        self._leaving.refuses_messages(reason)

    def entries(self, first_index: int, last_index: int | None = None) -> Iterator[Entry]:
        """Applied entries, in order; bodies are views of the log. Raises StorageError."""
        end = self._machine.applied_index
        last = end if last_index is None else min(last_index, end)
        for index in range(max(first_index, self._log.first_index), last + 1):
            try:
                entry = self._log.reader.entry(index)
            except Rot as rot:
                self._stepper.fail(rot)
                raise
            yield entry

    def view(self, position: int, size: int) -> memoryview:
        """`size` bytes of the log from `position`, not copied. Raises StorageError, and Rot if
        they are damaged; if peers can repair them, the repair begins."""
        try:
            return self._log.reader.checked_view(position, size)
        except Rot as rot:
            self._upkeep.found(rot)
            raise

    def applying_held(self) -> AbstractContextManager[None]:
        """Nothing is applied within the block: the state machine's state can be read in slices.
        The node takes part meanwhile; what is committed is applied, and answered, later."""
        return self._stepper.applying_held()

    def derive_again(self, make_again: Callable[[], None]) -> None:
        """Make the state machine derive its data from the log again. `make_again` lowers its
        `applied_index`, and the entries behind that are applied once more.

        Until they are, this node does not serve; a caller who can wait should `resign` first.
        """
        index = self._machine.applied_index
        make_again()
        self._engine.applying.went_back(index)
        self._stepper.wake()

    @property
    def applying_s(self) -> float:
        """How long this process has spent on applying entries."""
        return self._engine.applying.applying_s

    async def wait_applied(self, index: int) -> None:
        """Return when everything up to `index` is applied on this node. Raises LedgerClosed."""
        while self._machine.applied_index < index:
            await self.changed()

    async def changed(self) -> None:
        """Return when more is applied on this node, or its log has begun anew. Raises
        LedgerClosed."""
        self._check_open()
        await self._stepper.more_applied()
        self._check_open()

    async def wait_fenced(self) -> DledgerError | OSError | None:
        """Return when this node takes no further part until it is restarted. Returns what stopped
        it; None if the ledger was closed."""
        await self._fenced.wait()
        return self._failure

    async def wait_durable(self, index: int) -> None:
        """Return when everything up to `index` is on this node's disk; if it is not, sync now.

        A state machine's snapshot waits for that: else the log could end before the snapshot.
        Raises LedgerClosed.
        """
        while self._log.durable_index < index:
            self._check_open()
            await self._stepper.syncing.more_durable()

    def _check_open(self) -> None:
        if self._closing:
            raise LedgerClosed(f"{self.config.node_id} of {self.config.group} was closed")

    @property
    def state_unsaved(self) -> bool:
        """Whether this node is not counted until the state machine's state is saved: then save it
        now.

        This is so when the log has begun anew behind the state that a restart would find.
        """
        base_state = self._engine.base_state
        return not base_state.is_saved and not base_state.is_missing

    @property
    def status(self) -> LedgerStatus:
        """The status of this node, now."""
        standing, core = self._engine.standing, self._engine.core
        members, unreached = self._engine.changes.status, self._stepper.unreached
        if unreached:
            members = tuple(
                replace(member, problem=None if member.linked else unreached.get(member.node_id))
                for member in members
            )
        candidate = core.role is Role.CANDIDATE or (
            core.role is Role.LEADER and not standing.serving
        )
        return LedgerStatus(
            node_id=self.config.node_id,
            role="leader" if standing.serving else "candidate" if candidate else "follower",
            term=standing.term,
            leader_id=standing.leader,
            last_index=self._log.last_index,
            commit_index=core.commit_index,
            applied_index=self._machine.applied_index,
            first_position=self._log.first_position,
            end_position=self._log.end_position,
            fenced=None if self._repairing else self._engine.fenced or self._log.fenced,
            first_index=self._log.first_index,
            members=members,
            repairing=self._repairing,
            counted=self._engine.acknowledging.is_counted,
            sync_times=self._stepper.syncing.times,
            elections=self._engine.elections.begun,
            hears_leader=self._engine.elections.hears_leader,
            durable_index=self._log.durable_index,
            reclaimed_bytes=self._upkeep.reclaimed_bytes,
        )

    def bytes_behind(self, index: int) -> int:
        """Bytes of the log behind an entry. Raises StorageError."""
        return self._log.reader.bytes_behind(index)

    # -- members ---------------------------------------------------------------------------

    async def add_member(self, node_id: str, host: str, port: int, service: str = "") -> None:
        """Add a node as a learner, with the address of its peer port. Does nothing if it is a
        member.

        Returns when that is committed. The learner copies the log, and then the leader makes it a
        voter, which `status` shows. Raises ChangePending, BadInput, or AppendError.
        """
        member = Member(host, port, service=service)
        await self._change(partial(self._engine.add_member, node_id, member))

    async def remove_member(self, node_id: str) -> None:
        """Remove a member; returns when that is committed. Raises MembershipError, AppendError.

        A leader can't remove itself: it hands over, and raises NotLeader with the node to ask.
        """
        if node_id == self.config.node_id and self._engine.standing.serving:
            raise NotLeader(await self.transfer_leadership())
        await self._change(partial(self._engine.remove_member, node_id))

    async def _change(self, change: Callable[[OnDone], bool]) -> None:
        outcome: Outcome[Appended] = Outcome()
        self._stepper.wake()
        try:
            if change(outcome.set):
                await outcome.wait()
        except (StorageError, OSError) as error:
            self._stepper.fail(error)
            raise OutcomeUnknown(f"the log can't be written: {error}") from error

    # -- retention -------------------------------------------------------------------------

    def segments(self) -> list[SegmentInfo]:
        """The log's segments, the oldest first."""
        return self._log.reader.segments()

    @property
    def sent_to_all_index(self) -> int:
        """The last entry that was sent to every connected peer, if this node leads; else 0.

        Earlier entries are needed only by a peer that was away, and it can join without them.
        """
        return self._engine.sending.sent_to_all_index

    def keep_from(self, index: int) -> None:
        """Remove, soon, the segments that lie wholly before the entry `index`.

        The caller vouches that a restart does not need them: a durable snapshot of the state
        machine reaches `index` - 1 at least. Only committed entries go.
        """
        self._kept_from = max(self._kept_from, index)
        self._upkeep.keep_from(index)

    def digests(self) -> list[tuple[int, int]]:
        """Digests of committed entries, to be compared with other members."""
        return digests(self._log, self._engine.core.commit_index)

    def export_plan(self) -> ExportPlan:
        """The plan of a copy of this replica. Raises StorageError if there is nothing to copy."""
        log, config = self._log, self.config
        last_index = min(self._engine.core.commit_index, log.durable_index)
        if last_index < log.first_index:
            raise StorageError(f"{config.node_id} of {config.group} holds nothing committed yet")
        last = log.reader.header(last_index)
        bases = [segment.base_position for segment in log.reader.segments()]
        return ExportPlan(
            folder=config.directory,
            group=config.group,
            node_id=config.node_id,
            segment_bytes=config.segment_bytes,
            bases=tuple(base for base in bases if base <= last.position),
            last_index=last_index,
            last_term=last.term,
            last_chain_crc=last.chain_crc,
            end_position=last.end,
            head=log.reader.head_before(log.first_index),
        )


@asynccontextmanager
async def open_ledger(config: LedgerConfig, machine: StateMachine) -> AsyncIterator[Ledger]:
    """Open this node's replica and take part in its group until the block is left.

    If its log is damaged, first wait until a leader has repaired it (`LedgerConfig.repair`).

    Raises ConfigError for a config that can't be used, such as a peer port that other machines
    reach without a secret, StorageError or CorruptLog for a replica that can't be trusted,
    PeerPortClosed for a port that is taken, OSError for a folder that can't be written. It runs
    under trio only.
    """
    if not trio.lowlevel.in_trio_run():
        raise ConfigError(
            "open_ledger runs under trio, not under asyncio: call it in trio.run(...). A program "
            "on asyncio can run it in a thread of its own (docs/explanation/dledger.md)"
        )
    if config.node_id not in config.peers:
        raise ConfigError(f"node_id {config.node_id!r} is not among the peers {[*config.peers]}")
    require_secret("the peer port", config.peer_port[0], Secrets.of(config.secret).first)
    folder, segment_bytes = config.directory, config.segment_bytes
    with ExitStack() as stack:
        stack.enter_context(hold_replica(folder, config.group, config.node_id, segment_bytes))
        try:
            listener = stack.enter_context(listen(*config.peer_port))
        except OSError as error:
            raise PeerPortClosed(error.strerror) from error
        (folder / "log").mkdir(limits.FOLDER_MODE, exist_ok=True)
        hard_state = stack.enter_context(closing(HardStateFile(folder / "log" / "term", Disk())))
        store, members = await open_replica(config, hard_state, listener)
        ledger = Ledger(config, hard_state, machine, store, members)
        stack.callback(ledger._close)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ledger._run, listener)
            try:
                yield ledger
            finally:
                nursery.cancel_scope.cancel()
