"""Sends batches to the present leader of one broker group.

A batch is *on the wire* from when a connection takes it until its answer. A batch that needs
another try is *parked* until its time has come and a leader is connected. Two tasks serve a group:
one keeps time (retries, deadlines, linger), one searches the leader when a batch needs it. Normally
neither works for each message or batch: answers arrive as callbacks, and a callback sends the next
batch.

A silent leader need not be dead. When a try stays unanswered for a while, the members are asked
which of them leads; only if it is another one the batch is sent again, to that one. The answer to
the first try still counts if it comes: both answers can only be about the same stored copy.

If a group has no leader, or declines a batch that is certainly not stored, `elsewhere` may move its
messages to another group. A batch that may be stored stays, since only its own group would
recognise a second copy; unless its sender prefers two copies to an unknown outcome
(`at_least_once`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from anyio import sleep

from dledger.errors import BadInput, Busy, ConnectFailed, RemotingError
from dledger.observe import get_logger
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from dledger.world import steady_s
from mqclient import limits
from mqclient.connection.leaders import LeaderFinder
from mqclient.connection.peers import PeerPool
from mqclient.connection.retry import Next, Verdict, backoff_s, judge
from mqclient.connection.routing import RouteTable
from mqclient.connection.signals import Wakeup
from mqclient.errors import ClientError, ProducerFenced, SendError, SendFailed, SendUnknown
from mqclient.producing.batch import Ack, Batch, Kind, State
from mqclient.producing.batching import Accumulator
from mqclient.producing.naming import Claim
from mqclient.producing.sending.exchange import acknowledgement, request_for

if TYPE_CHECKING:
    from mqclient.producing.measuring import Measured

log = get_logger(__name__)


class GroupSender:
    """Sends the batches of `accumulator` to its group's leader. `on_room` is called as they end.

    `elsewhere` moves what it can of a batch to another group's sender, and calls `moved` here.
    `on_declined` gets a topic that the leader does not take messages of, against its route.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        finder: LeaderFinder,
        producer_group: str,
        on_room: Callable[[], None],
        elsewhere: Callable[[GroupSender, Batch], None] = lambda _, __: None,
        *,
        on_declined: Callable[[str], None] = lambda _: None,
        at_least_once: bool = False,
        claim: Claim | None = None,
        measured: Measured | None = None,
    ) -> None:
        self.accumulator = accumulator
        self._finder = finder
        self._pool: PeerPool = finder.pool
        self._routes: RouteTable = finder.routes
        self._producer_group = producer_group
        self._on_room = on_room
        self._elsewhere = elsewhere
        self._on_declined = on_declined
        self._at_least_once = at_least_once
        self._claim = claim
        self._measured = measured
        self._seeking_since_s: float | None = None
        self._name = accumulator.broker_name
        self._parked: list[Batch] = []
        self._on_wire: set[Batch] = set()
        self._wake = Wakeup()
        self._need_leader = Wakeup()
        self._pumping = self._idle = False
        self._look_at_s = 0.0

    @property
    def serving(self) -> bool:
        """Whether a leader is known and connected, as far as is known."""
        return self._seeking_since_s is None and self._routes.leader(self._name) is not None

    def wake(self) -> None:
        """Messages were added: send them at the end of this turn of the event loop."""
        self._wake.set()

    def pump(self) -> None:
        """Send what can be sent now. Who adds a message calls this, or `wake`."""
        if self._idle:
            self._wake.set()
        if self._pumping:
            return
        self._pumping = True
        now_s = steady_s()
        while (batch := self.accumulator.take(now_s)) is not None:
            self._try(batch, now_s)
        self._pumping = False

    async def keep_time(self) -> None:
        """Retries, deadlines and linger, until cancelled. With nothing to send it sleeps."""
        while True:
            self._idle = self.accumulator.empty and not self._parked
            await self._wake.wait(None if self._idle else self._sleep_s())
            self._idle = False
            now_s = steady_s()
            if now_s >= self._look_at_s:
                # Each batch is looked at, so not whenever one is added.
                self._look_at_s = now_s + limits.PRODUCER_TICK_S
                self._expire(now_s)
                self._move_on(now_s)
            self._retry(now_s)
            self.pump()

    async def keep_leader(self) -> None:
        """Search the leader whenever a batch needs one, until cancelled."""
        attempt = 0
        known: str | None = None
        while True:
            await self._need_leader.wait()
            began_s = steady_s()
            if self._seeking_since_s is None:
                self._seeking_since_s = began_s
            leader = self._routes.leader(self._name)
            if leader is None or self._silent(began_s):
                topic = next((batch.topic for batch in self.accumulator.batches()), None)
                leader = await self._finder.find(self._name, topic)
            try:
                await self._pool.connect(leader)
                attempt = 0
            except ConnectFailed:
                self._routes.suspect(self._name, leader)
                attempt += 1
                await self._need_leader.wait(backoff_s(attempt))
                self._need_leader.set()
                continue
            if leader != known:
                log.info(
                    "leader found",
                    broker=self._name,
                    leader=leader,
                    seconds=round(steady_s() - began_s, 4),
                )
            if self._claim is not None and not await self._registered(self._claim):
                self._need_leader.set()
                continue
            known = leader
            self._seeking_since_s = None
            self._move_to(leader)
            self._wake.set()

    async def _registered(self, claim: Claim) -> bool:
        """Whether the name is ours here, or known to be another's. If not, it is tried again."""
        topic = next((batch.topic for batch in self.accumulator.batches()), None)
        if claim.epoch is not None or claim.fenced is not None or topic is None:
            return True
        try:
            await claim.register(topic, limits.REQUEST_TIMEOUT_S)
        except (ClientError, RemotingError, BadInput) as error:
            log.warning("producer not registered", broker=self._name, reason=str(error))
            await sleep(limits.FIND_BACKOFF_MAX_S)
            return False
        return True

    def _sleep_s(self) -> float:
        """How long to sleep unless woken."""
        if self._parked:
            soonest_s = min(batch.delivery.retry_at_s for batch in self._parked) - steady_s()
            return min(max(soonest_s, limits.FIND_BACKOFF_MIN_S), limits.PRODUCER_TICK_S)
        accumulator = self.accumulator
        if accumulator.in_flight >= accumulator.in_flight_max:
            return limits.PRODUCER_TICK_S
        linger_s = accumulator.ready_in_s(steady_s())
        return limits.PRODUCER_TICK_S if linger_s is None else min(linger_s, limits.PRODUCER_TICK_S)

    def _try(self, batch: Batch, now_s: float) -> None:
        leader = self._routes.leader(self._name)
        peer = None if leader is None else self._pool.connected(leader)
        if peer is None or leader is None:
            self._park(batch, now_s)
            self._need_leader.set()
            return
        if self._claim is not None and not self._stamp(batch, self._claim, now_s):
            return
        to_stock = self.accumulator.one_queue_each
        command = request_for(batch, self._producer_group, self._claim, to_stock=to_stock)
        # Before it is sent: if the connection breaks at that moment, the callback runs within the
        # call.
        attempt = batch.delivery.send(now_s, leader)
        try:
            if batch.kind is Kind.ONEWAY:
                peer.send_oneway(command)
                self._finish(batch, Ack(-1, dict.fromkeys(batch.runs, -1), leader))
                return
            self._on_wire.add(batch)
            peer.request_nowait(command, partial(self._answered, batch, attempt, leader))
        except (ConnectFailed, Busy) as error:
            self._answered(batch, attempt, leader, error)

    def _stamp(self, batch: Batch, claim: Claim, now_s: float) -> bool:
        """Give a named producer's batch its number; whether it may be sent now."""
        delivery = batch.delivery
        if claim.fenced is not None:
            self._fail(batch, SendUnknown if delivery.doubtful else ProducerFenced, claim.fenced)
            self._finish(batch)
            return False
        if claim.epoch is None:
            self._park(batch, now_s)
            self._need_leader.set()
            return False
        if delivery.stamp is None:
            delivery.number(claim.take_stream(), claim.named.next_sequence())
        return True

    def _answered(
        self, batch: Batch, attempt: int, server: str, answer: Command | RemotingError | Busy
    ) -> None:
        """The callback of one try."""
        if batch.delivery.state is State.ENDED:
            return
        if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
            try:
                from_stock = self.accumulator.one_queue_each
                ack = acknowledgement(batch, answer, server, from_stock=from_stock)
            except BadInput as error:
                reason = f"{server} acknowledged in a way not understood: {error}"
                self._fail(batch, SendUnknown, reason)
                ack = None
            self._finish(batch, ack)
            return
        if attempt != batch.delivery.attempt:
            return
        now_s = steady_s()
        if self._claim is not None and isinstance(answer, Command):
            self._claim.heard(answer.code, answer.remark)
        verdict = judge(answer, attempt=attempt, now_s=now_s, deadline_s=batch.last_deadline_s)
        self._failed(batch, server, verdict, now_s)

    def _failed(self, batch: Batch, server: str, verdict: Verdict, now_s: float) -> None:
        delivery = batch.delivery
        if verdict.definite:
            delivery.refuse()
        else:
            delivery.lose()
        self._on_wire.discard(batch)
        if verdict.next is Next.ELSEWHERE:
            self._on_declined(batch.topic)
        if verdict.next is Next.ELSEWHERE and not delivery.doubtful:
            self._elsewhere(self, batch)
            if not batch.slots:
                return
        if verdict.next in (Next.GIVE_UP, Next.ELSEWHERE):
            fenced = self._claim is not None and self._claim.fenced is not None
            failed = ProducerFenced if fenced else SendFailed
            reason = f"{server}: {verdict.reason}"
            self._fail(batch, SendUnknown if delivery.doubtful else failed, reason)
            self._finish(batch)
            return
        if verdict.next is Next.REDIRECT:
            self._routes.redirect(self._name, server, verdict.address)
        elif verdict.next is Next.FIND:
            self._routes.suspect(self._name, server)
        log.info("send will be retried", broker=self._name, server=server, reason=verdict.reason)
        self._park(batch, now_s + verdict.delay_s)
        self._wake.set()

    def _fail(self, batch: Batch, error_type: type[SendError], reason: str) -> None:
        failed = batch.fail(error_type, reason)
        if self._measured is not None:
            self._measured.failed(failed)

    def _park(self, batch: Batch, retry_at_s: float) -> None:
        batch.delivery.park(retry_at_s)
        self._parked.append(batch)

    def _retry(self, now_s: float) -> None:
        """Try parked batches whose time has come; search the leader if a try stays unanswered."""
        parked, self._parked = self._parked, []
        for batch in parked:
            if batch.delivery.retry_at_s <= now_s:
                self._try(batch, now_s)
            else:
                self._parked.append(batch)
        if self._silent(now_s):
            self._need_leader.set()

    def _silent(self, now_s: float) -> bool:
        """Whether a try is unanswered for so long that another member may lead by now."""
        return any(
            now_s - batch.delivery.sent_s > limits.SUSPECT_AFTER_S for batch in self._on_wire
        )

    def _move_to(self, leader: str) -> None:
        """Send the batches that another server has not answered to the leader that was found."""
        now_s = steady_s()
        for batch in tuple(self._on_wire):
            if batch.delivery.sent_to == leader:
                batch.delivery.renew(now_s)
                continue
            batch.delivery.lose()
            self._on_wire.discard(batch)
            self._try(batch, now_s)

    def _move_on(self, now_s: float) -> None:
        """Move batches that could not be sent for a while, unless they only wait for their turn."""
        since_s = now_s if self._seeking_since_s is None else self._seeking_since_s
        gone = self._at_least_once and since_s + limits.UNSURE_AFTER_S <= now_s
        for batch in tuple(self.accumulator.batches()):
            if batch.delivery.maybe_stored:
                leaves = gone and batch.movable
            else:
                held_up = since_s < now_s or batch.delivery.attempt > 0
                leaves = held_up and batch.opened_s + limits.MOVE_AFTER_S <= now_s
            if leaves and batch.kind is not Kind.ONEWAY:
                self._on_wire.discard(batch)
                self._elsewhere(self, batch)

    def moved(self, batch: Batch) -> None:
        """Some messages of a batch have moved to another sender: wake the callers that wait for
        them."""
        batch.settle()
        if batch.under_way and not batch.slots:
            self._finish(batch)

    def _expire(self, now_s: float) -> None:
        late = self.accumulator.expire(now_s)
        if not late:
            return
        if self._measured is not None:
            self._measured.failed(late)
        for batch in {slot.batch for slot in late}:
            batch.settle()
            if batch.abandoned:
                self._finish(batch)
        self._on_room()

    def _finish(self, batch: Batch, ack: Ack | None = None) -> None:
        """A batch is acknowledged or has failed: wake its callers, and go on with its lane."""
        batch.end(ack)
        self._on_wire.discard(batch)
        stamp = batch.delivery.stamp
        if self._claim is not None and stamp is not None:
            self._claim.give_back(stamp[0])
        if batch in self._parked:
            self._parked.remove(batch)
        self.accumulator.done(batch)
        if self._measured is not None:
            self._measured.ended(batch)
        batch.settle()
        batch.release()
        self._on_room()
        self.pump()
