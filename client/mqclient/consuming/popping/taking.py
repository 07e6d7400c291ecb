"""Pops messages from every broker group that has queues of the topics, for who waits for them.

As many are asked for as are wanted and not there yet, unless what is there has many bytes already.
A pop waits at its broker until there is something; one whose asker is gone meanwhile is not taken
back, for the broker may have handed out already: what it brings is kept for the next who asks,
unless half of its time is over by then. If an answer is lost with a leader, the next leader gives
the same messages to the same attempt.

Who leaves has the answers come first: a broker ends the waiting of members that leave, and what it
had handed out before that is given back.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import pairwise
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from dledger.errors import BadInput, DledgerError, RecordError, RemotingError
from dledger.observe import get_logger
from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    PopMessageHeader,
    PopMessageResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.headers.pop import ANY_QUEUE, FROM_FIRST
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.receipts import read_bits
from dledger.remoting.record import walk
from dledger.world import unix_ms
from mqclient import limits
from mqclient.connection.leaders import log_failure
from mqclient.connection.retry import backoff_s, retry_after_s
from mqclient.connection.session import Session
from mqclient.connection.signals import Broadcast
from mqclient.consuming.measuring import Measured
from mqclient.consuming.popping.message import PoppedMessage
from mqclient.consuming.popping.settling import Settling
from mqclient.consuming.sharing.beginnings import ask_place, born_ms, is_younger
from mqclient.errors import ClientClosed, ClientError, NoRoute, Refused
from mqclient.metrics import Labels

log = get_logger(__name__)

_NOTHING = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})


class Taking:
    """The messages that were popped and nobody has. `arrived` is announced when there are more."""

    def __init__(
        self,
        session: Session,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        settling: Settling,
        *,
        invisible_s: float,
        init_mode: int,
        ordered: bool,
        measured: Measured | None = None,
    ) -> None:
        self.arrived = Broadcast()
        self.ready: deque[PoppedMessage] = deque()
        self._ready_bytes = 0
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._settling = settling
        self.invisible_s = invisible_s
        #: After how many tries the group gives a message up, as a broker has said last.
        self.retry_max_times = limits.POP_RECONSUME_TIMES
        self._init_mode = init_mode
        self._ordered = ordered
        self._measured = measured
        self._closed = False
        #: Nothing more is handed out: the consumer is drained.
        self.stopped = False
        #: Nothing is popped or handed out until somebody says so.
        self.paused = False
        self._wanted = 0
        self._more = Broadcast()
        self._sources: set[tuple[str, str]] = set()
        self._asked: set[anyio.CancelScope] = set()

    def want(self, count: int) -> None:
        """Messages to fetch, including those already in hand."""
        self._wanted = count
        if self._lacking > 0:
            self._more.announce()

    def gauges(self) -> Iterable[tuple[str, Labels, float]]:
        """The present values, for any thread. Brokers alone know the lag."""
        yield "buffered_messages", (self._group,), len(self.ready)

    def has_stopped(self) -> bool:
        """Whether nothing more is handed out."""
        return self.stopped

    def stop(self) -> None:
        """Pop nothing more, and hand nothing out."""
        self.stopped = True
        self.arrived.announce()

    def resume(self) -> None:
        """Go on after a pause."""
        self.paused = False
        self.arrived.announce()
        self._more.announce()

    async def stops_within(self, time_s: float) -> bool:
        """Wait for a time, or until nothing more is handed out; whether that is so."""
        with anyio.move_on_after(time_s):
            while not self.stopped:
                await self.arrived.wait()
        return self.stopped

    async def last_answers(self) -> None:
        """Wait, for a moment, until no pop is on its way any more."""
        with anyio.move_on_after(limits.POP_LAST_ANSWERS_S):
            while self._asked:
                await self.arrived.wait()
        for scope in [*self._asked]:
            scope.cancel()

    async def give_back(self) -> None:
        """Give messages that no handler has begun to other members at once."""
        ready, self.ready, self._ready_bytes = [*self.ready], deque(), 0
        try:
            if ready:
                await self._settling.hide(ready, 0, keep=False, suspend=True)
        except DledgerError as error:
            log_failure(log, "messages not given back", error, group=self._group)

    @property
    def _lacking(self) -> int:
        if self.stopped or self.paused or self._ready_bytes >= limits.POP_READY_BYTES_MAX:
            return 0
        return self._wanted - len(self.ready)

    def take(self, room_bytes: int | None = None) -> PoppedMessage | None:
        """The next message, if it has no more bytes than there is room for; those whose time may be
        over before they are handled are left to come again. Raises ClientClosed."""
        if self._closed:
            raise ClientClosed("this PopConsumer was closed, when its `with` block was left")
        now_s = anyio.current_time()
        now_ms = unix_ms()
        while self.ready and not self.stopped and not self.paused:
            if room_bytes is not None and self.ready[0].hand_bytes > room_bytes:
                return None
            message = self.ready.popleft()
            self._ready_bytes -= message.size_bytes
            if (message.expires_ms or now_ms + 1) <= now_ms:
                self._settling.ack_soon(message)
                continue
            if message.until_s - now_s >= message.invisible_s / 2:
                return message
        return None

    def drop(self, queues: Container[MessageQueue]) -> None:
        """The group was reset: what nobody has yet of these queues is not handed out."""
        self.ready = deque(message for message in self.ready if message.queue not in queues)
        self._ready_bytes = sum(message.size_bytes for message in self.ready)
        self._more.announce()

    def put_back(self, messages: Sequence[PoppedMessage]) -> None:
        """Put back messages that were not handled: they are the next again."""
        self.ready.extendleft(reversed(messages))
        self._ready_bytes += sum(message.size_bytes for message in messages)

    def close(self) -> None:
        """Tell all that wait for messages that none will come."""
        self._closed = True
        self.arrived.announce()

    async def keep(self, tasks: TaskGroup) -> None:
        """Pop from wherever the topics have queues, until cancelled."""
        while True:
            for topic in self._subscriptions:
                try:
                    route = await self._session.route(topic, "subscribe to")
                except NoRoute as error:
                    log.debug("no route yet", group=self._group, topic=topic, reason=str(error))
                    continue
                for name in dict.fromkeys(queue.broker_name for queue in route.readable):
                    if (topic, name) not in self._sources:
                        self._sources.add((topic, name))
                        tasks.start_soon(self._pop_from, topic, name)
            await anyio.sleep(limits.REBALANCE_POLL_S if self._sources else limits.HEARTBEAT_S / 4)

    async def _pop_from(self, topic: str, broker_name: str) -> None:
        failures = 0
        attempt_id = uuid4().hex
        init_mode: int | None = None
        while True:
            if self._lacking <= 0:
                await self._more.wait()
                continue
            try:
                if init_mode is None:
                    init_mode = await self._begin(topic, broker_name)
                await self._pop(topic, broker_name, attempt_id, init_mode)
                if self.paused:
                    await self.give_back()
                failures, attempt_id = 0, uuid4().hex
            except (RemotingError, ClientError, BadInput) as error:
                failures += 1
                named = {"group": self._group, "topic": topic, "broker": broker_name}
                log_failure(log, "pop failed", error, **named)
                refused = isinstance(error, Refused)
                await anyio.sleep(limits.REFUSED_RETRY_S if refused else backoff_s(failures))

    async def _begin(self, topic: str, broker_name: str) -> int:
        """Where the group begins there, if it has no offsets: at the first message of a topic that
        is younger than the group."""
        if self._init_mode == FROM_FIRST:
            return self._init_mode
        queue, finder = MessageQueue(topic, broker_name, 0), self._session.finder
        answer = await ask_place(finder, self._group, queue)
        younger = await is_younger(finder, self._group, queue, born_ms(answer))
        return FROM_FIRST if younger else self._init_mode

    async def _pop(self, topic: str, broker_name: str, attempt_id: str, init_mode: int) -> None:
        subscription = self._subscriptions[topic]
        count = -(-self._lacking // max(1, len(self._sources)))
        if count <= 0:
            return  # it was stopped meanwhile
        header = PopMessageHeader(
            consumer_group=self._group,
            topic=topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=min(count, limits.POP_MESSAGES_MAX),
            invisible_time=int(self.invisible_s * 1000),
            poll_time=int(limits.POP_SUSPEND_S * 1000),
            born_time=int(time.time() * 1000),
            init_mode=init_mode,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=self._ordered,
            attempt_id=attempt_id,
            max_msg_bytes=limits.PULL_BYTES_MAX,
        )
        command = Command(RequestCode.POP_MESSAGE, encode_header(header))
        began_s = anyio.current_time()
        # A cancellation waits for the answer: what that hands out is this consumer's to give back.
        with anyio.CancelScope(shield=True) as scope:
            self._asked.add(scope)
            try:
                answer = await self._session.finder.ask(
                    broker_name, command, limits.REQUEST_TIMEOUT_S, topic, limits.POP_SUSPEND_S
                )
                if answer.code == ResponseCode.SUCCESS:
                    self._accept(subscription, answer, broker_name, began_s)
                    return
            finally:
                self._asked.discard(scope)
                if self.stopped:
                    self.arrived.announce()
        if scope.cancelled_caught:
            return
        if answer.code in _NOTHING:
            if anyio.current_time() - began_s < limits.EMPTY_PULL_PAUSE_S:
                await anyio.sleep(limits.EMPTY_PULL_PAUSE_S)
            return
        if answer.code == ResponseCode.SYSTEM_BUSY:
            wait_s = retry_after_s(answer) or limits.REFUSED_RETRY_S
            log.warning("pop held back", broker=broker_name, reason=answer.remark, seconds=wait_s)
            await anyio.sleep(min(wait_s, limits.TURN_S_MAX))
            return
        what = f"popping {topic} for group {self._group!r}"
        raise Refused(what, f"the leader of {broker_name}", answer.code, answer.remark)

    def _accept(
        self, subscription: SubscriptionData, answer: Command, broker_name: str, asked_s: float
    ) -> None:
        """Take in the answer to a pop. Raises BadInput for an answer that can't be read."""
        header = decode_header(PopMessageResponseHeader, answer)
        if header.retry_max_times is not None:
            self.retry_max_times = header.retry_max_times
        handed_out = read_bits(header.redelivered or "", limits.POP_MESSAGES_MAX // 8)
        view = memoryview(answer.payload)
        try:
            starts = walk(view)
        except RecordError as error:
            raise BadInput(
                f"{broker_name} answered a pop with bytes that are not a message: {error}"
            ) from error
        now_s = anyio.current_time()
        tags = subscription.tags_set
        again = 0
        for number, (start, end) in enumerate(pairwise([*starts, len(view)])):
            message = PoppedMessage(
                view[start:end],
                broker_name,
                pop_time_ms=header.pop_time,
                invisible_s=self.invisible_s,
                since_s=now_s,
                asked_s=asked_s,
                ordered=self._ordered,
                handed_out=bool(handed_out >> number & 1),
            )
            again += self._measured is not None and message.redelivered
            if tags and message.tags not in tags:
                self._settling.ack_soon(message)  # its tag only has the same hash as a wanted one
            else:
                self.ready.append(message)
                self._ready_bytes += message.size_bytes
        if self._measured is not None and starts:
            self._measured.received(subscription.topic, len(starts), again)
        if any(message.priority > 0 for message in self.ready):
            self.ready = deque(sorted(self.ready, key=lambda each: -each.priority))
        self.arrived.announce()
