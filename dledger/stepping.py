"""Steps a replica's engine: at once, in the next turn, or when time has passed.

The engine decides and never waits; here is what it waits for. Everything but the syncs runs in one
trio task tree, so appends, callbacks and the state machine never meet in two threads.
"""

from __future__ import annotations

import math
import socket

import trio

from dledger.errors import DledgerError
from dledger.ledger_config import LedgerConfig
from dledger.log.store import SegmentedLog, SyncJob
from dledger.raft.engine import RaftEngine
from dledger.raft.library import monotonic
from dledger.raft.links import LinkOwner, PeerNetwork, SocketLink
from dledger.raft.members import Members
from dledger.raft.messages import PeerMessage

IDLE_STEP_S = 0.02
STALL_S = 0.05
ASYNC_SYNC_PERIOD_S = 5.0
NOTHING_TO_SYNC_S = 0.25


def peer_network(config: LedgerConfig, owner: LinkOwner) -> PeerNetwork:
    """The connections to a node's peers."""
    return PeerNetwork(config.group, config.node_id, config.segment_bytes, config.secret, owner)


class Stepper:
    """The loops around one engine, and the owner of its links."""

    def __init__(
        self, config: LedgerConfig, engine: RaftEngine, store: SegmentedLog, members: Members
    ) -> None:
        self._flush = config.flush
        self._engine = engine
        self._log = store
        self._members = members
        self._network = peer_network(config, self)
        interval = config.flush == "interval"
        period_s = config.flush_interval_s if interval else ASYNC_SYNC_PERIOD_S
        self._sync_period_s = math.inf if config.flush == "sync" else period_s
        self._stepping = False
        self._stepped_at = monotonic()
        self._failure: DledgerError | OSError | None = None
        self._wake = trio.Event()
        self._must_sync = trio.Event()
        self._applied = trio.Event()
        self._durable = trio.Event()

    def wake(self) -> None:
        """Something happened: step in the loop's next turn."""
        self._wake.set()

    def retire(self) -> None:
        """Another stepper goes on: whoever waits for this one looks again."""
        self._applied.set()
        self._durable.set()

    def fail(self, error: DledgerError | OSError) -> None:
        """The log could not be written; the step loop ends with it."""
        self._failure = error
        self._wake.set()

    async def more_applied(self) -> None:
        """Return when entries were applied."""
        await self._applied.wait()

    async def more_durable(self) -> None:
        """Sync soon; return when a sync has ended, or there was nothing to sync for a while."""
        self._must_sync.set()
        with trio.move_on_after(NOTHING_TO_SYNC_S):
            await self._durable.wait()

    def step_soon(self) -> None:
        """Step at once if little is under way, or in the loop's next turn, together with others.

        A lone append passes three processes, and would wait for a turn of the loop in each. When
        many are under way a turn gathers them: one write, one message, one sync for all, or for as
        many as make a burst.
        """
        engine = self._engine
        gathering = engine.appends_pending > 1 and not engine.sending.has_burst
        if self._stepping or engine.solo or self._stalled or gathering:
            self._wake.set()
        elif self._failure is None and engine.fenced is None:
            self._step()

    def _step(self) -> None:
        before = self._engine.machine.applied_index
        self._stepping = True
        try:
            if self._engine.solo:
                # It counts its copy as it is: durable by now, and by no thread that is not done.
                self._log.sync()
            if self._engine.step():
                self._wake.set()
        except (DledgerError, OSError) as error:
            # Whose call this is inside of can't deal with it; the step loop can.
            self.fail(error)
        finally:
            self._stepping = False
        self._stepped_at = monotonic()
        self._network.take_members(self._members.current)
        if self._flush == "sync" and not self._engine.solo:
            self._must_sync.set()
        if self._engine.machine.applied_index != before:
            self._applied.set()
            self._applied = trio.Event()

    @property
    def _stalled(self) -> bool:
        """Whether the process stood still, so that the peers' messages wait to be read."""
        return bool(monotonic() - self._stepped_at > STALL_S)

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
            self.step_soon()

    # -- the loops -------------------------------------------------------------------------

    async def network_loop(self, listener: socket.socket) -> None:
        """Keep connections to all peers."""
        await self._network.run(listener, self._members.current)

    async def step_loop(self) -> None:
        """Step when woken, until the log can't be written. Raises what it failed with."""
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

    async def tick_loop(self) -> None:
        """Step now and then although nothing happened: heartbeats, elections, check-quorum."""
        while True:
            await trio.sleep(IDLE_STEP_S)
            self._wake.set()
            self._log.forget_pages()

    async def sync_loop(self) -> None:
        """Group commit: one sync at a time, each covering all that was written before it."""
        while True:
            with trio.move_on_after(self._sync_period_s):
                await self._must_sync.wait()
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
        self._durable.set()
        self._durable = trio.Event()
        self.step_soon()
