"""Reading one queue ahead of the application: a task per assigned queue.

The broker holds a pull until there is something to answer (long polling), so an idle queue costs a
request every few seconds. Whatever goes wrong, the task goes on: it asks who leads and pulls there,
from the offset where it was. Nothing is lost or repeated by that, since offsets are the same on
every replica.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from anyio.lowlevel import checkpoint

from dledger.errors import BadInput, RecordError, RemotingError
from dledger.observe import get_logger
from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    PullMessageHeader,
    PullMessageResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.headers.consume import PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import RETRY_PREFIX
from dledger.world import world
from mqclient import limits
from mqclient.connection.leaders import LeaderFinder, log_failure
from mqclient.connection.retry import backoff_s, retry_after_s
from mqclient.connection.signals import Broadcast
from mqclient.consuming.columns.batch import Listed, batch_in
from mqclient.consuming.measuring import Measured
from mqclient.consuming.progress import Chunk, Place, QueueProgress
from mqclient.errors import ClientError, Refused

log = get_logger(__name__)

FAILED = "fetch failed, will be tried again"

_SYS_FLAG = PULL_SUSPEND | PULL_SUBSCRIPTION | PULL_LITE
#: There may be more at once.
_MORE = frozenset({ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY})
_ANSWERS = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


@dataclass(slots=True, eq=False)
class QueueFetcher:
    """Fills `progress` from its queue. `on_arrival` is called when there is something new, `holds`
    says whether the queue is ours to hand out; `on_other_life` is called when its topic was made
    again, with the place at which to go on.

    Whoever runs it does so inside `scope`, by which it is stopped.
    """

    progress: QueueProgress
    group: str
    subscription: SubscriptionData
    finder: LeaderFinder
    on_arrival: Callable[[], None]
    holds: Callable[[MessageQueue], bool] | None = None
    on_other_life: Callable[[MessageQueue, Place], None] | None = None
    measured: Measured | None = None
    room: Broadcast = field(default_factory=Broadcast)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _pulling: anyio.CancelScope | None = None

    async def run(self) -> None:
        """Fetch messages of the queue until cancelled."""
        attempt = 0
        while True:
            while not self.progress.wants_more:
                await self.room.wait()
            try:
                await self._pull_once()
                attempt = 0
            except RemotingError as error:
                attempt += 1
                if attempt > 1:
                    log_failure(log, FAILED, error, **self._named())
                await anyio.sleep(backoff_s(attempt))
            except (ClientError, BadInput) as error:
                log_failure(log, FAILED, error, **self._named())
                await anyio.sleep(limits.REFUSED_RETRY_S)

    @property
    def may_hand_out(self) -> bool:
        """Whether what was fetched may be begun now."""
        return self.holds is None or self.holds(self.progress.queue)

    def took(self) -> None:
        """There is room in the buffer again."""
        self.room.announce()

    def close(self) -> None:
        """Another member is to read the queue: fetch and hand out nothing more."""
        self.scope.cancel()
        self.progress.closing = True

    def restart(self) -> None:
        """The position was moved: pull from there, even if there was no room before."""
        self.room.announce()
        self.interrupt()

    def interrupt(self) -> None:
        """Pull again at once: the leader changed."""
        if self._pulling is not None:
            self._pulling.cancel()

    async def _pull_once(self) -> None:
        progress = self.progress
        epoch = progress.epoch
        held_s = world().seldom_s(limits.PULL_SUSPEND_S)
        header = PullMessageHeader(
            consumer_group=self.group,
            topic=progress.queue.topic,
            queue_id=progress.queue.queue_id,
            queue_offset=progress.fetch_offset,
            max_msg_nums=min(limits.PULL_RECORDS_MAX, progress.ahead.messages_each),
            sys_flag=_SYS_FLAG,
            commit_offset=0,
            suspend_timeout_millis=int(held_s * 1000),
            sub_version=self.subscription.sub_version,
            subscription=self.subscription.sub_string,
            expression_type=self.subscription.expression_type,
            max_msg_bytes=progress.ahead.asked_bytes,
            life=progress.life,
        )
        command = Command(RequestCode.PULL_MESSAGE, encode_header(header))
        with anyio.CancelScope() as self._pulling:
            answer = await self.finder.ask(
                progress.queue.broker_name,
                command,
                limits.REQUEST_TIMEOUT_S,
                progress.queue.topic,
                held_s=held_s,
            )
            if answer.code == ResponseCode.SYSTEM_BUSY:
                await self._wait_for_turn(answer)
                return
            before = progress.fetch_offset
            self._take(answer, epoch)
            moved = progress.fetch_offset != before
            if answer.code not in _MORE or not moved:
                await anyio.sleep(limits.EMPTY_PULL_PAUSE_S)
        self._pulling = None
        await checkpoint()

    async def _wait_for_turn(self, answer: Command) -> None:
        """The group is given no more for now: come again when the broker says."""
        wait_s = retry_after_s(answer) or limits.REFUSED_RETRY_S
        reason = answer.remark or "the broker is busy"
        log.warning(FAILED, **self._named(), reason=reason, seconds=wait_s)
        await anyio.sleep(min(wait_s, limits.TURN_S_MAX))

    def _take(self, answer: Command, epoch: int) -> None:
        queue = self.progress.queue
        if answer.code not in _ANSWERS:
            raise Refused(
                f"pull of {queue} for group {self.group}", "its leader", answer.code, answer.remark
            )
        header = decode_header(PullMessageResponseHeader, answer)
        next_offset = header.next_begin_offset
        if header.life:
            known, self.progress.life = self.progress.life, header.life
            if known and self.on_other_life is not None:
                self.on_other_life(queue, Place(next_offset, header.life))
                return
        if answer.code == ResponseCode.PULL_OFFSET_MOVED and epoch == self.progress.epoch:
            log.warning(
                "offset moved",
                **self._named(),
                wanted=self.progress.fetch_offset,
                resumed_at=next_offset,
                first=header.min_offset,
                end=header.max_offset,
            )
            if header.min_offset <= self.progress.fetch_offset <= header.max_offset:
                self.progress.seek(next_offset)  # a reset whose notice did not come through
                self.progress.max_offset = header.max_offset
                return
        found = answer.code == ResponseCode.SUCCESS
        chunk = self._chunk(answer) if found else Chunk(Listed([]), 0)
        chunk.expiring = bool(header.expiring)
        if self.progress.accept(epoch, chunk, next_offset):
            self.progress.max_offset = header.max_offset
            if chunk.messages:
                if self.measured is not None:
                    count, topic = len(chunk.messages), queue.topic
                    again = count if topic.startswith(RETRY_PREFIX) else 0
                    self.measured.received(topic, count, again)
                self.on_arrival()

    def _chunk(self, answer: Command) -> Chunk:
        """Cut the answer into records, and leave out those with a tag that was not asked for."""
        messages = batch_in(answer.payload, self.progress.queue.broker_name)
        if self.subscription.tags_set:
            wanted = frozenset(self.subscription.tags_set)
            messages = Listed([message for message in messages if message.tags in wanted])
        if messages and messages[0].queue_id != self.progress.queue.queue_id:
            raise RecordError(f"a pull of {self.progress.queue} was answered with another queue's")
        return Chunk(messages, len(answer.payload))

    def _named(self) -> dict[str, object]:
        queue = self.progress.queue
        place = {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}
        return {"group": self.group, **place}
