"""Sending messages: `async with Producer("127.0.0.1:9876", group="PG") as producer: ...`.

`send` waits until the message is stored and returns its place. `send_soon` hands over a message and
returns at once, unless the producer holds as much as it may: then it waits for room. `send_nowait`
never waits. All of them gather messages into batches: messages that come while a batch is on its
way are sent with the next. Leaving the block sends and awaits everything handed over.

Messages with the same key go to the same queue and keep the order in which they were handed over,
across retries and new leaders. A message is retried until its own deadline, and stored at most
once: brokers recognise a batch that they have seen. A message without a chosen queue or key moves
to another broker group if the first does not take it. The outcome is unknown (SendUnknown) only if
no answer came until the deadline; any other failure is definite.

`request` sends a message and waits for its consumer's `reply`. `transaction` sends a message that
is delivered only if the caller's own work was done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from anyio import move_on_after
from anyio.lowlevel import checkpoint

from dledger.errors import BadInput
from dledger.limits import MESSAGE_BODY_BYTES_MAX
from dledger.remoting.bodies import HeartbeatData, ProducerData
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import UnregisterClientHeader
from dledger.remoting.names import check_group_name
from dledger.tls.options import AskedTls
from dledger.world import seconds_left, steady_s
from mqclient import limits, tables
from mqclient.arguments import check_count, check_seconds
from mqclient.compression import Compression, check_compression
from mqclient.connection.credentials import Credentials
from mqclient.connection.session import Session
from mqclient.errors import BadMessage, BufferFull
from mqclient.hooks import Encode, SendHooks, SendInterceptor, passed
from mqclient.large.sending import always, store_parts
from mqclient.metrics import Metrics
from mqclient.models import Message, ReceivedMessage, Reply, Selector, SendResult
from mqclient.producing.batch import Kind
from mqclient.producing.batching import Budget
from mqclient.producing.chunks.many import Chunk, SentMany
from mqclient.producing.encoding import with_key
from mqclient.producing.measured_outbox import MeasuredOutbox
from mqclient.producing.measuring import Measured
from mqclient.producing.naming import Named
from mqclient.producing.outbox import Outbox
from mqclient.producing.replies import Questions
from mqclient.producing.sends import Sends
from mqclient.producing.waiting.recall import handle_of, recall
from mqclient.producing.waiting.transactions import Checker, Transaction, Transactions
from mqclient.signatures import checked


@checked
class Producer(Sends):
    """A client that sends messages, as a member of a producer group.

    A producer with a `name` is the only one of that name: when another instance begins to write,
    this instance is fenced, and its calls raise ProducerFenced. `Consumer.transaction` needs a
    name.

    `checker` tells brokers how a transaction ended if its producer did not say; it needs a `group`.
    Without a checker, the group is only a name that operators see. `timeout_s` is the deadline of
    sends without their own. With `linger_s` a batch waits for more messages although it could be
    sent. At most `pending_max` messages and `pending_bytes_max` bytes of records are held at a
    time. With `at_least_once`, messages of a broker group that disappeared before it answered are
    sent to another broker group, too, and may be stored twice; without it, their sends raise
    SendUnknown. Bodies of `compress_from_bytes` bytes or more are compressed by `compression`, if
    that is given, unless they would not become smaller. `interceptors` are called around each send,
    and `encode` turns the value of a message into its body (`mqclient.hooks`). `metrics` count the
    messages sent (`mqclient.metrics`).

    `user` and `secret`, its password, sign each request; without a user, `secret` is the cluster's
    secret. The constructor raises BadInput for values out of range.
    """

    def __init__(
        self,
        namesrv_addr: str = limits.NAMESRV_ADDR,
        group: str = limits.PRODUCER_GROUP,
        *,
        name: str | None = None,
        checker: Checker | None = None,
        timeout_s: float = limits.SEND_TIMEOUT_S,
        linger_s: float = limits.LINGER_S,
        batch_bytes_max: int = limits.BATCH_BYTES_MAX,
        pending_max: int = limits.PENDING_MESSAGES_MAX,
        pending_bytes_max: int = limits.PENDING_BYTES_MAX,
        at_least_once: bool = False,
        compression: Compression | None = None,
        compress_from_bytes: int = limits.COMPRESS_FROM_BYTES,
        interceptors: Sequence[SendInterceptor] = (),
        encode: Encode | None = None,
        metrics: Metrics | None = None,
        user: str | None = None,
        secret: str | None = None,
        tls: AskedTls = None,
    ) -> None:
        check_group_name(group)
        if checker is not None and group == limits.PRODUCER_GROUP:
            raise BadInput(
                "a checker without a group of its own: brokers ask any producer of a group how a "
                "transaction ended, so two programs would answer for each other. Name a group"
            )
        self.group = group
        if name is not None and at_least_once:
            raise BadInput(
                f"producer {name!r} with at_least_once: a producer with a name stores each message "
                "once, at_least_once may store it twice. Leave out one of them"
            )
        #: The producer's name and instance, for transactions with what a consumer has read.
        self.named = None if name is None else Named(name)
        self.compressor = check_compression(compression, compress_from_bytes)
        self._timeout_s = check_seconds("timeout_s", timeout_s, above_zero=True)
        self._linger_s = check_seconds("linger_s", linger_s)
        self._hooks = SendHooks(interceptors, encode) if interceptors or encode else None
        if linger_s >= timeout_s:
            raise BadInput(
                f"linger_s={linger_s} is not below timeout_s={timeout_s}: a message would have "
                "failed before its batch is sent"
            )
        budget = Budget(
            check_count("pending_max", pending_max),
            check_count("pending_bytes_max", pending_bytes_max),
        )
        measured = None if metrics is None else Measured(metrics, group, budget)
        credentials = Credentials.of(user, secret)
        self._session = Session(namesrv_addr, self._asked, credentials, tls, measured)
        self._questions = Questions(self._session, self.group, self._heartbeat)
        self._transactions = Transactions(self._session, group, checker)
        self._outbox = (Outbox if metrics is None else MeasuredOutbox)(
            self._session,
            group,
            budget,
            linger_s=linger_s,
            batch_bytes_max=check_count("batch_bytes_max", batch_bytes_max),
            at_least_once=at_least_once,
            compressor=self.compressor,
            named=self.named,
            measured=measured,
        )

    @property
    def client_id(self) -> str:
        """The id by which brokers know this producer. Raises ClientClosed before it is opened."""
        return self._session.client_id

    @property
    def pending(self) -> int:
        """Messages handed over and not settled yet."""
        return self._outbox.budget.messages

    async def _start(self) -> None:
        await self._session.__aenter__()  # the last thing here that waits
        self._outbox.begin()
        if self.named is not None:
            self.named.begin()
        self._session.tasks.start_soon(self._session.heartbeats.keep_telling, self._heartbeat)

    async def _end(self, *, failed: bool) -> None:
        """Send and await all messages handed over, within their own deadlines."""
        try:
            if failed:
                self._outbox.abandon()
            else:
                await self._outbox.drain()
        finally:
            self._questions.close()
            try:
                with move_on_after(limits.HEARTBEAT_TIMEOUT_S, shield=True):
                    await self._session.leave(
                        UnregisterClientHeader(client_id=self.client_id, producer_group=self.group)
                    )
            finally:
                try:
                    await self._session.__aexit__(None, None, None)
                finally:
                    self._outbox.budget.clear()  # answers may have come for what was given up

    def stay_behind(self) -> None:
        """Give up this copy: it is in a fork of the process that opened it, which has the outcomes
        of all sends under way."""
        super().stay_behind()
        self._outbox.stay_behind(
            f"its producer is in process {self._opened_in}, and this process is a fork of it: only "
            f"process {self._opened_in} knows the outcome"
        )

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        queue_ids: Sequence[int] | None = None,
        keys: Sequence[str] | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic, stored all or none: one entry of one broker group's log.

        The messages go to one queue, next to each other. With `queue_ids` or `keys`, one for each
        message, they go to several queues. Raises BadMessage if they have several topics, are too
        large (`limits.SEND_BATCH_...`), or if their queues are not on one broker group.
        """
        self.check_open()
        if not messages:
            return []
        topic = messages[0].topic
        if any(message.topic != topic for message in messages):
            raise BadMessage(f"a batch must have one topic: {sorted({m.topic for m in messages})}")
        if self._hooks is not None:
            messages = [self._hooks.without_waiting(each, "send_batch") for each in messages]
        timeout_s = self._timeout(timeout_s)
        deadline_s = steady_s() + timeout_s
        await self._ready(topic, timeout_s, queue_id, key, selector, queue_ids, keys)
        if queue_ids is None and keys is None:
            chosen = [self._outbox.choose(messages[0], queue_id, key, selector)] * len(messages)
        elif (queue_id, key, selector) == (None, None, None):
            chosen = self._outbox.choose_each(messages, queue_ids, keys)
        else:
            raise BadMessage(f"a batch to {topic!r}: choose one queue for all, or one for each")
        left_s = deadline_s - steady_s()
        return [await slot.wait() for slot in self._outbox.put_together(messages, chosen, left_s)]

    async def send_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        key: str | None = None,
        timeout_s: float | None = None,
    ) -> SentMany:
        """Send a message for each body, and wait until all are stored. Returns their places.

        Use it for many messages at once: they cost a small part of the encoding and accounting of
        single sends. Some hundred KiB of neighbours go to one queue; with `key` or `queue_id` all
        messages go to the same queue, in their order. Each message has `timeout_s` from when there
        is room for it, and is stored at most once. Raises BadMessage or NoRoute before anything is
        sent; later ManyFailed, which has the outcome of each message. If the wait is cancelled,
        messages handed over are still sent.
        """
        self.check_open()
        timeout_s = self._timeout(timeout_s)
        like = Message(topic, b"", tags=tags, properties=properties)
        if self._hooks is not None:
            like = self._hooks.without_waiting(like, "send_many")
        cut = self._outbox.chunks(like, bodies, key)
        chunks: list[Chunk] = []
        left = len(bodies)
        if left >= limits.ENCODED_TOGETHER_MIN or self.compressor is not None:
            await tables.bring()
        while left:
            try:
                await self._ready(topic, timeout_s, queue_id, key)
            except BufferFull as error:
                chunks.append(Chunk.refused(left, error))
                break
            some = next(cut)
            left -= len(some)
            chosen = self._outbox.choose(like, queue_id, key)
            chunks.append(self._outbox.put_chunk(like, some, chosen, timeout_s))
            await checkpoint()
        sent = SentMany(chunks)
        await sent.wait()
        return sent

    async def send_large(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float = limits.LARGE_SEND_TIMEOUT_S,
    ) -> SendResult:
        """Send one message whose body may be too large for a record (256 MiB at most).

        The parts of the body go to the topic `%PARTS%` followed by the message's topic. Then the
        message is sent; the result is its place. Our consumers get the message with its body; other
        clients get it without a body. A body of up to 4 MiB is sent as by `send`. Raises the errors
        of `send`, and SendFailed if a part was not stored.
        """
        if self._hooks is not None and not passed():
            again = partial(
                self.send_large, queue_id=queue_id, key=key, selector=selector, timeout_s=timeout_s
            )
            return await self._hooks.once(message, again)
        deadline_s = steady_s() + check_seconds("timeout_s", timeout_s)
        if len(message.body) > MESSAGE_BODY_BYTES_MAX:
            await self._ready(message.topic, timeout_s, queue_id, key, selector)
            broker_name = None
            if message.priority is None:  # else it has its queue from that
                queue = self._outbox.choose(message, queue_id, key, selector).queue
                broker_name, queue_id, selector = queue.broker_name, None, always(queue)
                properties = with_key(message.properties or {}, key)
                message, key = replace(message, properties=properties), None
            message = await store_parts(self, message, broker_name, deadline_s)
        return await self.send(
            message,
            queue_id=queue_id,
            key=key,
            selector=selector,
            timeout_s=seconds_left(deadline_s),
        )

    @asynccontextmanager
    async def transaction(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Transaction]:
        """Send a message that is delivered only if the block ends without an exception.

        ::

            async with producer.transaction(Message("Orders", b"...", keys="o-1")) as transaction:
                ...  # your own work, which `checker` can look up by the message

        Leaving the block commits, unless `transaction.rollback()` was awaited in it. An exception
        decides nothing: later the broker asks the `checker` of this process, or of another process
        of the group that has prepared a topic or sent to one. The send and the end have `timeout_s`
        each. Raises the errors of `send` and `Transaction.commit`.
        """
        self.check_open()
        self._transactions.check_allowed(message.topic)
        timeout_s = self._timeout(timeout_s)
        where = (queue_id, key, selector)
        with ExitStack() as running:

            async def prepare(message: Message) -> SendResult:
                await self._ready(message.topic, timeout_s, *where)
                chosen = self._outbox.choose(message, *where)
                pending, sender = self._outbox.put(
                    message, chosen, steady_s(), timeout_s, Kind.HALF
                )
                sender.pump()
                running.enter_context(self._transactions.running(pending.unique_key))
                return await pending.wait()

            if self._hooks is not None:
                sent = await self._hooks.once(message, prepare)
            else:
                sent = await prepare(message)
            transaction = Transaction(sent, self._transactions, timeout_s)
            yield transaction
            if transaction.ended is None:
                await transaction.commit()

    async def recall(
        self, sent: SendResult | str, handle: str | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Take back a message with `delay_s` or `deliver_at` whose time has not come yet.

        Give its SendResult; or its topic and the `recall_handle` of that result, which a program
        may keep as text: `recall("Orders", handle)`. Raises BadInput if the message can't be taken
        back, RecallTooLate if it was delivered or taken back already, NoRoute, NoLeader, or the
        RemotingError of the last try.
        """
        self.check_open()
        named = handle_of(sent, handle)
        await recall(self._session, self.group, named, self._timeout(timeout_s))

    async def request(
        self,
        message: Message,
        *,
        queue_id: int | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """Send one message, and wait until one of its consumers replies (`reply`).

        The send and the reply have `timeout_s` together. Raises NoReply, and the errors of `send`.
        """
        if self._hooks is not None and not passed():
            again = partial(
                self.request, queue_id=queue_id, key=key, selector=selector, timeout_s=timeout_s
            )
            return await self._hooks.once(message, again)
        timeout_s = self._timeout(timeout_s)
        await self._ready(message.topic, timeout_s, queue_id, key, selector)

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
        """Reply to a message that was sent by `request`; returns when the requester has it.

        Raises BadMessage if the message is not a request, Refused if the requester is gone,
        NoLeader, or the RemotingError of the last try.
        """
        self.check_open()
        await self._questions.reply(request, body, properties or {}, self._timeout(timeout_s))

    async def drain(self, timeout_s: float = limits.DRAIN_S) -> bool:
        """Flush for `timeout_s` at most. Returns whether everything is settled."""
        self.check_open()
        with move_on_after(check_seconds("timeout_s", timeout_s)) as scope:
            await self._outbox.flush()
        return not scope.cancelled_caught

    async def flush(self) -> None:
        """Wait until everything handed over before this call is settled, lingering batches
        included. Messages that other tasks send meanwhile are not waited for."""
        self.check_open()
        await self._outbox.flush()

    def _asked(self, address: str, command: Command) -> Command | None:
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._transactions.asked(address, command)
            return None
        return self._questions.take(command)

    def _heartbeat(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=self.group)],
            consumer_data_set=[],
        )
