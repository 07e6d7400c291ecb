"""A consumer as a member of its group: it joins, tells brokers of itself, and leaves."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from dledger.observe import get_logger
from dledger.remoting.command import Command
from dledger.remoting.json_dialect import MessageQueue
from dledger.world import unix_ms
from mqclient import limits
from mqclient.consuming.assignment import Assignment, OnRevoke
from mqclient.consuming.measuring import Measured
from mqclient.consuming.membership.filters import check_filters
from mqclient.consuming.membership.presence import Presence
from mqclient.consuming.progress import Ahead
from mqclient.consuming.sharing.locks import Locks
from mqclient.consuming.sharing.mode import Wanted, offsets_kept
from mqclient.consuming.sharing.offsets import KeepOffsets, Offsets
from mqclient.consuming.steering import Steered
from mqclient.consuming.transacting.transaction import Transacting
from mqclient.models import Rebalance
from mqclient.signatures import checked

log = get_logger("mqclient.consuming.consumer")


@checked
class Member(Steered):
    """A consumer, from the time it joins until it has left."""

    _wanted: Wanted
    _keep_offsets: KeepOffsets
    _auto_commit: bool
    _auto_commit_interval_s: float
    _revoke_timeout_s: float
    _drain_timeout_s: float
    _on_revoke: OnRevoke | None
    _on_rebalance: Callable[[Rebalance], None] | None
    _ahead: Ahead
    _presence: Presence
    _measured: Measured | None
    _has_left: bool
    _offsets: Offsets
    _transacting: Transacting | None
    _locks: Locks | None

    @property
    def client_id(self) -> str:
        """The consumer's id for brokers and members. Raises ClientClosed before it is opened."""
        return self._session.client_id

    async def _start(self) -> None:
        self._leaving = anyio.Lock()
        shared_s = self._revoke_timeout_s if self._presence.plan.is_shared else None
        offsets = self._offsets = offsets_kept(
            self._keep_offsets, self.group, self._session.finder, self._locks, shared_s
        )
        offsets.open()
        try:
            await self._session.__aenter__()
            try:
                await self._join()
            except BaseException:
                self._assignment = None
                await self._session.__aexit__(None, None, None)
                raise
        except BaseException:
            offsets.close()
            raise

    async def _join(self) -> None:
        session, presence = self._session, self._presence
        presence.started_ms = unix_ms()
        assignment = self._assignment = Assignment(
            session=session,
            tasks=session.tasks,
            group=self.group or limits.READERS_GROUP,
            plan=presence.plan,
            offsets=self._offsets,
            subscriptions=presence.subscriptions,
            consume_from=presence.consume_from,
            beat=self._beat,
            arrived=self._handout.arrived,
            on_rebalance=self._on_rebalance or (lambda _: None),
            on_revoke=self._on_revoke,
            revoke_timeout_s=self._revoke_timeout_s,
            locks=self._locks,
            ahead=self._ahead,
            measured=self._measured,
        )
        with anyio.move_on_after(limits.REQUEST_TIMEOUT_S):
            await self._wanted.match(session)
            await check_filters(session, assignment.group, presence.subscriptions.values())
            await presence.introduce(session, assignment)
        session.on_route_change.append(self._route_changed)
        presence.stay(session)
        session.tasks.start_soon(assignment.keep_balanced)
        session.tasks.start_soon(presence.watch_leaders, session, assignment)
        if self._locks is not None:
            session.tasks.start_soon(self._locks.keep)
        if self._wanted.patterns:
            session.tasks.start_soon(self._keep_matching, assignment)
        if self._auto_commit:
            session.tasks.start_soon(self._keep_committing, assignment)

    async def _leave(self, *, commit: bool) -> None:
        """Commit finished messages and leave the group, once; a second task waits for the first."""
        with anyio.CancelScope(shield=True):
            async with self._leaving:
                if not self._has_left:
                    self._has_left = True
                    await self._leave_now(commit=commit)

    async def _leave_now(self, *, commit: bool) -> None:
        assignment, self._handout.ended = self._assignment, True
        self._presence.leave()
        with anyio.move_on_after(limits.REQUEST_TIMEOUT_S, shield=True):
            if assignment is not None:
                assignment.draining = True
                if commit:
                    await assignment.commit(limits.REQUEST_TIMEOUT_S, last=True)
        # A time of its own: a lock that is not given up keeps its queue from everybody.
        with anyio.move_on_after(limits.REQUEST_TIMEOUT_S, shield=True):
            if self._locks is not None:
                await self._locks.leave()
            await self._presence.unregister(self._session)

    async def _end(self, *, failed: bool) -> None:
        """Commit finished messages (if `auto_commit`) and leave the group."""
        try:
            await self._leave(commit=self._auto_commit)
        finally:
            self._assignment = None
            try:
                await self._session.__aexit__(None, None, None)
            finally:  # cancelled or not
                if self._transacting is not None:
                    self._transacting.close()
                self._offsets.close()
                self._handout.arrived.announce()

    def stay_behind(self) -> None:
        """Give up queues and file in this copy: it is in a fork of the process that opened it."""
        super().stay_behind()
        self._assignment = None
        self._offsets.stay_behind()

    async def _keep_committing(self, assignment: Assignment) -> None:
        while True:
            await anyio.sleep(self._auto_commit_interval_s)
            # A group that is gone does not hold up the others' commits for longer.
            await assignment.commit(limits.HEARTBEAT_TIMEOUT_S)

    async def _keep_matching(self, assignment: Assignment) -> None:
        while True:
            await anyio.sleep(limits.PATTERN_POLL_S)
            if await self._wanted.match(self._session):
                await self._beat()
                assignment.look_again("topics that match came or went")

    def _asked(self, address: str, command: Command) -> Command | None:
        if self._assignment is None:
            return None
        return self._presence.asked(self._session, self._assignment, address, command)

    def _route_changed(self, topic: str) -> None:
        if self._assignment is not None and topic in self._wanted.topics:
            self._assignment.look_again(f"the route of {topic} changed")

    def _lost(self, queue: MessageQueue) -> None:
        if self._assignment is not None:
            self._assignment.lost(queue)

    async def _beat(self) -> None:
        await self._presence.beat(self._session)
