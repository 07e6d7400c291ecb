"""A node's part in its group: made over an undamaged log, run until it is fenced, and mended.

A :class:`~dledger.raft.engine.RaftEngine` decides, `stepping` steps it, and `upkeep` looks after
the files. A node whose log is damaged is fenced at once. If its peers can repair the log, all parts
are made anew over the repaired one, in the same process.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from dledger.errors import DledgerError, OutcomeUnknown, Rot
from dledger.ledger.config import LedgerConfig
from dledger.ledger.leaving import Leaving
from dledger.ledger.opening import open_replica
from dledger.ledger.stepping import Stepper, unforeseen
from dledger.ledger.upkeep import Upkeep
from dledger.log.hard_state import HardStateFile
from dledger.log.store import SegmentedLog
from dledger.observe import get_logger
from dledger.raft.election.transfer import Preference
from dledger.raft.engine import RaftEngine
from dledger.raft.limits import PREFERRED_HEALTHY_S
from dledger.raft.membership.members import Members
from dledger.raft.replication.state_machine import StateMachine
from dledger.world import world

log = get_logger("dledger.ledger.ledger")


class Node:
    """A node of a group, without the calls that a program makes (`dledger.ledger.ledger`)."""

    def __init__(
        self,
        config: LedgerConfig,
        hard_state: HardStateFile,
        machine: StateMachine,
        store: SegmentedLog,
        members: Members,
    ) -> None:
        self.config = config
        self._hard_state = hard_state
        self._machine = machine
        self._failure: DledgerError | OSError | None = None
        self._repairing: str | None = None
        self._kept_from = 1
        self._closing = False
        self._fenced = trio.Event()
        self._set_up(store, members)

    def _set_up(self, store: SegmentedLog, members: Members) -> None:
        """Make the parts that take part in the group, over an undamaged log."""
        config, preferred = self.config, self.config.preferred_leader
        self._log = store
        self._engine = RaftEngine(
            config.node_id,
            members,
            store,
            self._hard_state,
            self._machine,
            sync=config.flush == "sync",
            timing=config.timing.slowed(world().seldom_s(1.0)),
            clock=world().steady_s,
            rng=random.Random(),
            preference=Preference(preferred, PREFERRED_HEALTHY_S) if preferred else None,
        )
        store.on_cut = self._log_cut
        self._upkeep = Upkeep(
            config, store, lambda: config.repair and not self._engine.solo, self.resign
        )
        self._upkeep.keep_from(self._kept_from)
        self._stepper = Stepper(config, self._engine, store, members, self._upkeep.look)
        self._leaving = Leaving(config.node_id, self._engine, self._stepper)

    async def _run(self, listener: socket.socket) -> None:
        """Take part until this node is fenced for good."""
        await self._take_part_and_mend(listener)
        self._fenced.set()

    async def _take_part_and_mend(self, listener: socket.socket) -> None:
        """Take part until this node is fenced. If that was because of rot, repair the log and take
        part again: from the files alone, as a new process would. Only the state machine is kept, as
        it holds only committed entries."""
        await self._take_part(listener)
        while self._repairing is not None:
            log.warning("log reopened", node=self.config.node_id, reason=self._repairing)
            try:
                await self._reopen(listener)
            except (DledgerError, OSError) as error:
                self._give_up(error)
                self._repairing = None
                return
            await self._take_part(listener)

    async def _take_part(self, listener: socket.socket) -> None:
        stepper, upkeep = self._stepper, self._upkeep
        syncing = stepper.syncing
        async with trio.open_nursery() as nursery:
            for loop in (
                *(stepper.step_loop, syncing.begin_loop, syncing.end_loop),
                *(upkeep.housekeeping_loop, upkeep.scrub_loop, upkeep.rot_loop),
                partial(stepper.network_loop, listener),
            ):
                nursery.start_soon(self._fence_after, loop, nursery.cancel_scope)

    async def _fence_after(
        self, loop: Callable[[], Awaitable[None]], scope: trio.CancelScope
    ) -> None:
        """Run a loop; if it fails, this node takes no further part in the group.

        That holds for an exception that nobody foresaw, too: what these loops do makes entries
        durable and counts them, so a node that does not know how far it got must not go on.
        """
        try:
            await loop()
        except (DledgerError, OSError) as error:
            if isinstance(error, Rot):
                self._log.checkpoints.doubt(error)
            self._give_up(error)
            scope.cancel()
        except Exception as error:
            self._give_up(unforeseen(error, getattr(loop, "__name__", "the network loop")))
            scope.cancel()

    def _give_up(self, error: DledgerError | OSError) -> None:
        """Fence this node for an error. A failed disk is reported rather than rot, which a leader
        can mend."""
        log.error("fenced", node=self.config.node_id, reason=str(error))
        if self._failure is None or isinstance(self._failure, Rot):
            self._failure = error
            mends = isinstance(error, Rot) and self.config.repair and not self._engine.solo
            self._repairing = str(error) if mends else None
        self._engine.fence(error)

    async def _reopen(self, listener: socket.socket) -> None:
        """Close the log and open it again, repaired. No thread uses it by now."""
        old, stepper = self._log, self._stepper
        old.close()
        store, members = await open_replica(self.config, self._hard_state, listener)
        self._failure = self._repairing = None
        self._set_up(store, members)
        stepper.retire()
        old.close_files()

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
        self._stepper.retire()
        self._fenced.set()
        if self._engine.fenced is None:
            self._engine.fence(OutcomeUnknown("the ledger was closed"))
        if self._failure is None:
            self._log.close()
        else:
            self._log.close_files()

    async def resign(self) -> None:
        """Before a stop: if this node leads, let another take over. Also returns if none can."""
        await self._leaving.resign()
