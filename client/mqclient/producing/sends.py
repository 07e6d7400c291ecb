"""Sending one message: awaited, handed over with or without waiting for room, not acknowledged."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final, TypeAlias

from anyio.lowlevel import checkpoint

from dledger.remoting.json_dialect import MessageQueue
from dledger.world import steady_s
from mqclient.arguments import check_seconds
from mqclient.connection.lifetime import Living
from mqclient.hooks import SendHooks, passed
from mqclient.models import Message, Selector, SendResult
from mqclient.producing.batch import Kind
from mqclient.producing.chunks.gathering import plain
from mqclient.producing.outbox import Outbox
from mqclient.producing.pending import PendingSend, PendingSlot
from mqclient.producing.sending.sender import GroupSender
from mqclient.signatures import checked, checks_itself, wrong

Where: TypeAlias = "tuple[int | None, str | None, Selector | None]"
"""The choice of a queue: `queue_id`, `key` or `selector`, as in `Producer.send`."""
ANYWHERE: Final[Where] = (None, None, None)


@checked
class Sends(Living):
    """A producer, as far as single messages go."""

    _outbox: Outbox
    _timeout_s: float
    _linger_s: float
    _hooks: SendHooks | None

    async def prepare(self, topic: str) -> tuple[MessageQueue, ...]:
        """Look up a topic's queues to send to, in RocketMQ's order. Raises NoRoute, after the
        producer's `timeout_s` if the servers are not up."""
        self.check_open()
        return await self._outbox.prepare(topic, self._timeout_s)

    @checks_itself
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
        """Send one message and wait until it is stored on a majority. Returns where it went.

        `key` picks the queue by its hash, and is stored with the message (`__SHARDINGKEY`), so that
        `Consumer.run(order="key")` keeps the order of each key. `selector` picks the queue by a
        function, `queue_id` directly; otherwise queues take turns. A message sent `alone`, with its
        own `unique_key` and the same queue, may be sent again after SendUnknown without a second
        copy. Raises NoRoute, BadMessage, BufferFull, SendFailed or SendUnknown.
        """
        if alone is not False and alone is not True:
            raise wrong("alone", alone, bool)
        where = (queue_id, key, selector)
        if self._hooks is not None and not passed():
            send = partial(self._send, where, timeout_s, alone)
            sent: SendResult = await self._hooks.around(message, send)
            return sent
        return await self._send(where, timeout_s, alone, message)

    @checks_itself
    async def send_soon(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> PendingSend:
        """Hand over one message, waiting for room if need be; the result tells the outcome."""
        where = (queue_id, key, selector)
        if self._hooks is not None and not passed():
            send = partial(self._soon, where, timeout_s)
            pending: PendingSend = await self._hooks.around(message, send)
            return pending
        return await self._soon(where, timeout_s, message)

    @checks_itself
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
        check_message(message)
        if self._hooks is not None:
            message = self._hooks.without_waiting(message, "send_nowait")
        self._check_room(message)
        chosen = self._outbox.choose(message, queue_id, key, selector)
        pending, sender = self._outbox.put(message, chosen, steady_s(), self._timeout(timeout_s))
        sender.wake()
        return pending

    def send_oneway(
        self, message: Message, *, queue_id: int | None = None, key: str | None = None
    ) -> None:
        """Hand over a message that is not acknowledged: fast, but lost if anything goes wrong.

        The topic's route must be known: call `prepare(topic)` once before. Raises BufferFull.
        """
        if self._hooks is not None:
            message = self._hooks.without_waiting(message, "send_oneway")
        self._check_room(message)
        chosen = self._outbox.choose(message, queue_id, key)
        _, sender = self._outbox.put(message, chosen, steady_s(), self._timeout_s, Kind.ONEWAY)
        sender.wake()

    async def _send(
        self,
        where: Where,
        timeout_s: float | None,
        alone: bool,
        message: Message,
    ) -> SendResult:
        """`send`, without what is done around it."""
        kind = Kind.ALONE if alone else Kind.SHARED
        pending, sender = await self._hand_over(message, where, timeout_s, kind)
        if self._linger_s == 0.0 or alone or message.delayed:
            sender.pump()
        else:
            sender.wake()
        return await pending.wait()

    def _soon(
        self, where: Where, timeout_s: float | None, message: Message
    ) -> Awaitable[PendingSend]:
        """`send_soon`, without what is done around it."""
        check_message(message)
        if self._outbox.gathers and where == ANYWHERE and plain(message):
            return self._gather(message, self._timeout(timeout_s))
        return self._put_soon(message, where, timeout_s)

    async def _put_soon(
        self, message: Message, where: Where, timeout_s: float | None
    ) -> PendingSend:
        pending, sender = await self._hand_over(message, where, timeout_s)
        sender.wake()
        if len(pending.batch.slots) == 1:
            # A batch has begun: give the event loop a turn, to send those that are full.
            await checkpoint()
        return pending

    async def _gather(self, message: Message, timeout_s: float) -> PendingSend:
        """Hand over a message that has nothing but a body."""
        self.check_open()
        if not self._outbox.ready(message.topic):
            await self._ready(message.topic, timeout_s)
        pending, sender = self._outbox.gather(message, timeout_s)
        if sender is not None:
            sender.wake()
            # A batch has begun: give the event loop a turn, to send those that are full.
            await checkpoint()
        return pending

    async def _hand_over(
        self, message: Message, where: Where, timeout_s: float | None, kind: Kind = Kind.SHARED
    ) -> tuple[PendingSlot, GroupSender]:
        """Put a message into the outbox, once there is room and its topic's route is known."""
        check_message(message)
        timeout_s = self._timeout(timeout_s)
        now_s = steady_s()
        await self._ready(message.topic, timeout_s, *where)
        chosen = self._outbox.choose(message, *where)
        return self._outbox.put(message, chosen, now_s, timeout_s, kind)

    async def _ready(self, topic: str, timeout_s: float, *where: object) -> None:
        """Wait until a message can be put into the outbox, and the outbox will send it. `where` is
        what chooses its queue, None if nothing does."""
        self.check_open()
        if not self._outbox.ready(topic):
            for_any = all(each is None for each in where)
            await self._outbox.wait_ready(topic, timeout_s, for_any=for_any)
            self.check_open()

    def _timeout(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else check_seconds("timeout_s", timeout_s)

    def _check_room(self, message: Message) -> None:
        self.check_open()
        self._outbox.check_room(message)


def check_message(message: Message) -> None:
    """Raises BadInput for what is none, or has no topic."""
    if not isinstance(message, Message):
        raise wrong("message", message, Message)
    if not isinstance(message.topic, str):
        raise wrong("topic", message.topic, str)
