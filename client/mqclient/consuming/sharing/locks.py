"""Locking the queues of an ordered consumer with their brokers, and keeping them locked.

Locks are entries of the replicated log, so a new leader knows them. They are asked for again every
few seconds; one that is no longer granted, or was another's in between, is lost at once. A broker
holds the request for a lock that another member has until that one gives it up.

Brokers need not handle requests in the order in which they come. Were a queue unlocked while a
request for its lock is under way, the lock might be given after that, to a member that has gone,
and nobody would read the queue until it ends. So a queue is unlocked when all such requests are
answered, and those without an answer are taken for granted. Those that the broker holds are
answered when it hears that the queue is not wanted any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from dledger.errors import BadInput, RemotingError
from dledger.observe import get_logger
from dledger.remoting.bodies import (
    LockBatchBody,
    LockBatchResponseBody,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.json_dialect import MessageQueue
from dledger.world import steady_s
from mqclient import limits
from mqclient.connection.leaders import log_failure
from mqclient.connection.lifetime import together
from mqclient.connection.session import Session
from mqclient.connection.signals import Broadcast
from mqclient.consuming.sharing.leases import Leases
from mqclient.errors import ClientError

log = get_logger(__name__)


class Locks:
    """The locks of one member of a group.

    `on_lost` is called with a queue that is another's now, `on_kept` when locks were renewed.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        on_lost: Callable[[MessageQueue], None],
        on_kept: Callable[[], None],
    ) -> None:
        self.leases = Leases()
        self._session = session
        self._group = group
        self._on_lost = on_lost
        self._on_kept = on_kept
        self._under_way: Counter[MessageQueue] = Counter()
        #: Requests for each queue that a broker may hold.
        self._waiting: Counter[MessageQueue] = Counter()
        #: The last task that asked for each queue.
        self._askers: dict[MessageQueue, object] = {}
        self._maybe_ours: set[MessageQueue] = set()
        self._leaving: set[MessageQueue] = set()
        self._closed = False
        self._answered = Broadcast()

    def holds(self, queue: MessageQueue) -> bool:
        """Whether something of the queue may be begun now."""
        return self.leases.holds(queue, steady_s())

    async def acquire(self, queue: MessageQueue) -> None:
        """Wait until the queue is ours; as long as it is another's."""
        began_s, is_logged = steady_s(), False
        asker = self._askers[queue] = object()
        while True:
            asked_s = steady_s()
            if await self._granted(queue):
                try:
                    await checkpoint_if_cancelled()
                except anyio.get_cancelled_exc_class():
                    if self._askers.get(queue, asker) is asker:
                        self._came_too_late(queue)
                    raise
                return
            if steady_s() - began_s > limits.LOCK_SILENT_S and not is_logged:
                is_logged = True
                log.info("queue is locked by another member", group=self._group, queue=str(queue))
            # Brokers that don't hold the request answer at once.
            await anyio.sleep(max(0.0, asked_s + limits.LOCK_RETRY_S - steady_s()))

    async def _granted(self, queue: MessageQueue) -> bool:
        granted = None
        if not self._closed and queue not in self._leaving:
            self._waiting[queue] += 1
            try:
                with anyio.CancelScope(shield=True):  # to know what became of it
                    wait_s = limits.HANDOVER_HELD_S
                    granted = await self._ask(queue.broker_name, [queue], wait_s)
            finally:
                self._waiting -= Counter([queue])
        return bool(granted)

    def _came_too_late(self, queue: MessageQueue) -> None:
        """Give up a lock that nobody wants any more: its release may not have waited for it."""
        if not self._closed and queue not in self._leaving:
            self._leaving.add(queue)  # so that nobody is given it before
            self._session.tasks.start_soon(self.release, [queue])

    async def keep(self) -> None:
        """Renew the locks every few seconds, until cancelled."""
        while True:
            await anyio.sleep(limits.LOCK_RENEW_S)
            by_broker: dict[str, list[MessageQueue]] = {}
            for queue in self.leases.queues():
                if queue not in self._leaving:
                    by_broker.setdefault(queue.broker_name, []).append(queue)
            async with together() as tasks:
                for broker_name, queues in by_broker.items():
                    tasks.start_soon(self._renew, broker_name, queues)
            self._on_kept()

    async def _renew(self, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        """Ask for those of them that were not given up since this task was begun."""
        held = {*self.leases.queues()} - self._leaving
        queues = [queue for queue in queues if queue in held]
        granted = await self._ask(broker_name, queues) if queues else None
        for queue in queues if granted is not None else ():
            if queue not in (granted or ()):
                self.lose(queue)

    async def leave(self) -> None:
        """Release all queues, and ask for none any more."""
        self._closed = True
        await self.release([*{*self.leases.queues(), *self._maybe_ours}])

    async def release(self, queues: Sequence[MessageQueue]) -> None:
        """Give up the locks of queues. A lock whose broker can't be reached ends by itself."""
        self._leaving.update(queues)
        self._maybe_ours.update(queues)  # if there is no time for that, `leave` tries again
        try:
            while under_way := [queue for queue in queues if self._under_way[queue]]:
                # A release may overtake the request that it is about: it is sent again.
                await self._unlock([queue for queue in under_way if self._waiting[queue]])
                with anyio.move_on_after(limits.LOCK_RETRY_S):
                    while any(self._under_way[queue] for queue in queues):
                        await self._answered.wait()
            await self._unlock(queues)
            self._maybe_ours.difference_update(queues)
        finally:
            self._leaving.difference_update(queues)
            for queue in queues:
                self._askers.pop(queue, None)
                self.leases.lost(queue)

    async def _unlock(self, queues: Sequence[MessageQueue]) -> None:
        async with together() as tasks:
            for broker_name in {queue.broker_name for queue in queues}:
                own = [queue for queue in queues if queue.broker_name == broker_name]
                tasks.start_soon(self._send, RequestCode.UNLOCK_BATCH_MQ, broker_name, own)

    def lose(self, queue: MessageQueue) -> None:
        """Note that a queue is another's."""
        log.warning("lock of a queue lost", group=self._group, queue=str(queue))
        self.leases.lost(queue)
        self._on_lost(queue)

    async def _ask(
        self, broker_name: str, queues: Sequence[MessageQueue], wait_s: float = 0.0
    ) -> Sequence[MessageQueue] | None:
        """Queues that we hold now, or None if no broker answered. A queue of another is lost. The
        broker may wait so long for another member."""
        asked_s = steady_s()
        self._under_way.update(queues)
        self._maybe_ours.update(queues)
        try:
            answer = await self._send(RequestCode.LOCK_BATCH_MQ, broker_name, queues, wait_s)
        finally:
            self._under_way -= Counter(queues)
            self._answered.announce()
        if answer is None:
            return None
        try:
            body = decode_body(LockBatchResponseBody, answer.payload)
        except BadInput as error:
            log.warning("locks not understood", group=self._group, reason=str(error))
            return None
        self._maybe_ours.difference_update(queues)
        given = body.lock_ok_mq_set
        tokens = body.lock_tokens if body.lock_tokens is not None else [None] * len(given)
        ours = []
        for queue, token in zip(given, tokens, strict=False):
            if queue in queues and self.leases.granted(queue, token, asked_s):
                ours.append(queue)
        return ours

    async def _send(
        self,
        code: RequestCode,
        broker_name: str,
        queues: Sequence[MessageQueue],
        wait_s: float = 0.0,
    ) -> Command | None:
        body = LockBatchBody(
            *(self._group, self._session.client_id, [*queues]),
            with_tokens=True,
            waits_ms=int(wait_s * 1000) or None,
        )
        command = Command(code, {}, encode_body(body))
        what = f"{code.name} of {len(queues)} queues for group {self._group!r}"
        place = (broker_name, queues[0].topic)
        try:
            return await self._session.finder.granted(
                *(what, *place, command, limits.REQUEST_TIMEOUT_S), held_s=wait_s
            )
        except (RemotingError, ClientError) as error:
            log_failure(log, "locks not answered", error, group=self._group)
            return None
