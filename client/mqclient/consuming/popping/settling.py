"""Acknowledges popped messages, those of many deliveries in one request to each broker group; and
has messages hidden for another time.

While one request is on its way the next acks are gathered. An ack that nobody waits for is tried
again until the message's time is over; then the message comes again, maybe to another member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import anyio

from dledger.errors import DledgerError
from dledger.observe import get_logger
from dledger.remoting.bodies import BatchAck, BatchAckMessageBody, encode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    AckMessageResponseHeader,
    ChangeMessageInvisibletimeHeader,
    ChangeMessageInvisibletimeResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.receipts import write_bits
from mqclient import limits
from mqclient.connection.lifetime import together
from mqclient.connection.session import Session
from mqclient.consuming.popping.message import PoppedMessage, by_delivery
from mqclient.errors import ClientClosed

log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Ask:
    """Messages of one broker group that somebody waits for to be acknowledged."""

    messages: Sequence[PoppedMessage]
    done: anyio.Event = field(default_factory=anyio.Event)
    error: Exception | None = None
    #: How many of them, at most, were somebody else's, or done.
    late: int = 0

    def cut_off(self) -> None:
        """The consumer ends, and nobody will hear what became of it."""
        self.error = ClientClosed(
            "this PopConsumer was closed before the acknowledgement was answered: the messages may "
            "come again"
        )
        self.done.set()


class Settling:
    """Acks and changes of one consumer."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._asks: dict[str, list[_Ask]] = {}
        self._soon: dict[str, list[PoppedMessage]] = {}
        #: Called when acks have been sent.
        self.on_sent: Callable[[], None] = lambda: None
        self._sending: set[str] = set()
        self._idle = anyio.Event()

    @property
    def unsettled(self) -> int:
        """Messages whose ack waits to be sent."""
        return sum(map(len, self._soon.values()))

    def ack_soon(self, message: PoppedMessage) -> None:
        """Acknowledge it with the next request; nobody waits for that."""
        self._soon.setdefault(message.broker_name, []).append(message)
        self._send(message.broker_name)

    async def ack(self, messages: Iterable[PoppedMessage]) -> int:
        """Acknowledge, and wait until that is done; how many, at most, were somebody else's by
        then, or done. Raises a DledgerError if it may not be."""
        of_broker: dict[str, list[PoppedMessage]] = {}
        for message in messages:
            of_broker.setdefault(message.broker_name, []).append(message)
        asks = []
        for broker_name, some in of_broker.items():
            for first in range(0, len(some), limits.POP_ACKS_MAX):
                ask = _Ask(some[first : first + limits.POP_ACKS_MAX])
                asks.append(ask)
                self._asks.setdefault(broker_name, []).append(ask)
            self._send(broker_name)
        for ask in asks:
            await ask.done.wait()
        for ask in asks:
            if ask.error is not None:
                raise ask.error
        return sum(ask.late for ask in asks)

    async def flush(self) -> None:
        """Wait until everything that was acknowledged is sent; what the cancelled tasks of this
        consumer have left is sent here."""
        while self._sending:
            await self._idle.wait()
        while self._soon:
            for broker_name in [*self._soon]:
                await self._send_some(broker_name)
                if not self._soon.get(broker_name):
                    self._soon.pop(broker_name, None)

    def _send(self, broker_name: str) -> None:
        if broker_name not in self._sending:
            self._sending.add(broker_name)
            self._session.tasks.start_soon(self._keep_sending, broker_name)

    async def _keep_sending(self, broker_name: str) -> None:
        try:
            while self._soon.get(broker_name) or self._asks.get(broker_name):
                await self._send_some(broker_name)
        finally:
            self._sending.discard(broker_name)
            for ask in self._asks.pop(broker_name, ()):  # there are some if this was cancelled
                ask.cut_off()
            idle, self._idle = self._idle, anyio.Event()
            idle.set()

    async def _send_some(self, broker_name: str) -> None:
        asks = self._asks.pop(broker_name, [])
        soon = self._soon.pop(broker_name, [])
        if len(soon) > limits.POP_ACKS_MAX:
            self._soon[broker_name] = soon[limits.POP_ACKS_MAX :]
            soon = soon[: limits.POP_ACKS_MAX]
        if asks:
            later = asks[1:]
            asks = asks[:1]
            if later:
                self._asks[broker_name] = later
        try:
            late = await self._send_batch(
                broker_name, [*soon, *(m for ask in asks for m in ask.messages)]
            )
            for ask in asks:
                ask.late = min(late, len(ask.messages))
        except DledgerError as error:
            for ask in asks:
                ask.error = error
            self._try_again(broker_name, soon, error)
            await anyio.sleep(limits.FIND_BACKOFF_MAX_S)
        except BaseException:
            self._soon.setdefault(broker_name, []).extend(
                soon
            )  # an acknowledgement may be repeated
            for ask in asks:
                ask.cut_off()
            raise
        finally:
            for ask in asks:
                ask.done.set()
            self.on_sent()

    def _try_again(self, broker_name: str, soon: list[PoppedMessage], error: DledgerError) -> None:
        now_s = anyio.current_time()
        left = [message for message in soon if message.until_s > now_s]
        if left:
            self._soon.setdefault(broker_name, []).extend(left)
        log.warning(
            "messages not acknowledged",
            group=self._group,
            broker=broker_name,
            given_up=len(soon) - len(left),
            tried_again=len(left),
            reason=str(error),
        )

    async def _send_batch(self, broker_name: str, messages: list[PoppedMessage]) -> int:
        """Send one request; how many of its messages were late."""
        acks = [
            BatchAck(
                c=self._group,
                t=queue.topic,
                r="0",
                so=some[0].queue_offset,
                q=queue.queue_id,
                pt=some[0].pop_time_ms,
                b=write_bits(bits),
            )
            for queue, some, bits in by_delivery(messages)
        ]
        body = encode_body(BatchAckMessageBody(broker_name, acks))
        command = Command(RequestCode.BATCH_ACK_MESSAGE, {}, body)
        what = f"acknowledging {len(messages)} messages for group {self._group!r}"
        topic = messages[0].record.topic
        answer = await self._session.finder.granted(
            what, broker_name, topic, command, limits.REQUEST_TIMEOUT_S
        )
        late = decode_header(AckMessageResponseHeader, answer).late
        if late:
            # Handed out again, or counted already by a try whose answer was lost.
            log.info("late acks", group=self._group, broker=broker_name, messages=late)
        return late

    async def hide(
        self, messages: Iterable[PoppedMessage], for_s: float, *, keep: bool, suspend: bool = False
    ) -> int:
        """Hide messages from now on for a time. Returns how many were another's, or done.

        With `keep` they stay this consumer's, else they are given up. Raises a DledgerError.
        """
        late: list[int] = []

        async def hide(broker_name: str, some: list[PoppedMessage], bits: int) -> None:
            late.append(await self._hide(broker_name, some, bits, for_s, keep, suspend))

        async with together() as tasks:
            for queue, some, bits in by_delivery(messages):
                tasks.start_soon(hide, queue.broker_name, some, bits)
        return sum(late)

    async def _hide(
        self,
        broker_name: str,
        messages: list[PoppedMessage],
        bits: int,
        for_s: float,
        keep: bool,
        suspend: bool,
    ) -> int:
        first = messages[0]
        header = ChangeMessageInvisibletimeHeader(
            consumer_group=self._group,
            topic=first.record.topic,
            queue_id=first.queue_id,
            extra_info=first.receipt,
            offset=first.queue_offset,
            invisible_time=int(for_s * 1000),
            suspend=suspend,
            bits=write_bits(bits),
            keep=keep,
        )
        command = Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, encode_header(header))
        what = f"hiding {len(messages)} messages of group {self._group!r} for {for_s} s"
        began_s = anyio.current_time()
        answer = await self._session.finder.granted(
            what, broker_name, first.record.topic, command, limits.REQUEST_TIMEOUT_S
        )
        changed = decode_header(ChangeMessageInvisibletimeResponseHeader, answer)
        if keep and not changed.late:
            for message in messages:
                message.until_s = began_s + for_s
        return changed.late or 0
