"""Steps a replica's engine: at once, in the next turn, or when the engine says that a step is due.

The engine decides and never waits; this module waits for it. There is no regular tick: a node that
has nothing to do sleeps until its next heartbeat or timeout. Everything but the syncs (`syncing`)
runs in one trio task tree, so appends, callbacks and the state machine never meet in two threads.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVarTuple

import trio

from dledger import limits
from dledger.errors import DledgerError, Fenced
from dledger.ledger.config import LedgerConfig
from dledger.ledger.syncing import Syncing
from dledger.log.jobs import SyncJob
from dledger.log.store import SegmentedLog
from dledger.observe import get_logger
from dledger.raft.engine import RaftEngine
from dledger.raft.membership.members import Members
from dledger.raft.messages import PeerMessage
from dledger.raft.network.handshake import Handshaker
from dledger.raft.network.links import LinkOwner, PeerNetwork, SocketLink
from dledger.raft.turn import send, turn
from dledger.world import steady_s

log = get_logger("dledger.ledger.stepping")
ArgsT = TypeVarTuple("ArgsT")


def unforeseen(error: Exception, where: str) -> Fenced:
    """The error that fences a node after a bug of ours: logged with its traceback; the
    error has its text."""
    log.error("unforeseen fault", where=where, exc_info=error)
    return Fenced(f"an unforeseen fault in {where}: {error!r}; the log has its traceback")


def peer_network(config: LedgerConfig, owner: LinkOwner) -> PeerNetwork:
    """The connections to a node's peers."""
    handshaker = Handshaker(config.group, config.node_id, config.segment_bytes, config.secret)
    return PeerNetwork(config.node_id, handshaker, owner, config.tls)


class Stepper:
    """The loops around one engine, and the owner of its links."""

    def __init__(
        self,
        config: LedgerConfig,
        engine: RaftEngine,
        store: SegmentedLog,
        members: Members,
        on_stepped: Callable[[], None],
    ) -> None:
        self._on_stepped = on_stepped
        self._engine = engine
        self._log = store
        self._members = members
        self._network = peer_network(config, self)
        interval = config.flush == "interval"
        period_s = config.flush_interval_s if interval else limits.ASYNC_SYNC_PERIOD_S
        # From the first append on that is not durable, to the sync that covers it.
        after_s = 0.0 if config.flush == "sync" else period_s
        self.syncing = Syncing(config.node_id, store, after_s, self._synced, self.received_all)
        self._stepping = self._replays = False
        self._due_at = self._patience_ends_at = self._sleeps_until = self._forgot_at = steady_s()
        self._failure: DledgerError | OSError | None = None
        self._has_news = False
        self._wake = trio.Event()
        #: Somebody waits until entries are applied.
        self._applied: trio.Event | None = None

    @property
    def unreached(self) -> Mapping[str, str]:
        """Why peers could not be dialled last, by id; not of those that are connected."""
        return self._network.unreached

    def wake(self) -> None:
        """Something happened: step in the loop's next turn."""
        self._has_news = True
        self._wake.set()

    def retire(self) -> None:
        """Another stepper replaces this one, or the ledger is closed: wake all who wait, so that
        they check again."""
        self._tell_applied()
        self.syncing.retire()

    def fail(self, error: DledgerError | OSError) -> None:
        """The log could not be written; the step loop ends with this error."""
        self._failure = error
        self.wake()

    async def more_applied(self) -> None:
        """Return when entries were applied, or the log has begun anew."""
        if self._applied is None:
            self._applied = trio.Event()
        await self._applied.wait()

    def _tell_applied(self) -> None:
        applied, self._applied = self._applied, None
        if applied is not None:
            applied.set()

    @contextmanager
    def applying_held(self) -> Iterator[None]:
        """Nothing is applied within the block."""
        engine = self._engine
        engine.applying.holds += 1
        try:
            yield
        finally:
            engine.applying.holds -= 1
            self.wake()

    def step_soon(self) -> None:
        """Step at once if little is under way, or in the loop's next turn, together with others.

        A single append passes three processes, and would wait for a turn of the loop in each. When
        many are under way, one turn gathers them: one write, one message and one sync for all, or
        for as many as make a burst. A replay gets one step in a turn: each takes its whole time.
        """
        engine = self._engine
        gathering = engine.appends_pending > 1 and not engine.sending.has_burst
        if self._stepping or engine.solo or self._lost_patience or gathering or self._replays:
            self.wake()
        elif self._failure is None:
            self._step()

    def _step(self) -> None:
        engine, log = self._engine, self._log
        if engine.fenced is not None:
            # Another loop has failed, and this one was about to step: it would announce a leader.
            return
        applied_index, replacements = engine.machine.applied_index, log.replacements
        self._stepping = True
        try:
            if engine.solo:
                # The only voter counts its own copy, so it is made durable now, without waiting for
                # a thread.
                log.sync()
            self._replays = turn(engine, self._begin_sync)
            if self._replays or engine.urgent:
                self.wake()
        except (DledgerError, OSError) as error:
            # The caller may be an append, which can't handle this error; the step loop can.
            self.fail(error)
        except Exception as error:
            self.fail(unforeseen(error, "a step"))
        finally:
            self._stepping = False
        self._due_at, self._patience_ends_at = engine.next_step_at(), engine.core.patience_ends_at
        if self._due_at < self._sleeps_until:
            self._wake.set()
        self._network.take_members(self._members.current)
        self._on_stepped()
        self._forget_pages()
        has_news = engine.machine.applied_index != applied_index
        if self._applied is not None and (has_news or log.replacements != replacements):
            self._tell_applied()

    def _begin_sync(self) -> None:
        if not self._engine.solo:
            self.syncing.written()

    def _synced(self, job: SyncJob, error: OSError | None) -> None:
        released = self._engine.synced(job, error)
        if self._failure is None:
            send(released, self._log)

    @property
    def _lost_patience(self) -> bool:
        """Whether a step now may take peers for gone. If this process stood still, their messages
        may be waiting to be read."""
        return steady_s() >= self._patience_ends_at

    # -- links (LinkOwner) -----------------------------------------------------------------

    def link_up(self, node_id: str, link: SocketLink) -> None:
        """A connection to a peer stands."""
        self._tell(self._engine.link_up, node_id, link)

    def link_down(self, node_id: str, link: SocketLink) -> None:
        """A connection to a peer broke."""
        self._tell(self._engine.link_down, node_id, link)

    def link_drained(self, node_id: str) -> None:
        """The queue to a peer has run low."""
        self._tell(self._engine.link_drained, node_id)

    def _tell(self, what: Callable[[*ArgsT], None], *arguments: *ArgsT) -> None:
        """Tell the engine of a link. A fault in there is this node's, and not the link's."""
        try:
            what(*arguments)
        except (DledgerError, OSError) as error:
            self.fail(error)
        except Exception as error:
            self.fail(unforeseen(error, what.__name__))
        self.wake()

    def receive(self, node_id: str, link: SocketLink, message: PeerMessage) -> None:
        """Give the engine a peer's message."""
        self._engine.receive(node_id, link, message)

    def received_all(self) -> None:
        """All messages that have arrived so far were received."""
        if self._engine.urgent:
            self.step_soon()

    # -- the loops -------------------------------------------------------------------------

    async def network_loop(self, listener: socket.socket) -> None:
        """Keep connections to all peers."""
        await self._network.run(listener, self._members.current)

    async def step_loop(self) -> None:
        """Step when woken or when a step is due, until the log can't be written. Raises that
        error."""
        while True:
            await self._sleep()
            if not self._has_news and steady_s() < self._due_at:
                continue  # it was woken to sleep for less time, or has stepped meanwhile
            if self._lost_patience:
                # Read what the others said meanwhile before judging them silent.
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
            self._has_news = False
            if self._failure is None:
                self._step()
            if self._failure is not None:
                raise self._failure

    async def _sleep(self) -> None:
        """Sleep until something happens, or the next step is due."""
        self._sleeps_until = self._due_at
        pause_s = max(limits.STEP_PAUSE_S_MIN, self._due_at - steady_s())
        with trio.move_on_after(pause_s):
            await self._wake.wait()
        self._sleeps_until = -math.inf
        self._wake = trio.Event()

    def _forget_pages(self) -> None:
        """Forget pages at any step: a follower steps when messages arrive, seldom in the loop."""
        now = self._engine.stepped_at
        if now - self._forgot_at >= limits.FORGET_PAGES_S:
            self._forgot_at = now
            self._log.forget_pages()
