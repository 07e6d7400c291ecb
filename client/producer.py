"""Sending messages: `async with Producer("127.0.0.1:9876", group="PG") as producer: ...`.

`send` returns where the message went. `send_soon` hands over a message and returns at once, waiting
only while the producer holds as much as it may; `send_nowait` never waits. All of them gather
messages into batches by themselves: what arrives while a batch is on its way leaves with the next.
Leaving the block sends and awaits everything handed over.

Messages with the same key go to the same queue and keep the order in which they were handed over,
across retries and new leaders. A message is retried until its own deadline, and stored at most
once: brokers recognise a batch that they have seen. Only where no answer came until the deadline is
the outcome unknown (SendUnknown); any other failure is definite.

`request` sends a message and waits for what its consumer answers with `reply`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import anyio
from anyio.lowlevel import checkpoint

from client import limits
from client.batching import Accumulator, Budget
from client.encoding import Encoder
from client.errors import BadMessage, BufferFull, NoRoute, SendFailed
from client.identity import UniqueKeys
from client.models import Message, ReceivedMessage, Reply, Selector, SendResult
from client.pending import PendingSend
from client.publishing import Publisher
from client.replies import Questions
from client.sender import GroupSender
from client.session import Session
from client.signals import Broadcast
from dledger.remoting.bodies import HeartbeatData, ProducerData
from dledger.remoting.command import Command
from dledger.remoting.headers import UnregisterClientHeader
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.names import check_group_name


class Producer:
    """Sends messages of one producer group.

    `timeout_s` is a send's deadline unless the call says otherwise. `linger_s` makes a batch wait
    for company although it could leave. At most `pending_max` messages or `pending_bytes_max` bytes
    of records are held at a time.
    """

    def __init__(
        self,
        namesrv_addr: str = "127.0.0.1:9876",
        group: str = "DEFAULT_PRODUCER",
        *,
        timeout_s: float = limits.SEND_TIMEOUT_S,
        linger_s: float = 0.0,
        batch_bytes_max: int = limits.BATCH_BYTES_MAX,
        pending_max: int = limits.PENDING_MESSAGES_MAX,
        pending_bytes_max: int = limits.PENDING_BYTES_MAX,
    ) -> None:
        check_group_name(group)
        self.group = group
        self._timeout_s = timeout_s
        self._linger_s = linger_s
        self._batch_bytes_max = min(batch_bytes_max, limits.BATCH_BYTES_MAX)
        self._budget = Budget(pending_max, pending_bytes_max)
        self._session = Session(namesrv_addr, self._asked)
        self._questions = Questions(self._session, self.group, self._heartbeat)
        self._session.on_route_change.append(self._route_changed)
        self._encoder = Encoder(UniqueKeys(self._session.host), self._session.host)
        self._publishers: dict[str, Publisher] = {}
        self._senders: dict[str, GroupSender] = {}
        self._room = Broadcast()
        self._open = False

    @property
    def client_id(self) -> str:
        """How brokers know this producer."""
        return self._session.client_id

    @property
    def pending(self) -> int:
        """Messages handed over and not settled yet."""
        return self._budget.messages

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        self._session.tasks.start_soon(self._session.keep_beating, self._heartbeat)
        self._open = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Send and await what was handed over, within the messages' own deadlines."""
        self._open = False
        try:
            if exc_type is None:
                await self._drain()
            with anyio.move_on_after(limits.HEARTBEAT_TIMEOUT_S, shield=True):
                await self._session.leave(
                    UnregisterClientHeader(client_id=self.client_id, producer_group=self.group)
                )
        finally:
            await self._session.__aexit__(exc_type, exc, traceback)
        return None

    async def prepare(self, topic: str) -> tuple[MessageQueue, ...]:
        """Look up a topic's queues to send to, in RocketMQ's order. Raises NoRoute."""
        publisher = self._publishers.get(topic)
        if publisher is None:
            route = await self._session.route(topic, "publish to")
            if not route.writable:
                raise NoRoute(topic, "publish to", "its route has no writable queue")
            publisher = self._publish_to(topic, route.writable)
        return publisher.queues

    async def send(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
        alone: bool = False,
    ) -> SendResult:
        """Send one message and wait until it is stored on a majority; where it went.

        `key` picks the queue by its hash, `selector` by a function, `queue_id` directly; otherwise
        queues take turns. A message sent `alone`, with its own `unique_key` and the same queue, may
        be sent again after SendUnknown without a second copy. Raises NoRoute, BadMessage,
        BufferFull, SendFailed or SendUnknown.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        now_s = time.monotonic()
        if message.topic not in self._publishers or self._budget.full:
            await self._ready(message.topic, timeout_s)
        chosen = self._publisher(message.topic).choose(message, queue_id, key, selector)
        pending, sender = self._put(message, chosen, now_s, timeout_s, alone)
        if self._linger_s == 0.0 or alone:
            sender.pump()
        return await pending.wait()

    async def send_soon(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> PendingSend:
        """Hand over one message, waiting for room if need be; its outcome is the result's."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        now_s = time.monotonic()
        if message.topic not in self._publishers or self._budget.full:
            await self._ready(message.topic, timeout_s)
        chosen = self._publisher(message.topic).choose(message, queue_id, key, selector)
        pending, sender = self._put(message, chosen, now_s, timeout_s)
        sender.wake()
        if len(pending.batch.slots) == 1:
            # A batch was begun: let the event loop have a turn, to send those that are full.
            await checkpoint()
        return pending

    def send_nowait(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> PendingSend:
        """Hand over one message without waiting. Raises BufferFull if there is no room.

        The topic's route must be known: call `prepare(topic)` once before.
        """
        if self._budget.full:
            raise BufferFull(
                f"{self._budget.messages} messages of {self._budget.size_bytes} bytes wait for "
                "acknowledgement: use send_soon, or wait for earlier messages",
                message.topic,
                "",
                message.unique_key or "without a key yet",
            )
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        chosen = self._publisher(message.topic).choose(message, queue_id, key, selector)
        pending, sender = self._put(message, chosen, time.monotonic(), timeout_s)
        sender.wake()
        return pending

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic to one queue, stored all or none, next to each other.

        Raises BadMessage if they are of several topics or too large (`limits.SEND_BATCH_...`).
        """
        if not messages:
            return []
        topic = messages[0].topic
        if any(message.topic != topic for message in messages):
            raise BadMessage(f"a batch must have one topic: {sorted({m.topic for m in messages})}")
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + timeout_s
        await self._ready(topic, timeout_s)
        chosen = self._publisher(topic).choose(messages[0], queue_id, key, selector)
        encoded = [self._encoder.encode(message, chosen.queue_id) for message in messages]
        records = [record for _, record in encoded]
        size_bytes = sum(map(len, records))
        if size_bytes > limits.SEND_BATCH_BYTES_MAX or len(records) > limits.BATCH_RECORDS_MAX:
            raise BadMessage(
                f"a batch of {len(records)} messages and {size_bytes} bytes to topic {topic!r} is "
                f"above {limits.BATCH_RECORDS_MAX} messages or {limits.SEND_BATCH_BYTES_MAX} bytes"
            )
        slots = [PendingSend(unique_key, deadline_s) for unique_key, _ in encoded]
        sender = self._sender(chosen.broker_name)
        sender.accumulator.add_together(slots, topic, chosen.queue_id, records, time.monotonic())
        sender.pump()
        return [await slot.wait() for slot in slots]

    def send_oneway(
        self, message: Message, *, queue_id: int | None = None, key: str | None = None
    ) -> None:
        """Hand over a message that nobody acknowledges: fast, and lost if anything goes wrong.

        The topic's route must be known: call `prepare(topic)` once before. Raises BufferFull.
        """
        if self._budget.full:
            raise BufferFull("too much is pending", message.topic, "", message.unique_key)
        chosen = self._publisher(message.topic).choose(message, queue_id, key, None)
        unique_key, record = self._encoder.encode(message, chosen.queue_id)
        now_s = time.monotonic()
        slot = PendingSend(unique_key, now_s + self._timeout_s)
        sender = self._sender(chosen.broker_name)
        sender.accumulator.add_oneway(slot, message.topic, chosen.queue_id, record, now_s)
        sender.wake()

    async def request(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """Send one message, and wait until somebody who consumes it replies (`reply`).

        `timeout_s` is for all of it. Raises NoReply, and whatever `send` does.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        await self._ready(message.topic, timeout_s)

        async def send(asking: Message, left_s: float) -> SendResult:
            return await self.send(
                asking, queue_id=queue_id, key=key, selector=selector, timeout_s=left_s
            )

        return await self._questions.ask(message, send, timeout_s)

    async def reply(
        self,
        request: ReceivedMessage,
        body: bytes,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Reply to a message that was sent by `request`; returns when who asked has it.

        Raises BadMessage if it was not, Refused if who asked is gone, NoLeader, or the
        RemotingError of the last try.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        await self._questions.reply(request, body, properties or {}, timeout_s)

    async def flush(self) -> None:
        """Wait until everything handed over so far is settled, lingering batches included."""
        for sender in self._senders.values():
            sender.accumulator.flushing = True
            sender.pump()
        while self._budget.messages:
            await self._room.wait()
        for sender in self._senders.values():
            sender.accumulator.flushing = False

    async def _drain(self) -> None:
        try:
            await self.flush()
        finally:
            for sender in self._senders.values():
                for batch in tuple(sender.accumulator.batches()):
                    batch.fail(SendFailed, "the producer was closed")
                    batch.settle()

    async def _ready(self, topic: str, timeout_s: float) -> None:
        """Wait until the topic's route is known and there is room for a message."""
        with anyio.move_on_after(timeout_s) as waiting:
            await self.prepare(topic)
            while self._budget.full:
                await self._room.wait()
        if waiting.cancelled_caught:
            raise BufferFull(f"no room within {timeout_s:.2f} s", topic, "", "not sent")

    def _publisher(self, topic: str) -> Publisher:
        publisher = self._publishers.get(topic)
        if publisher is None:
            raise NoRoute(topic, "publish to", "not looked up: await prepare(topic) first")
        return publisher

    def _put(
        self,
        message: Message,
        queue: MessageQueue,
        now_s: float,
        timeout_s: float,
        alone: bool = False,
    ) -> tuple[PendingSend, GroupSender]:
        """Encode a message into a batch of the queue's broker group."""
        queue_id = queue.queue_id
        unique_key, record = self._encoder.encode(message, queue_id)
        pending = PendingSend(unique_key, now_s + timeout_s)
        sender = self._senders.get(queue.broker_name) or self._sender(queue.broker_name)
        add = sender.accumulator.add_alone if alone else sender.accumulator.add
        add(pending, queue.topic, queue_id, record, now_s)
        return pending, sender

    def _sender(self, broker_name: str) -> GroupSender:
        sender = self._senders.get(broker_name)
        if sender is None:
            tasks = self._session.tasks
            accumulator = Accumulator(
                broker_name,
                self._budget,
                linger_s=self._linger_s,
                batch_bytes_max=self._batch_bytes_max,
            )
            sender = GroupSender(accumulator, self._session.finder, self.group, self._room.announce)
            self._senders[broker_name] = sender
            tasks.start_soon(sender.keep_time)
            tasks.start_soon(sender.keep_leader)
        return sender

    def _publish_to(self, topic: str, queues: tuple[MessageQueue, ...]) -> Publisher:
        turn = random.randrange(len(queues))
        publisher = Publisher(topic, queues, self._session.routes.leader, turn)
        self._publishers[topic] = publisher
        return publisher

    def _route_changed(self, topic: str) -> None:
        route = self._session.routes.route(topic)
        if topic in self._publishers and route is not None and route.writable:
            self._publish_to(topic, route.writable)

    def _asked(self, _: str, command: Command) -> Command | None:
        return self._questions.take(command)

    def _heartbeat(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=self.group)],
            consumer_data_set=[],
        )
