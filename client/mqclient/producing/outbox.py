"""Holds a producer's messages until their outcomes are known.

A message gets its queue, is encoded, and put into a batch of the queue's broker group (`batching`).
That group's sender sends the batch to the leader (`sender`). If it can't, and the caller did not
choose the queue, the message moves to another group's queue, with the same unique key. One budget
bounds what is held for all groups: a caller that finds it used up waits here for room.

All ways lead through two: `_put_one` takes a message, whatever its kind, and `_put_many` what
becomes one entry. `gather` is the way of single messages that are so plain that they become many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import anyio

from dledger.observe import get_logger
from dledger.remoting.codes import VERSION_ANY_DELAY
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.record import with_queue
from dledger.world import steady_s
from mqclient import limits
from mqclient.compression import Compressor
from mqclient.connection.identity import UniqueKeys
from mqclient.connection.session import Session
from mqclient.connection.signals import Broadcast
from mqclient.errors import (
    BadMessage,
    BufferFull,
    SendFailed,
    SendUnknown,
)
from mqclient.models import Message, Selector
from mqclient.producing.batch import Batch, Kind, Slot, Unencoded
from mqclient.producing.batching import Budget
from mqclient.producing.chunks.gathering import Gathering, Growing
from mqclient.producing.chunks.many import Chunk, check_bodies, chunks
from mqclient.producing.encoding import Encoder
from mqclient.producing.naming import Named
from mqclient.producing.pending import PendingSend, PendingSlot
from mqclient.producing.sending.sender import GroupSender
from mqclient.producing.sending.senders import Senders
from mqclient.producing.topics import Topics

if TYPE_CHECKING:
    from mqclient.producing.measuring import Measured

log = get_logger(__name__)


_WITHOUT_NUMBER = {
    Kind.DELAYED: "a delay",
    Kind.HALF: "a transaction that a checker ends",
    Kind.ONEWAY: "no acknowledgement",
}
"""The kinds that brokers store without a named producer's number."""


class Choice(NamedTuple):
    """The queue of a message, how often it may move to another, and the key that it was chosen
    by."""

    queue: MessageQueue
    moves_max: int
    key: str | None = None


class Outbox:
    """The batches of one producer, by broker group, and the queues that it knows, by topic."""

    def __init__(
        self,
        session: Session,
        producer_group: str,
        budget: Budget,
        *,
        linger_s: float,
        batch_bytes_max: int,
        at_least_once: bool,
        compressor: Compressor | None = None,
        named: Named | None = None,
        measured: Measured | None = None,
    ) -> None:
        self.budget = budget
        self.measured = measured
        self.gathers = compressor is None
        """Whether plain messages can be gathered: their records' sizes are known beforehand."""
        self._session = session
        self._producer_group = producer_group
        self._named = named
        self._compressor = compressor
        self._encoder: Encoder
        self._gatherings: dict[str, Gathering] = {}
        self._room = Broadcast()
        self._senders = Senders(
            session,
            producer_group,
            budget,
            self._room.announce,
            self._move,
            linger_s=linger_s,
            batch_bytes_max=batch_bytes_max,
            at_least_once=at_least_once,
            named=named,
            measured=measured,
        )
        self._topics = Topics(session, self._senders.serves)
        self._settled = self._topics.settled

    def begin(self) -> None:
        """Make the identity of the messages' keys: where the producer is opened, after any fork."""
        host = self._session.host
        self._encoder = Encoder(UniqueKeys(host), host, self._compressor)

    async def prepare(self, topic: str, timeout_s: float) -> tuple[MessageQueue, ...]:
        """Look up a topic's queues to send to, in RocketMQ's order; for `timeout_s` wait for
        servers that are about to start. Raises NoRoute."""
        await self._topics.look_up(topic, timeout_s, for_any=False)
        return self._topics.publisher(topic).queues

    def ready(self, topic: str) -> bool:
        """Whether the topic's route is known and there is room for a message."""
        return topic in self._settled and not self.budget.full

    async def wait_ready(self, topic: str, timeout_s: float, *, for_any: bool) -> None:
        """Wait until `ready`; a message `for_any` queue goes while the route may lack a group.

        Raises NoRoute or BufferFull after `timeout_s`.
        """
        deadline_s = steady_s() + timeout_s
        await self._topics.look_up(topic, timeout_s, for_any=for_any)
        with anyio.move_on_after(max(0.0, deadline_s - steady_s())) as waiting:
            while self.budget.full:
                await self._room.wait()
        if waiting.cancelled_caught:
            raise BufferFull(f"no room within {timeout_s:.2f} s", topic, "", "not sent")

    def check_room(self, message: Message) -> None:
        """Raises BufferFull if there is no room for a message."""
        budget = self.budget
        if budget.full:
            raise BufferFull(
                f"{budget.messages} messages of {budget.size_bytes} bytes wait for "
                "acknowledgement: use send_soon, or wait for earlier messages",
                message.topic,
                "",
                message.unique_key or "without a key yet",
            )

    def choose(
        self,
        message: Message,
        queue_id: int | None,
        key: str | None,
        selector: Selector | None = None,
    ) -> Choice:
        """The queue for `message`, and how often it may move to another. Raises NoRoute or
        BadMessage."""
        by_turn = (queue_id, key, selector, message.priority) == (None, None, None, None)
        publisher = self._topics.publisher(message.topic, for_any=by_turn)
        queue = publisher.choose(message, queue_id, key, selector)
        return Choice(queue, limits.MOVES_MAX if by_turn else 0, key)

    def put(
        self,
        message: Message,
        choice: Choice,
        now_s: float,
        timeout_s: float,
        kind: Kind = Kind.SHARED,
    ) -> tuple[PendingSlot, GroupSender]:
        """Encode a message into a batch of the queue's broker group; the sender is to be woken.

        Raises BadMessage.
        """
        queue = choice.queue
        queue_id = queue.queue_id
        if message.delayed or kind is not Kind.SHARED:
            kind = self._allowed(message, queue.broker_name, kind)
        half_of = self._producer_group if kind is Kind.HALF else ""
        unique_key, record = self._encoder.encode(message, queue_id, half_of, choice.key)
        pending = PendingSlot(unique_key, now_s + timeout_s, choice.moves_max)
        return pending, self._put_one(pending, queue, record, now_s, kind)

    def _allowed(self, message: Message, broker_name: str, kind: Kind) -> Kind:
        """The kind of a message that is not a plain one. Raises BadMessage if the brokers, or a
        producer with a name, can't send it."""
        if message.delayed:
            if kind is Kind.ONEWAY:
                _refuse_delays([message], "a delay needs an acknowledgement: use send")
            if 0 < self._session.routes.stock_version(broker_name) < VERSION_ANY_DELAY:
                raise BadMessage(
                    f"a message to topic {message.topic!r} with a delay: the brokers of "
                    f"{broker_name} are of RocketMQ 4, which delays by fixed levels only"
                )
            kind = kind if kind is Kind.HALF else Kind.DELAYED  # encoding refuses a delayed half
        if self._named is not None and kind in _WITHOUT_NUMBER:
            raise BadMessage(
                f"a message to topic {message.topic!r} with {_WITHOUT_NUMBER[kind]}, by producer "
                f"{self._named.name!r}: a producer with a name stores each message at once, and "
                "once. Use one without a name"
            )
        return kind

    def gather(self, message: Message, timeout_s: float) -> tuple[PendingSend, GroupSender | None]:
        """Take in a plain message whose queue nobody chose; the sender if it has to be woken."""
        now_s = steady_s()
        gathering = self._gatherings.get(message.topic)
        if gathering is not None and gathering.takes(message.body, now_s, timeout_s):
            return gathering.add(message.body), None
        queue = None if gathering is None else gathering.open_queue
        gathering, sender = self._begin_gathering(message, queue, now_s, timeout_s)
        return gathering.first, sender if gathering.begins_a_batch else None

    def _begin_gathering(
        self, message: Message, queue: MessageQueue | None, now_s: float, timeout_s: float
    ) -> tuple[Gathering, GroupSender]:
        """A new chunk, in the queue whose batch still waits, or in the next in turn.

        Were each chunk in a queue of its own, a producer with many topics would fill none of
        their batches.
        """
        topic, moves_max = message.topic, limits.MOVES_MAX
        if queue is None or not self._senders.serves(queue.broker_name):
            queue, moves_max, _ = self.choose(message, None, None)
        pattern = self._encoder.pattern(message, queue.queue_id, limits.BATCH_RECORDS_MAX)
        closes_s = now_s + limits.GATHER_FOR_S
        chunk = Chunk.of(pattern, closes_s + timeout_s, moves_max)
        growing = Growing(chunk, pattern, self._encoder, message.body)
        sender = self._put_many([chunk], queue, [queue.queue_id], [growing], now_s)
        bytes_max = self._senders.bytes_max(queue.broker_name)
        gathering = Gathering(growing, queue, self.budget, bytes_max, closes_s, timeout_s)
        growing.on_encoded = partial(self._gathered, topic, gathering)
        self._gatherings[topic] = gathering
        return gathering, sender

    def _gathered(self, topic: str, gathering: Gathering) -> None:
        """A chunk was encoded, and grows no more."""
        if self._gatherings.get(topic) is gathering:
            del self._gatherings[topic]

    def choose_each(
        self,
        messages: Sequence[Message],
        queue_ids: Sequence[int] | None,
        keys: Sequence[str] | None,
    ) -> list[Choice]:
        """A queue for each of a topic's messages, all of one group. Raises NoRoute or
        BadMessage."""
        queues = self._topics.publisher(messages[0].topic).choose_each(
            len(messages), queue_ids, keys
        )
        if keys is None:
            return [Choice(queue, 0) for queue in queues]
        return [Choice(queue, 0, key) for queue, key in zip(queues, keys, strict=True)]

    def put_together(
        self, messages: Sequence[Message], choices: Sequence[Choice], timeout_s: float
    ) -> list[PendingSlot]:
        """Encode messages of one topic, for queues of one group, into one batch, and send it.

        Raises BadMessage.
        """
        _refuse_delays(messages, "a batch can't be delayed: send its messages one by one")
        now_s = steady_s()
        queue = choices[0].queue
        queue_ids = [choice.queue.queue_id for choice in choices]
        if len(set(queue_ids)) > 1 and self._session.routes.stock_version(queue.broker_name):
            raise BadMessage(
                f"a batch to topic {queue.topic!r} for {len(set(queue_ids))} queues: RocketMQ's "
                "brokers take a batch for one queue"
            )
        encoded = [
            self._encoder.encode(message, choice.queue.queue_id, "", choice.key)
            for message, choice in zip(messages, choices, strict=True)
        ]
        records = [record for _, record in encoded]
        size_bytes = sum(map(len, records))
        if size_bytes > limits.SEND_BATCH_BYTES_MAX or len(records) > limits.BATCH_RECORDS_MAX:
            raise BadMessage(
                f"a batch of {len(records)} messages and {size_bytes} bytes to topic "
                f"{queue.topic!r} is above {limits.BATCH_RECORDS_MAX} messages or "
                f"{limits.SEND_BATCH_BYTES_MAX} bytes"
            )
        deadline_s = now_s + timeout_s
        moves_max = choices[0].moves_max
        slots = [PendingSlot(key, deadline_s, moves_max) for key, _ in encoded]
        self._put_many(slots, queue, queue_ids, records, now_s).pump()
        return slots

    def chunks(
        self, like: Message, bodies: Sequence[bytes], key: str | None
    ) -> Iterator[Sequence[bytes]]:
        """Cut many bodies into what a batch takes. Raises BadMessage for what none takes."""
        _refuse_delays([like], "many can't be delayed: send them one by one")
        check_bodies(like.topic, bodies)
        overhead_bytes = self._encoder.overhead_bytes(like, key)
        size = partial(self._chunk_bytes, like.topic)
        return chunks(bodies, overhead_bytes, size, limits.BATCH_RECORDS_MAX)

    def _chunk_bytes(self, topic: str) -> int:
        """How much of one call goes into a batch: all lanes shall have some of what is there."""
        names = {queue.broker_name for queue in self._topics.publisher(topic, for_any=True).queues}
        bytes_max = min(map(self._senders.bytes_max, names))
        share_bytes = self.budget.size_bytes // limits.BATCHES_IN_FLIGHT_PER_GROUP_MAX
        return min(bytes_max, max(limits.CHUNK_BYTES_MIN, share_bytes))

    def put_chunk(
        self, like: Message, bodies: Sequence[bytes], choice: Choice, timeout_s: float
    ) -> Chunk:
        """Encode bodies that fit into one batch, and send them."""
        now_s = steady_s()
        queue = choice.queue
        many = self._encoder.encode_many(like, queue.queue_id, bodies, choice.key)
        chunk = Chunk(many.key_front, many.numbers, many.ends, now_s + timeout_s, choice.moves_max)
        self._put_many([chunk], queue, [queue.queue_id], [many.records], now_s).pump()
        return chunk

    def _put_one(
        self, slot: Slot, queue: MessageQueue, record: bytes, now_s: float, kind: Kind
    ) -> GroupSender:
        """Put one record into a batch of its kind; the sender is to be woken."""
        sender = self._senders.of(queue.broker_name, kind)
        sender.accumulator.add(slot, queue.topic, queue.queue_id, record, now_s, kind)
        return sender

    def _put_many(
        self,
        slots: Sequence[Slot],
        queue: MessageQueue,
        queue_ids: Sequence[int],
        pieces: Sequence[bytes | Unencoded],
        now_s: float,
    ) -> GroupSender:
        """Put what becomes one entry of the log of this queue's broker group into a batch; the
        sender is to be woken."""
        sender = self._senders.of(queue.broker_name)
        sender.accumulator.add_together(slots, queue.topic, queue_ids, pieces, now_s)
        return sender

    async def flush(self) -> None:
        """Wait until everything handed over before this call is settled, lingering batches
        included. It ends although others go on sending."""
        senders = [*self._senders]
        waited_for = [slot for batch in self._senders.batches() for slot in batch.slots]
        for sender in senders:
            sender.accumulator.flushes += 1
            sender.pump()
        try:
            while waited_for:
                if waited_for[-1].settled:
                    waited_for.pop()
                else:
                    await self._room.wait()
        finally:
            for sender in senders:
                sender.accumulator.flushes -= 1

    async def drain(self) -> None:
        """`flush` for the last time: if that is cancelled, the remaining messages have failed."""
        try:
            await self.flush()
        finally:
            self.abandon()

    def stay_behind(self, reason: str) -> None:
        """Settle this copy's sends in a fork: their outcomes are the other process's, and the error
        says so."""
        for batch in self._senders.batches():
            batch.fail(SendUnknown, reason)
            with suppress(Exception):  # an event loop that waited is not here
                batch.settle()
        self.budget.clear()

    def abandon(self) -> None:
        """Fail all remaining messages, and wake the callers that wait for them, or for room."""
        for batch in self._senders.batches():
            error_type = SendUnknown if batch.delivery.maybe_stored else SendFailed
            failed = batch.fail(error_type, "the producer was closed")
            if self.measured is not None:
                self.measured.failed(failed)
            batch.settle()
        self.budget.clear()
        self._room.announce()

    def _move(self, sender: GroupSender, batch: Batch) -> None:
        """Move the messages that may leave a batch to another group's sender, if one serves.

        Messages of one queue stay together, and in order.
        """
        publisher = self._topics.known(batch.topic)
        if publisher is None or publisher.elsewhere(batch.broker_name) is None:
            return
        now_s = steady_s()
        for slots, records in sender.accumulator.withdraw(batch):
            queue = publisher.elsewhere(batch.broker_name)
            assert queue is not None, "looked at a moment ago"
            moved = [with_queue(record, queue.queue_id) for record in records]
            log.info(
                "messages go to another group",
                topic=batch.topic,
                left=batch.broker_name,
                broker=queue.broker_name,
                messages=len(slots),
            )
            if batch.kind is Kind.SHARED:
                queue_ids = [queue.queue_id] * len(slots)
                self._put_many(slots, queue, queue_ids, moved, now_s).wake()
            else:
                [slot], [record] = slots, moved
                self._put_one(slot, queue, record, now_s, batch.kind).wake()
        sender.moved(batch)


def _refuse_delays(messages: Sequence[Message], reason: str) -> None:
    for message in messages:
        if message.delayed:
            raise BadMessage(f"a message to topic {message.topic!r}: {reason}")
