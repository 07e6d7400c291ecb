"""A broker without its sockets: handlers wired to a replica's state, and the reactions to changes.

It is the machine's watcher: messages that arrive make held pulls due, and a role change resets the
parts that only a leader uses. The loops here call the pure parts when such an event happens or a
time has come; `mqbroker.app` runs them beside the server and the ledger.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime

import trio

from dledger.errors import StorageError
from dledger.failpoints import failpoint
from dledger.net import Connection
from dledger.net.serving import table_of
from dledger.net.turns import in_turns
from dledger.observe import get_logger
from dledger.program.pulse import beat, look
from dledger.remoting.names import PERM_READ, SCHEDULE_TOPIC, TIMER_TOPIC
from mqbroker import limits
from mqbroker.delivering import Delivering
from mqbroker.flow.following import Following
from mqbroker.leader.offset_commits import OffsetCommits
from mqbroker.leader.waiting.deliveries import Deliveries
from mqbroker.metrics.sources import Sources
from mqbroker.refusal import Refused
from mqbroker.requests.admin.broker import BrokerAdminHandler
from mqbroker.requests.admin.exports import ExportHandler
from mqbroker.requests.admin.groups import GroupAdminHandler
from mqbroker.requests.admin.leadership import LeadershipHandler
from mqbroker.requests.admin.topics import TopicAdminHandler
from mqbroker.requests.admin.users import UserHandler
from mqbroker.requests.core import Core
from mqbroker.requests.dispatch import Dispatcher
from mqbroker.requests.groups.assignment import AssignmentHandler
from mqbroker.requests.groups.clients import ClientHandler
from mqbroker.requests.groups.counting import Counting
from mqbroker.requests.groups.earlier import Earlier
from mqbroker.requests.groups.fencing import Fence
from mqbroker.requests.groups.lag import Standing
from mqbroker.requests.groups.membership import Membership
from mqbroker.requests.groups.progress import ProgressHandler
from mqbroker.requests.groups.readers import Readers
from mqbroker.requests.groups.relays import RelayHandler
from mqbroker.requests.groups.resets import ResetHandler
from mqbroker.requests.held_pulls import HeldPulls, Takes
from mqbroker.requests.needs import Needs
from mqbroker.requests.permissions import may_be_read, may_read
from mqbroker.requests.popping.giving_back import GivingBackHandler
from mqbroker.requests.popping.modes import RequestModeHandler
from mqbroker.requests.popping.pop import PopHandler
from mqbroker.requests.popping.questions import PopQuestionHandler
from mqbroker.requests.popping.waiting import Popping
from mqbroker.requests.reading.lookups import LookupHandler
from mqbroker.requests.reading.pull import PullHandler
from mqbroker.requests.reading.queries import QueryHandler
from mqbroker.requests.reading.scheduled import ScheduledHandler
from mqbroker.requests.sending.homes import Homes
from mqbroker.requests.sending.once import OnceHandler
from mqbroker.requests.sending.produce import ProduceHandler
from mqbroker.requests.sending.recall import RecallHandler
from mqbroker.requests.sending.request_reply import ReplyHandler
from mqbroker.requests.sending.send import SendHandler
from mqbroker.requests.sending.send_back import SendBackHandler
from mqbroker.requests.sending.staged import StagedHandler
from mqbroker.requests.sending.transactions import TransactionHandler
from mqbroker.state.aside import SetAside
from mqbroker.state.control import LockQueues, UnlockQueues
from mqbroker.state.derived.entry_index import EntryIndex
from mqbroker.state.derived.indexing import Due
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.watching import Watcher
from mqbroker.upkeep.alarm import Alarm, Signal

_log = get_logger(__name__)


class Broker(Watcher):
    """The request handler of a replica, and its loops."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._pulls_due, self._notices_due = Signal(), Signal()
        self._commits_due = Alarm(core.clock_s)
        self._sweep_due = Alarm(core.clock_s)
        self._next_scan_s = core.clock_s() + limits.CLIENT_SCAN_S
        membership = self._membership = Membership()
        fence = Fence(core, membership)
        self._readers, self._earlier, self._following = Readers(), Earlier(), Following()
        self._popping = Popping(core)
        held = self._held = HeldPulls(self._pulls_due.set, self._sweep_due.set)
        self._commits = OffsetCommits(core.machine, core.definitions, self._wake_commits)
        deliveries = Deliveries(
            core.machine,
            core.entries,
            core.definitions,
            core.assignments,
            core.levels,
            core.store_host,
        )
        self._delivering = Delivering(core, deliveries)
        counting = Counting(core, self._commits, self._readers, self._earlier, fence, held.given_up)
        standing = Standing(core, membership, self._commits, self._readers)
        self.sources = Sources(core, membership, standing, self._following)
        self._clients = ClientHandler(core, membership, self._wake_notices, self._member_left, held)
        self._transactions = TransactionHandler(core, self._clients)
        self._exports, self.users = ExportHandler(core), UserHandler(core)
        once = OnceHandler(core, self._commits, fence)
        self._staged = StagedHandler(core, Homes(core, once), self._transactions.transactions)
        handlers = [
            *(core.door, self._clients, self._transactions, self._staged),
            AssignmentHandler(core, membership),
            *(BrokerAdminHandler(core), self._exports),
            GroupAdminHandler(core, membership),
            LeadershipHandler(core),
            LookupHandler(core, membership, self._commits, counting, self._held),
            *(GivingBackHandler(core, self._popping), PopHandler(core, self._popping, membership)),
            *(PopQuestionHandler(core, self._popping), RequestModeHandler(core)),
            *(once, ProduceHandler(core), ProgressHandler(core, standing)),
            PullHandler(core, membership, self._commits, counting, self._held),
            *(QueryHandler(core), RecallHandler(core, deliveries)),
            RelayHandler(core, self._clients),
            *(ReplyHandler(core, self._clients), ScheduledHandler(core, deliveries)),
            ResetHandler(core, self._clients, self._readers, self._popping.changed),
            SendBackHandler(core, fence, self._popping.giving_up),
            SendHandler(core),
            *(TopicAdminHandler(core), self.users),
        ]
        self.handler = Dispatcher(core, table_of(handlers, Needs), self._disconnected)
        core.machine.watch(self)

    async def run(self) -> None:
        """Run the loops until cancelled."""
        async with trio.open_nursery() as nursery:
            for turn in (
                self._run_pulls,
                self._notice,
                self._sweep,
                self._commit,
                self._delivering.deliver_due,
                self._popping.serve,
                self._popping.sweep,
                self._popping.look,
                self._popping.settle,
                self._delivering.renew,
                self._scan,
                self._staged.look_after,
                self._exports.turn,
            ):
                nursery.start_soon(self._take_turns, turn)

    async def _take_turns(self, turn: Callable[[], Awaitable[None]]) -> None:
        """Run one loop for ever. The loop works on clients' bytes, so a fault ends one turn of it,
        not the process. If the fault is of the process's own disk, the ledger knows, and is
        fenced."""
        while True:
            try:
                await turn()
            except Exception as error:
                self.core.faults.note("loop failed", error, loop=turn.__name__)
                await trio.sleep(limits.AFTER_FAULT_S)

    # -- what the machine tells (Watcher) ---------------------------------------------------

    def messages_arrived(self, index: EntryIndex, origin: str) -> None:
        """Messages were applied: pulls that wait for them are due, and delayed ones begin to
        wait."""
        try:
            self._arrived(index, origin)
        except Exception as error:
            self.core.faults.note("messages not told", error, topic=index.topic)

    def _arrived(self, index: EntryIndex, origin: str) -> None:
        self._held.arrived(index)
        self._popping.held.arrived(index.topic)
        if index.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
            self._delivering.due.set()
        if self.core.role.serving:
            for run in index.runs:
                self.core.rates.put(index.topic, run.messages, run.size_bytes, origin)

    def timers_set(self, dues: Sequence[Due]) -> None:
        """Messages began to wait for their time: count them by their topic, which is the first name
        of their owner."""
        if self.core.role.serving:
            for due in dues:
                ahead_s = (due.at_ms - due.born_ms) / 1000
                self.core.rates.traffic.timed(due.owner[0], ahead_s)

    def set_aside(self, kind: int, aside: SetAside) -> None:
        """An entry was set aside: log it as an error, since its writer or a disk is at fault."""
        _log.error(
            "entry set aside",
            index=aside.index,
            kind=kind,
            reason=aside.reason,
            count=self.core.machine.aside.count,
            remedy="nothing of it has an effect on any replica; `mqadmin raftStatus` shows it",
        )

    def topics_changed(self, topics: Sequence[str]) -> None:
        """Topics changed: tell the name servers. One that is gone ends what belongs to it."""
        failpoint("topic.applied")
        for topic in topics:
            if self.core.machine.topics.get(topic) is None:
                self._topic_ended(topic)
        self._look_again(topics=topics)
        self.core.announcements.changed(topics)
        self._sweep_due.set(self.core.announcements.next_s)

    def groups_changed(self, groups: Sequence[str]) -> None:
        """Consumer groups changed: those of their requests that wait may be refused now."""
        self._look_again(groups=groups)

    def _look_again(self, *, topics: Sequence[str] = (), groups: Sequence[str] = ()) -> None:
        """Release waiting requests with these topics or groups, if they may not be answered now."""
        core = self.core
        gone = {name for name in topics if not may_be_read(core.machine.topics.get(name))}
        barred = {name for name in groups if not may_read(core.machine.groups.get(name))}
        if gone or barred:
            self._held.release(gone, barred)
            self._popping.held.look_at(gone, barred)

    def _topic_ended(self, topic: str) -> None:
        """Drop the notes about a deleted topic: a new topic of the same name starts without
        them."""
        self.core.rates.topic_ended(topic)
        self._commits.topic_ended(topic)
        self._readers.topic_ended(topic)
        self._earlier.topic_ended(topic, self._membership.subscribers(topic))
        self._popping.pops.topic_ended(topic)

    def locks_changed(self, change: LockQueues | UnlockQueues) -> None:
        """The locks' time goes on from here, if another replica leads; or members that wait for
        locks that are free may have them."""
        if isinstance(change, UnlockQueues):
            for queue in change.queues:
                if self.core.machine.locks.held(QueueKey(change.group, *queue)) is None:
                    self._held.given_up(change.group, *queue, Takes.LOCK)
        elif self.core.role.serving:
            self.core.lock_clock.said()
        else:
            self.core.lock_clock.heard()

    def settings_changed(self) -> None:
        """Take over settings that changed at run time, and tell name servers what depends on
        them."""
        problem = self.core.take_settings()
        if problem is not None:
            _log.warning("settings not taken over", reason=problem)
        self.handler.take_mode()
        self._delivering.due.set()
        if not self.core.permission & PERM_READ:
            self._held.release_all()
            self._popping.held.look_at_all()
        self.topics_changed(())

    def users_changed(self) -> None:
        """Users changed: tell the name servers."""
        self.core.announcements.changed()

    def leading(self, term: int) -> None:
        """Begin to serve: this replica leads."""
        failpoint("broker.serve")
        core = self.core
        core.lock_clock.begin()
        core.role.leading(term)
        core.assignments.reset()
        core.definitions.reset()
        core.appender.reset()
        core.flow.reset()
        self._following.begin()
        self._readers.clear()
        self._popping.leading()
        self._transactions.transactions.reset()
        self._log_role()
        self._delivering.due.set()
        lacking = core.lacking_system_topics()
        try:
            if lacking:
                core.definitions.put_topics(lacking)
            self._clients.led()
        except Refused as refused:
            _log.warning("topics not made", reason=str(refused))
        # A new group's leader is registered with its default topic: with a route without it
        # producers would take it that their topics can't be created.
        if not lacking:
            self.topics_changed(())

    def following(self, leader: str | None, term: int) -> None:
        """Stop serving: this replica follows."""
        before = (self.core.role.serving, self.core.role.leader_id, self.core.role.term)
        self.core.role.following(leader, term)
        if before == (False, leader, term):
            return
        self._commits.reset()
        self._held.release_all()
        self._popping.following()
        self._log_role()
        self.topics_changed(())

    # -- what the dispatcher tells ----------------------------------------------------------

    def _disconnected(self, connection: Connection) -> None:
        """A client's connection is gone."""
        self._held.disconnected(connection.id)
        self._popping.held.disconnected(connection.id)
        self._earlier.disconnected(connection.id)
        self._clients.disconnected(connection)
        self.core.door.forget(connection.id)

    def _member_left(self, connection_id: int, group: str) -> None:
        """A member leaves its group: it takes nothing any more."""
        self._held.left(connection_id, group)
        self._popping.left(connection_id, group)

    # -- the loops --------------------------------------------------------------------------

    def _log_role(self) -> None:
        role = self.core.role
        _log.info(
            "role changed",
            node=role.node_id,
            role="leader" if role.serving else "follower",
            term=role.term,
            leader=role.leader_id,
        )

    async def _run_pulls(self) -> None:
        """Run due pulls, once for all messages that were applied in the same turn."""
        await self._pulls_due.wait()
        await in_turns(self._due_pulls())

    def _due_pulls(self) -> Iterator[None]:
        """Run the due pulls, one at each step."""
        for pull in self._held.take_due():
            pull.again(pull)
            yield

    def _wake_notices(self, groups: Iterable[str]) -> None:
        self._notices_due.set()
        for group in groups:
            self._held.members_changed(group)

    async def _notice(self) -> None:
        """Tell clients that their groups have changed; once for all changes within a short time."""
        await self._notices_due.wait()
        await in_turns(self._clients.notices())
        await trio.sleep(limits.NOTIFY_GATHER_S)

    async def _sweep(self) -> None:
        """Answer the pulls whose time is up, and the answers that have waited too long for name
        servers."""
        core = self.core
        await self._sweep_due.wait()
        now_s = core.clock_s()
        try:
            self._held.expire(now_s)
            core.announcements.release()
        finally:
            self._sweep_due.set(max(self._held.next_s, now_s + limits.SWEEP_PAUSE_S))
            self._sweep_due.set(core.announcements.next_s)

    def _wake_commits(self, after_s: float) -> None:
        self._commits_due.set(self.core.clock_s() + after_s)

    async def _commit(self) -> None:
        """Write the commits that were gathered, when it is time."""
        await self._commits_due.wait()
        self._commits.flush()

    async def _scan(self) -> None:
        # Only a leader has something to do whose time has come: it checks transactions.
        await (beat() if self.core.role.serving else look())
        now_s = self.core.clock_s()
        self._note_followers(now_s)
        self.core.rates.sample(now_s, _local_day(self.core.clock_ms()))
        self.core.entries.times.sample(now_s)
        self.core.replies.latencies.sort()
        if now_s >= self._next_scan_s:
            self._next_scan_s += limits.CLIENT_SCAN_S
            self._clients.expire()
            self._delivering.log_repeats()
        if self.core.role.serving:
            self._clients.forget_locks()
            try:
                self._transactions.check()
            except StorageError as error:
                _log.error("transactions not checked", reason=str(error))

    def _note_followers(self, now_s: float) -> None:
        """Note who the members are, and how far they hold the log."""
        status = self.core.log.status
        self.core.role.take_members(status.members)
        if self.core.role.serving:
            lag = max((each.lag_entries or 0 for each in status.members), default=0)
            self._following.sample(now_s, status.last_index, status.last_index - lag)


def _local_day(clock_ms: int) -> int:
    """A number that changes at local midnight."""
    return datetime.fromtimestamp(clock_ms / 1000).astimezone().toordinal()
