"""A replicated log, ready to use: :func:`open_ledger`.

The shell around :class:`~dledger.raft.engine.RaftEngine`: the loop that steps it, the thread that
syncs the files, the sockets to the peers, checkpoints. Everything but the syncs runs in one trio
task tree, so appends, callbacks and the state machine never meet in two threads.
"""

from __future__ import annotations

import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial

import trio

from dledger import limits
from dledger.errors import (
    AppendError,
    ConfigError,
    DledgerError,
    NotConfirmed,
    NotLeader,
    OutcomeUnknown,
    Rot,
    StorageError,
    TransferFailed,
)
from dledger.ledger_config import LedgerConfig, LedgerStatus
from dledger.log.disk import Disk
from dledger.log.entry import Draft, Entry, Kind
from dledger.log.hard_state import HardStateFile
from dledger.log.retention import SegmentInfo
from dledger.log.scrub import SLICE_BYTES, Scrub
from dledger.log.store import SegmentedLog, SyncJob
from dledger.observe import get_logger
from dledger.opening import open_whole_log
from dledger.outcome import Outcome
from dledger.raft.configuration import Configuration, Member, initial
from dledger.raft.engine import Appended, OnDone, RaftEngine, StateMachine
from dledger.raft.library import Role, monotonic
from dledger.raft.links import LinkOwner, PeerNetwork, SocketLink, listen
from dledger.raft.members import Members, last_saved, open_members
from dledger.raft.messages import PeerMessage
from dledger.raft.transfer import PREFERRED_HEALTHY_S, TRANSFER_TIMEOUT_S, Preference
from dledger.remoting.command import Buffer
from dledger.replica import hold_replica

IDLE_STEP_S = 0.02
STALL_S = 0.05
CHECKPOINT_PERIOD_S = 5.0
ASYNC_SYNC_PERIOD_S = 5.0

__all__ = ["Ledger", "LedgerConfig", "LedgerStatus", "open_ledger"]

log = get_logger("dledger.ledger")


class Ledger:
    """One node of a group. Made by :func:`open_ledger`."""

    def __init__(
        self,
        config: LedgerConfig,
        store: SegmentedLog,
        hard_state: HardStateFile,
        members: Members,
        machine: StateMachine,
    ) -> None:
        self.config = config
        self._log = store
        self._members = members
        self._machine = machine
        preferred = config.preferred_leader
        self._engine = RaftEngine(
            config.node_id,
            members,
            store,
            hard_state,
            machine,
            sync=config.flush == "sync",
            timing=config.timing,
            clock=monotonic,
            rng=random.Random(),
            preference=Preference(preferred, PREFERRED_HEALTHY_S) if preferred else None,
        )
        store.on_cut = self._log_cut
        self._network = _network(config, self)
        self._stepping = False
        self._stepped_at = monotonic()
        self._failure: DledgerError | OSError | None = None
        self._wake = trio.Event()
        self._must_sync = trio.Event()
        self._applied = trio.Event()
        self._closing = False
        self._kept_from = 1

    # -- appending and reading -------------------------------------------------------------

    def append_nowait(self, body: Buffer | Draft, kind: int, on_done: OnDone) -> None:
        """Append an entry; `on_done` gets its place or an AppendError, once, after it is applied.

        Raises NotLeader, Busy or TooLarge at once if it was definitely not taken.
        """
        if self._closing:
            raise OutcomeUnknown("the ledger is closing")
        try:
            self._engine.append(body, kind, on_done)
        except (StorageError, OSError) as error:
            self._failure = error
            self._wake.set()
            raise OutcomeUnknown(f"the log can't be written: {error}") from error
        self._step_soon()

    async def append(self, body: Buffer | Draft, kind: int = Kind.MESSAGES) -> Appended:
        """Append an entry and wait until it is committed and applied here. Raises AppendError."""
        outcome: Outcome[Appended | AppendError] = Outcome()
        self.append_nowait(body, kind, outcome.set)
        result = await outcome.wait()
        if isinstance(result, AppendError):
            raise result
        return result

    async def read_index(self, timeout_s: float = limits.READ_TIMEOUT_S) -> int:
        """An index up to which everything is applied here, and above which nothing was
        acknowledged, by any node, before this call: a read of the state that follows misses none.

        Costs one round trip to a majority, no disk; concurrent calls share it. Raises NotLeader,
        Busy, or NotConfirmed after `timeout_s`; after each of them nothing was read.
        """
        outcome: Outcome[int | NotLeader] = Outcome()
        self._engine.read(outcome.set)
        self._wake.set()
        with trio.move_on_after(timeout_s):
            result = await outcome.wait()
            if isinstance(result, NotLeader):
                raise result
            return result
        raise NotConfirmed(
            f"no majority has confirmed within {timeout_s} s that {self.config.node_id} still "
            "leads; nothing was read. Ask again, here or whoever leads by then"
        )

    async def transfer_leadership(self, target: str | None = None) -> str:
        """Hand leadership to a peer, by default the one that holds most of the log; the peer's id.

        Until it leads, for a second at most, appends are refused with Busy. Returns when this node
        leads no longer, or raises TransferFailed, or NotLeader.
        """
        outcome: Outcome[str | None] = Outcome()
        chosen = self._engine.transfer(target, outcome.set)
        self._wake.set()
        log.info("leadership transfer", node=self.config.node_id, to=chosen)
        failed = await outcome.wait()
        if failed is not None:
            raise TransferFailed(f"{failed}; {self.config.node_id} still leads")
        return chosen

    async def step_aside(self) -> None:
        """Before a stop: if this node leads, let another take over. Returns if none can, too."""
        if self._engine.solo or not self._engine.standing.serving:
            return
        with trio.move_on_after(TRANSFER_TIMEOUT_S):
            try:
                await self.transfer_leadership()
                while self._engine.standing.leader is None:
                    await self._applied.wait()
            except (TransferFailed, NotLeader) as reason:
                log.warning("leadership not handed over", reason=str(reason))

    def entries(self, first_index: int, last_index: int | None = None) -> Iterator[Entry]:
        """Applied entries, in order; bodies are views of the log."""
        end = self._machine.applied_index
        last = end if last_index is None else min(last_index, end)
        for index in range(max(first_index, self._log.first_index), last + 1):
            yield self._log.entry(index)

    def view(self, position: int, size: int) -> memoryview:
        """`size` bytes of the log from `position`, not copied. Raises StorageError."""
        return self._log.view(position, size)

    async def wait_applied(self, index: int) -> None:
        """Return when everything up to `index` is applied on this node."""
        while self._machine.applied_index < index:
            await self._applied.wait()

    @property
    def status(self) -> LedgerStatus:
        """This node, now."""
        standing, core = self._engine.standing, self._engine.core
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
            fenced=self._engine.fenced or self._log.fenced,
            first_index=self._log.first_index,
            members=self._engine.changes.status,
        )

    # -- members ---------------------------------------------------------------------------

    async def add_member(self, node_id: str, host: str, port: int, service: str = "") -> None:
        """Add a node, with the address of its peer port, as a learner; nothing if it is there.

        Returns when that is committed. The learner copies the log, and whoever leads makes it a
        voter when it has: `status` shows it. Raises ChangePending, BadInput, or AppendError.
        """
        member = Member(host, port, service=service)
        await self._change(partial(self._engine.add_member, node_id, member))

    async def remove_member(self, node_id: str) -> None:
        """Remove a member; returns when that is committed. Raises MembershipError, AppendError.

        A leader can't remove itself: it hands over, and raises NotLeader with whom to ask.
        """
        if node_id == self.config.node_id and self._engine.standing.serving:
            raise NotLeader(await self.transfer_leadership())
        await self._change(partial(self._engine.remove_member, node_id))

    async def _change(self, change: Callable[[OnDone], bool]) -> None:
        outcome: Outcome[Appended | AppendError] = Outcome()
        self._wake.set()
        try:
            if change(outcome.set) and isinstance(failed := await outcome.wait(), AppendError):
                raise failed
        except (StorageError, OSError) as error:
            self._failure = error
            raise OutcomeUnknown(f"the log can't be written: {error}") from error

    # -- retention -------------------------------------------------------------------------

    def segments(self) -> list[SegmentInfo]:
        """The log's segments, the oldest first."""
        return self._log.segments()

    @property
    def sent_to_all_index(self) -> int:
        """What every peer that is connected has been sent, if this node leads; else 0.

        Earlier entries are needed only by a peer that was away, and it can do without them.
        """
        return self._engine.sent_to_all_index

    def keep_from(self, index: int) -> None:
        """Remove, soon, the segments that lie before the entry `index` as a whole.

        The caller vouches that a restart does not need them: a durable snapshot of the state
        machine reaches `index` - 1 at least. Only committed entries go.
        """
        self._kept_from = max(self._kept_from, index)

    async def _remove_old(self) -> None:
        job = self._log.trim(self._kept_from)
        if job is None:
            return
        try:
            await trio.to_thread.run_sync(job.run)
        except OSError as error:
            log.warning("old segments not removed", node=self.config.node_id, reason=str(error))
            return
        log.info(
            "old segments removed",
            node=self.config.node_id,
            segments=len(job.paths),
            first_index=job.head.first_index,
        )

    # -- links (LinkOwner) -----------------------------------------------------------------

    def link_up(self, node_id: str, link: SocketLink) -> None:
        """A connection to a peer stands."""
        self._engine.link_up(node_id, link)
        self._wake.set()

    def link_down(self, node_id: str, link: SocketLink) -> None:
        """A connection to a peer broke."""
        self._engine.link_down(node_id, link)
        self._wake.set()

    def link_drained(self, node_id: str) -> None:
        """A peer takes more again."""
        self._engine.transport.link_drained(node_id)

    def receive(self, node_id: str, link: SocketLink, message: PeerMessage) -> None:
        """A peer's message arrived."""
        self._engine.receive(node_id, link, message)

    def received_all(self) -> None:
        """Those were all messages that have arrived so far."""
        if self._engine.urgent:
            self._step_soon()

    # -- the loops -------------------------------------------------------------------------

    async def _run(self, listener: socket.socket) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._network.run, listener, self._members.current)
            loops = self._step_loop, self._tick_loop, self._sync_loop, self._housekeeping
            for loop in (*loops, self._scrub_loop):
                nursery.start_soon(self._fence_after, loop, nursery.cancel_scope)

    async def _fence_after(
        self, loop: Callable[[], Awaitable[None]], scope: trio.CancelScope
    ) -> None:
        """Run a loop; if it fails, this node takes no further part in the group."""
        try:
            await loop()
        except (DledgerError, OSError) as error:
            log.error("fenced", node=self.config.node_id, reason=str(error))
            if isinstance(error, Rot):
                self._log.distrust(error.base_position)
                self._log.save_checkpoint(self._log.checkpoint())
            self._engine.fence(error)
            scope.cancel()

    async def _step_loop(self) -> None:
        while True:
            await self._wake.wait()
            if self._stalled:
                # Read what the others said meanwhile before judging them silent.
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
            self._wake = trio.Event()
            self._step()
            if self._failure is not None:
                raise self._failure

    @property
    def _stalled(self) -> bool:
        """Whether the process stood still, so that the peers' messages wait to be read."""
        return bool(monotonic() - self._stepped_at > STALL_S)

    def _step_soon(self) -> None:
        """Step at once if little is under way, or in the loop's next turn, together with others.

        A lone append passes three processes, and would wait for a turn of the loop in each. When
        many are under way a turn gathers them: one write, one message, one sync for all.
        """
        if self._stepping or self._engine.solo or self._stalled or self._engine.appends_pending > 1:
            self._wake.set()
        elif self._failure is None and self._engine.fenced is None:
            self._step()

    def _step(self) -> None:
        before = self._machine.applied_index
        self._stepping = True
        try:
            if self._engine.solo:
                # It counts its copy as it is: durable by now, and by no thread that is not done.
                self._log.sync()
            if self._engine.step():
                self._wake.set()
        except (DledgerError, OSError) as error:
            # Whose call this is inside of can't deal with it; the step loop can.
            self._failure = error
            self._wake.set()
        finally:
            self._stepping = False
        self._stepped_at = monotonic()
        self._network.take_members(self._members.current)
        if self.config.flush == "sync" and not self._engine.solo:
            self._must_sync.set()
        if self._machine.applied_index != before:
            self._applied.set()
            self._applied = trio.Event()

    async def _tick_loop(self) -> None:
        """Step now and then although nothing happened: heartbeats, elections, check-quorum."""
        while True:
            await trio.sleep(IDLE_STEP_S)
            self._wake.set()
            self._log.forget_pages()

    @property
    def _sync_period_s(self) -> float:
        interval = self.config.flush == "interval"
        return self.config.flush_interval_s if interval else ASYNC_SYNC_PERIOD_S

    async def _sync_loop(self) -> None:
        """Group commit: one sync at a time, each covering all that was written before it."""
        while True:
            if self.config.flush == "sync":
                await self._must_sync.wait()
            else:
                await trio.sleep(self._sync_period_s)
            self._must_sync = trio.Event()
            job = self._log.start_sync()
            if job is not None:
                await self._sync(job)

    async def _sync(self, job: SyncJob) -> None:
        error: OSError | None = None
        try:
            await trio.to_thread.run_sync(job.run)
        except OSError as caught:
            error = caught
        self._engine.synced(job, error)
        self._step_soon()

    async def _housekeeping(self) -> None:
        """Prepare the next segment before it is needed; leave checkpoints."""
        checkpoint_at = trio.current_time() + CHECKPOINT_PERIOD_S
        while True:
            await trio.sleep(0.05)
            if self._log.wants_segment:
                prepared = await trio.to_thread.run_sync(self._log.prepare_segment)
                self._log.adopt_segment(prepared)
            await self._remove_old()
            if trio.current_time() >= checkpoint_at:
                await trio.to_thread.run_sync(self._log.save_checkpoint, self._log.checkpoint())
                self._log.release_idle()
                checkpoint_at = trio.current_time() + CHECKPOINT_PERIOD_S

    async def _scrub_loop(self) -> None:
        """Read sealed segments again, slowly. Who finds rot stops: the next start repairs it."""
        scrub = Scrub(self._log)
        while self.config.repair and not self._engine.solo:
            part = scrub.next_slice(min(self._log.commit_index, self._log.durable_index))
            if part is None:
                await trio.sleep(limits.SCRUB_PAUSE_S)
                continue
            try:
                scrub.checked(part, await trio.to_thread.run_sync(part.check))
            except FileNotFoundError:
                pass  # removed by retention meanwhile
            except Rot:
                await self.step_aside()
                raise
            await trio.sleep(SLICE_BYTES / limits.SCRUB_BYTES_PER_S)

    def _log_cut(self, first_index: int, last_index: int) -> None:
        log.warning(
            "log truncated",
            node=self.config.node_id,
            first_index=first_index,
            last_index=last_index,
            leader=self._engine.core.leader_id,
            term=self._engine.core.term,
        )

    def _close(self) -> None:
        self._closing = True
        if self._engine.fenced is None:
            self._engine.fence(OutcomeUnknown("the ledger was closed"))
        self._log.close()


@asynccontextmanager
async def open_ledger(config: LedgerConfig, machine: StateMachine) -> AsyncIterator[Ledger]:
    """Open this node's replica and take part in its group until the block is left.

    If its log is damaged, first wait until a leader has repaired it (`LedgerConfig.repair`).

    Raises ConfigError for a config that can't be used, StorageError or CorruptLog for a replica
    that can't be trusted, OSError for a port that is taken or a folder that can't be written.
    """
    if config.node_id not in config.peers:
        raise ConfigError(f"node_id {config.node_id!r} is not among the peers {[*config.peers]}")
    folder, segment_bytes = config.directory, config.segment_bytes
    with ExitStack() as stack:
        stack.enter_context(hold_replica(folder, config.group, config.node_id, segment_bytes))
        listener = stack.enter_context(listen(*config.peers[config.node_id]))
        (folder / "log").mkdir(exist_ok=True)
        hard_state = stack.enter_context(closing(HardStateFile(folder / "log" / "term", Disk())))
        first_members = initial(config.peers, config.services)
        known = last_saved(folder / "log", Disk(), first_members)
        connect = partial(_stay_connected, config, listener, known)
        repairs = config.repair and len(known.members) > 1
        store = await open_whole_log(
            config.node_id, folder / "log", segment_bytes, hard_state, connect if repairs else None
        )
        members = open_members(folder / "log", Disk(), store, first_members)
        ledger = Ledger(config, store, hard_state, members, machine)
        stack.callback(ledger._close)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ledger._run, listener)
            try:
                yield ledger
            finally:
                nursery.cancel_scope.cancel()


def _network(config: LedgerConfig, owner: LinkOwner) -> PeerNetwork:
    return PeerNetwork(config.group, config.node_id, config.segment_bytes, config.secret, owner)


async def _stay_connected(
    config: LedgerConfig, listener: socket.socket, known: Configuration, owner: LinkOwner
) -> None:
    await _network(config, owner).run(listener, known)
