"""Committed entries go to the state machine, and it hears who leads.

An append is answered when its entry is applied. This node serves when it leads and has applied its
own no-op, and with that all that earlier terms left; before, an answer of it could lack an entry
that an earlier leader acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dledger.errors import NotLeader
from dledger.log.entry import HEADER_BYTES
from dledger.raft.limits import APPLY_BYTES_PER_STEP, APPLY_S_PER_STEP
from dledger.raft.roles import Role, Standing

if TYPE_CHECKING:
    from dledger.raft.appends import PendingAppends
    from dledger.raft.parts import Consensus, Replica
    from dledger.raft.replication.sending import Sending
    from dledger.raft.replication.state_transfer import StateTransfer


class Applying:
    """Brings the state machine up to the commit index, and announces who leads to it."""

    def __init__(
        self,
        consensus: Consensus,
        replica: Replica,
        pending: PendingAppends,
        sending: Sending,
        state_transfer: StateTransfer,
        clock: Callable[[], float],
    ) -> None:
        self._core = consensus.core
        self._log = replica.log
        self._machine = replica.machine
        self._base_state = replica.base_state
        self._pending = pending
        self._sending = sending
        self._state_transfer = state_transfer
        self._clock = clock
        #: How many of the machine's owner read its state in slices: nothing is applied meanwhile.
        self.holds = 0
        #: How long applying entries has taken so far: a replay of them takes as long again.
        self.applying_s = 0.0
        #: Whether this node leads and has applied its no-op, as announced last.
        self.serving = False
        #: Whether entries are left that may be applied at once.
        self.has_more = False
        self._announced: Standing | None = None
        self._whole_index = 0

    def apply(self, commit_index: int) -> Iterator[None]:
        """Apply entries up to `commit_index`, up to two bounds. Stops wherever a burst of new
        appends should leave before the rest is applied."""
        machine = self._machine
        self.has_more = machine.applied_index < commit_index and not self._is_held
        if not self.has_more:
            return
        now = self._clock()
        until, budget = now + APPLY_S_PER_STEP, APPLY_BYTES_PER_STEP
        while machine.applied_index < commit_index and budget > 0 and now <= until:
            entry = self._log.reader.checked_entry(machine.applied_index + 1)
            budget -= HEADER_BYTES + len(entry.body)
            result, started = machine.apply(entry), now
            now = self._clock()
            self.applying_s += now - started
            if machine.applied_index < entry.index - 1:
                self.went_back(entry.index - 1)
                return
            machine.applied_index = entry.index
            if self._pending.applied(entry, result) and self._sending.has_burst:
                yield
        self.has_more = machine.applied_index < commit_index

    @property
    def _is_held(self) -> bool:
        return bool(self.holds) or self._state_transfer.holds or self._base_state.is_missing

    def went_back(self, index: int) -> None:
        """The state machine had applied everything up to `index`, and now rebuilds a part of it.

        Until it has reached `index` again this node does not serve.
        """
        self._whole_index = max(self._whole_index, index)
        self._state_transfer.spoiled()
        self.announce()

    def missing(self) -> int:
        """How many entries this node would have to apply before it could serve."""
        return max(self._log.last_index, self._whole_index) - self._machine.applied_index

    # -- who leads -------------------------------------------------------------------------

    def announce(self) -> None:
        """Tell the state machine when the leader has changed, or begun to serve."""
        core, noop_index = self._core, self._core.noop_index
        leads, serving = core.role is Role.LEADER, False
        if leads and noop_index is not None:
            serving = self._machine.applied_index >= max(noop_index, self._whole_index)
        leader, term = None if leads and not serving else core.leader_id, core.term
        announced = self._announced
        if announced is not None and announced == (serving, leader, term):
            return
        self.serving, self._announced = serving, Standing(serving, leader, term)
        if serving:
            self._machine.leading(term)
        else:
            self._machine.following(leader, term)

    @property
    def standing(self) -> Standing:
        """The leader, as far as this node knows."""
        return self._announced or Standing(serving=False, leader=None, term=self._core.term)

    def check_serving(self) -> None:
        """Raise NotLeader unless this node serves."""
        if not self.serving:
            core = self._core
            raise NotLeader(None if core.role is Role.LEADER else core.leader_id)

    def deposed(self) -> int | None:
        """Note that this node leads no longer, which is announced later. Returns the term announced
        last."""
        announced, self._announced, self.serving = self._announced, None, False
        return None if announced is None else announced.term

    def fenced(self) -> None:
        """Note that this node takes part no longer: it knows no leader."""
        self._announced = Standing(serving=False, leader=None, term=self._core.term)
        self._machine.following(None, self._core.term)
