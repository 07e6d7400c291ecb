"""`async with consumer.transaction(producer) as transaction:` outputs and offsets, both or neither.

::

    messages = await consumer.poll(100, one_group=True)
    async with consumer.transaction(producer) as transaction:
        for message in messages:
            await transaction.send(Message("Bills", bill_for(message)))

Messages sent in the block are kept here until the block ends. Then one request takes these outputs,
and the offsets of all messages that the consumer has handed out and not committed, to the broker
group of those messages, which stores everything in one entry of its log. The offsets say where the
consumer began: if the group's offset is another one by then, another member has processed the
messages, and nothing is stored. So two members that both have a message in hand for a moment, as in
a rebalance, write its outputs once.

If the block raises, or nothing was stored, the messages come again: reading goes back to the
group's offset. Leaving it raises

* OffsetsMoved: others have processed the messages, or the group was reset;
* ProducerFenced: a newer instance has the producer's name, and this one must end;
* TransactionUnanswered: everything is stored or nothing; messages that come again are not stored;
* NotAssigned: another member has a queue by now; AcrossGroups: it would not be one entry;
* Refused, or another ClientError or RemotingError: the request could not be sent, or was declined.

After each of these except TransactionUnanswered, nothing is stored.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, Protocol

from dledger.errors import BadInput, RemotingError
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    WriteOnceHeader,
    WriteOnceResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from mqclient.compression import Compressor
from mqclient.connection.identity import UniqueKeys
from mqclient.connection.session import Session
from mqclient.consuming.fetching import QueueFetcher
from mqclient.consuming.handout import HandOut
from mqclient.consuming.sharing.locks import Locks
from mqclient.consuming.sharing.offsets import BrokerOffsets, Offsets
from mqclient.consuming.transacting.outputs import Outputs
from mqclient.errors import (
    AcrossGroups,
    BadMessage,
    ClientError,
    NotAssigned,
    OffsetsMoved,
    ProducerFenced,
    Refused,
    TransactionClosed,
    TransactionUnanswered,
    not_writable,
)
from mqclient.models import Message, Selector, SendResult
from mqclient.producing.encoding import Encoder
from mqclient.producing.naming import Claim, Named
from mqclient.producing.publishing import Publisher
from mqclient.producing.sends import check_message


class Writes(Protocol):
    """The parts of a producer that a transaction needs."""

    @property
    def named(self) -> Named | None:
        """The name of the producer that writes."""

    @property
    def compressor(self) -> Compressor | None:
        """The compressor of the producer that writes."""

    def check_open(self) -> None:
        """Raise ClientClosed unless the producer is open."""


class _Covered(NamedTuple):
    """A queue whose messages were handed out: the group's offset before and after them."""

    queue: MessageQueue
    fetcher: QueueFetcher
    begin: int
    end: int


class Transacting:
    """The parts that the transactions of one consumer share."""

    def __init__(
        self,
        session: Session,
        group: str | None,
        offsets: Offsets,
        handout: HandOut,
        readings: Callable[[], Mapping[MessageQueue, QueueFetcher]],
        locks: Locks | None,
    ) -> None:
        self.session = session
        self.group = group or ""
        self._offsets = offsets
        self._handout = handout
        self._readings = readings
        self._locks = locks
        self._claims: dict[tuple[str, str], Claim] = {}
        self._writes_by: set[Named] = set()

    @asynccontextmanager
    async def block(
        self, writes: Writes, timeout_s: float, *, auto_commit: bool
    ) -> AsyncIterator[OnceTransaction]:
        """The block of one transaction; the module explains it."""
        writes.check_open()
        self._check_mode(auto_commit=auto_commit)
        try:
            transaction = OnceTransaction(self, writes, timeout_s)
            await transaction.begin()
        except (ClientError, RemotingError):
            await self.go_back(ask=False)
            raise
        try:
            yield transaction
        except BaseException:
            await transaction.give_up()
            raise
        await transaction.end()

    def close(self) -> None:
        """End: the consumer makes no more transactions."""
        for named in self._writes_by:
            named.leave(self.session.client_id)

    def stream(self, named: Named) -> int:
        """The stream in which the consumer writes. Raises BadMessage if the producer has no free
        one."""
        self._writes_by.add(named)
        return named.stream_of(self.session.client_id)

    def claim(self, named: Named, broker_name: str) -> Claim:
        """A producer's name in a broker group."""
        key = (named.instance, broker_name)
        if key not in self._claims:
            self._claims[key] = Claim(named, broker_name, self.session.finder)
        return self._claims[key]

    def covered(self) -> list[_Covered]:
        """The queues with messages that were handed out. Raises NotAssigned, AcrossGroups."""
        readings, found = self._readings(), []
        for progress in self._handout.handed_out():
            fetcher = readings.get(progress.queue)
            if fetcher is None or fetcher.progress is not progress or not progress.polled:
                raise NotAssigned(
                    f"messages of {progress.queue} were handed out that are not this consumer's "
                    "any more: a rebalance or a seek has moved the queue. Nothing was stored; the "
                    "messages are delivered again"
                )
            found.append(
                _Covered(progress.queue, fetcher, progress.committed, progress.handed_out_to)
            )
        if len({each.queue.broker_name for each in found}) > 1:
            names = sorted({each.queue.broker_name for each in found})
            raise AcrossGroups(
                f"messages of the broker groups {', '.join(names)} were handed out: a transaction "
                "is one entry of one group's log. Nothing was stored, and the messages come again: "
                "poll(one_group=True) hands out those of one group at a time"
            )
        return found

    def settle(self, covered: Iterable[_Covered]) -> None:
        """Note that the group goes on behind these messages."""
        for each in covered:
            progress = each.fetcher.progress
            self._handout.finish(progress, each.end)
            progress.committed = each.end

    async def go_back(self, *, ask: bool) -> None:
        """Hand out again all messages that are not committed. With `ask` the brokers say from
        where."""
        fetchers = []
        for progress in self._handout.handed_out():
            fetcher = self._readings().get(progress.queue)
            self._handout.forget(progress)
            if fetcher is not None and fetcher.progress is progress:
                fetchers.append(fetcher)
                _begin_at(fetcher, progress.committed)
        for fetcher in fetchers if ask else ():
            progress, epoch = fetcher.progress, fetcher.progress.epoch
            with suppress(RemotingError, ClientError, BadInput):
                place = await self._offsets.load(progress.queue)
                moved = place is not None and place.offset != progress.committed
                if place is not None and moved and progress.epoch == epoch:
                    _begin_at(fetcher, place.offset)

    def token(self, queue: MessageQueue) -> int | None:
        """The token of the queue's lock, if it has one."""
        return None if self._locks is None else self._locks.leases.token(queue)

    def _check_mode(self, *, auto_commit: bool) -> None:
        """Raise BadInput, with a remedy, for a consumer that can't have transactions."""
        if auto_commit:
            raise BadInput(
                "a transaction of a consumer with auto_commit: what it hands out would be "
                "committed without its outputs. Give it auto_commit=False"
            )
        if not isinstance(self._offsets, BrokerOffsets):
            raise BadInput(
                "a transaction of a consumer whose offsets are not with the brokers: they could "
                "not be one entry with its outputs. Give it a group, and offsets='broker'"
            )
        if any(fetcher.progress.handling for fetcher in self._readings().values()):
            raise BadInput(
                "a transaction within a handler of run(): handlers finish their messages by "
                "returning. Poll or iterate instead, with a transaction"
            )


def _begin_at(fetcher: QueueFetcher, offset: int) -> None:
    """Go on reading a queue where its group is."""
    fetcher.progress.seek(offset)
    fetcher.progress.committed = offset
    fetcher.restart()


class OnceTransaction:
    """Outputs that are stored together with the offsets of their inputs; the module explains
    them."""

    def __init__(self, transacting: Transacting, writes: Writes, timeout_s: float) -> None:
        named = writes.named
        if named is None:
            raise BadInput(
                "a transaction needs a producer with a name, Producer(name=...): so that a newer "
                "instance of this program can fence this one"
            )
        #: Where the outputs went, in the order in which they were sent, once it is committed.
        self.results: list[SendResult] = []
        self._transacting = transacting
        self._named = named
        self._timeout_s = timeout_s
        session = transacting.session
        self._stream = transacting.stream(named)
        self._encoder = Encoder(UniqueKeys(session.host), session.host, writes.compressor)
        self._publishers: dict[str, Publisher] = {}
        self._outputs = Outputs()
        self._consumed = next((each.queue for each in transacting.covered()), None)
        self._broker_name = None if self._consumed is None else self._consumed.broker_name
        self._is_open = True
        self._is_rolled_back = False

    async def begin(self) -> None:
        """Register the name, before any work is done: from now on older instances are fenced."""
        if self._consumed is not None:
            await self._register(self._consumed.broker_name, self._consumed.topic)

    async def _register(self, broker_name: str, topic: str) -> tuple[Claim, int]:
        claim = self._transacting.claim(self._named, broker_name)
        return claim, await claim.register(topic, self._timeout_s)

    async def send(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
    ) -> str:
        """Add an output; it is stored when the block ends. Returns its message id.

        The queue is one of the broker group of the consumed messages: by its number, by a key's
        hash, by the selector, or in turn. Raises NoRoute, BadMessage, or AcrossGroups if the topic
        has no queue in that group.
        """
        if not self._is_open:
            raise TransactionClosed("this transaction has ended: begin another one")
        check_message(message)
        if message.delayed:
            raise BadMessage(
                f"a message to topic {message.topic!r} with a delay: it would wait in an entry of "
                "its own. Send it by the producer, or without a delay"
            )
        publisher = self._publishers.get(message.topic) or await self._publisher(message.topic)
        queue = publisher.choose(message, queue_id, key, selector)
        unique_key, record = self._encoder.encode(message, queue.queue_id, "", key)
        self._outputs.add(message.topic, queue.queue_id, unique_key, record)
        return unique_key

    def rollback(self) -> None:
        """Store nothing when the block ends; the messages are delivered again."""
        self._is_rolled_back = True

    async def _publisher(self, topic: str) -> Publisher:
        session = self._transacting.session
        route = await session.route_within(topic, "publish to", self._timeout_s)
        if not route.writable:
            raise not_writable(topic)
        if self._broker_name is None:
            led = self._transacting.session.routes.leader
            serving = [
                queue
                for queue in route.writable
                if queue.broker_name not in route.closed and led(queue.broker_name) is not None
            ]
            self._broker_name = random.choice(serving or route.writable).broker_name
        own = tuple(queue for queue in route.writable if queue.broker_name == self._broker_name)
        if not own:
            others = sorted({queue.broker_name for queue in route.writable})
            raise AcrossGroups(
                f"topic {topic!r} has queues in {', '.join(others)}, and the messages that were "
                f"consumed are of {self._broker_name}: a transaction is one entry of one group's "
                f"log. Nothing is stored. Give the topic queues there (mqadmin updateTopic -t "
                f"{topic} -b ADDRESS), or consume a topic of its group"
            )
        publisher = Publisher(topic, own, lambda _: True, random.randrange(len(own)))
        self._publishers[topic] = publisher
        return publisher

    async def end(self) -> None:
        """Store everything: the block ended without an exception."""
        self._is_open = False
        if self._is_rolled_back:
            await self._transacting.go_back(ask=False)
            return
        try:
            covered = self._transacting.covered()
            if self._broker_name is None and covered:
                self._broker_name = covered[0].queue.broker_name
            if any(each.queue.broker_name != self._broker_name for each in covered):
                raise AcrossGroups(
                    f"outputs were sent to {self._broker_name}, and messages handed out of "
                    f"{covered[0].queue.broker_name}: a transaction is one entry of one group's "
                    "log. Nothing was stored: poll before the transaction begins"
                )
            if covered or len(self._outputs):
                await self._write(covered)
            self._transacting.settle(covered)
        except (OffsetsMoved, TransactionUnanswered, ProducerFenced, Refused):
            await self._transacting.go_back(ask=True)
            raise
        except BaseException:
            await self._transacting.go_back(ask=False)
            raise

    async def give_up(self) -> None:
        """Store nothing: the block raised an exception."""
        self._is_open = False
        await self._transacting.go_back(ask=False)

    async def _write(self, covered: list[_Covered]) -> None:
        broker_name = self._broker_name
        assert broker_name is not None, "there is an output, or a queue"
        topic = self._outputs.first or covered[0].queue.topic
        claim, epoch = await self._register(broker_name, topic)
        header = WriteOnceHeader(
            producer_name=self._named.name,
            epoch=epoch,
            stream=self._stream,
            sequence=self._named.next_sequence(),
            parts=self._outputs.parts(),
            group=self._transacting.group if covered else "",
            moves=[
                (each.queue.topic, each.queue.queue_id, each.begin, each.end, self._token(each))
                for each in covered
            ],
            lives=[each.fetcher.progress.life for each in covered],
        )
        command = Command(RequestCode.WRITE_ONCE, encode_header(header), self._outputs.body())
        answer = await self._ask(claim, broker_name, topic, command)
        found = decode_header(WriteOnceResponseHeader, answer)
        leader = self._transacting.session.routes.leader(broker_name) or ""
        self.results = self._outputs.results(found, broker_name, leader)

    def _token(self, covered: _Covered) -> int | None:
        return self._transacting.token(covered.queue)

    async def _ask(self, claim: Claim, broker_name: str, topic: str, command: Command) -> Command:
        """The answer, once it is stored. Every try is the same write, so it is stored once."""
        finder = self._transacting.session.finder
        unsure: list[str] = []
        try:
            answer = await finder.ask(broker_name, command, self._timeout_s, topic, unsure=unsure)
        except (RemotingError, ClientError) as error:
            if not unsure:
                raise
            raise TransactionUnanswered(self._named.name, broker_name, str(error)) from error
        if answer.code == ResponseCode.SUCCESS:
            return answer
        is_fenced = claim.heard(answer.code, answer.remark)
        if answer.code == ResponseCode.OFFSET_MOVED_ON:
            raise OffsetsMoved(self._transacting.group, answer.remark or "no reason given")
        if unsure:
            reason = f"{unsure[-1]}; then code {answer.code}: {answer.remark}"
            raise TransactionUnanswered(self._named.name, broker_name, reason)
        if is_fenced:
            raise claim.fenced_error(topic)
        what = f"the transaction of producer {self._named.name!r}"
        raise Refused(what, broker_name, answer.code, answer.remark)
