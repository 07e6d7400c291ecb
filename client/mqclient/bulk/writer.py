"""Sends columns: `async with BulkWriter(namesrv) as writer: await writer.write("T", columns)`.

Each broker group has one batch under way, and the next ones wait behind it, so rows of a key stay
in order over retries and new leaders. A batch is repeated unchanged until its deadline; brokers
recognise it by the key of its first record, and store it once. `write` waits while as many bytes
are under way as may be: a program that reads a table faster than brokers store it is held back.

After a failure nothing more is sent: rows behind a gap would be out of order. The error says how
many rows of which batch, and whether they are certainly not stored; other batches of the same call
may be stored.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import partial

import anyio

from dledger.errors import BadInput, RemotingError
from dledger.limits import MESSAGE_BODY_BYTES_MAX
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import ProduceHeader, encode_header
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import host_bytes
from dledger.remoting.names import check_group_name
from dledger.tls.options import AskedTls
from dledger.world import unix_ms, world
from mqclient import limits, tables
from mqclient.arguments import check_count, check_seconds
from mqclient.bulk.models import Columns, RecordsBatch, Sender
from mqclient.connection.credentials import Credentials
from mqclient.connection.identity import UniqueKeys
from mqclient.connection.lifetime import Living
from mqclient.connection.session import Session
from mqclient.errors import (
    BadMessage,
    ClientError,
    NoLeader,
    SendError,
    SendFailed,
    SendUnknown,
    not_writable,
)
from mqclient.signatures import checked


@checked
class BulkWriter(Living):
    """A client that sends rows of columns as messages, to any topics, on brokers of ours.

    Each batch has `timeout_s`, including retries and new leaders. At most `pending_bytes_max` bytes
    of records are under way. `user` and `secret`, its password, sign each request; without a user,
    `secret` is the cluster's secret.
    """

    #: Batches of one broker group that are under way at a time.
    _side_by_side = 1
    _body_bytes_max = MESSAGE_BODY_BYTES_MAX

    def __init__(
        self,
        namesrv_addr: str = limits.NAMESRV_ADDR,
        group: str = limits.PRODUCER_GROUP,
        *,
        timeout_s: float = limits.BULK_TIMEOUT_S,
        pending_bytes_max: int = limits.BULK_PENDING_BYTES_MAX,
        user: str | None = None,
        secret: str | None = None,
        tls: AskedTls = None,
    ) -> None:
        check_group_name(group)
        tables.needed("sending columns")
        self._session = Session(namesrv_addr, None, Credentials.of(user, secret), tls)
        self._group = group
        self._timeout_s = check_seconds("timeout_s", timeout_s, above_zero=True)
        self._pending_bytes_max = check_count("pending_bytes_max", pending_bytes_max)
        self._writing = anyio.Lock()
        self._turn = random.randrange(limits.QUEUES_WANTED_MAX)
        self._waiting: dict[str, deque[tuple[int, RecordsBatch]]] = {}
        self._senders: Counter[str] = Counter()
        self._pending_bytes = 0
        self._changed = anyio.Event()
        self._failed: SendError | None = None
        self._batches = 0
        #: Rows and bytes of records that brokers have stored.
        self.rows = 0
        self.bytes = 0

    async def _start(self) -> None:
        await self._session.__aenter__()
        self._keys = UniqueKeys(self._session.host)

    async def _wind_down(self) -> None:
        await self.flush()

    async def _end(self, *, failed: bool) -> None:
        await self._session.__aexit__(None, None, None)

    async def write(self, topic: str, columns: Columns) -> None:
        """Hand over all rows; wait while too many bytes are under way.

        Raises BadMessage, which names a wrong row, before any row of this call is sent; NoRoute;
        and the error of a failed batch: SendFailed if it is certainly not stored, or SendUnknown.
        """
        self.check_open()
        async with self._writing:
            self._raise_failed()
            queues = await self._queues(topic)
            now_ms = unix_ms()
            self._keys.refresh(now_ms)
            sender = Sender(self._keys, host_bytes(self._session.host, 0), now_ms)
            encode = partial(_encoded, topic, columns, queues, sender)
            turn, limit = self._turn % len(queues), self._body_bytes_max
            batches = await world().in_thread(encode, turn, limit)
            self._turn += 1
            while (batch := await world().in_thread(_next, batches)) is not None:
                await self._hand_over(batch)

    async def flush(self) -> None:
        """Wait until all rows handed over are stored. Raises the error of a failed batch."""
        self.check_open()
        while self._pending_bytes:
            await self._changed.wait()
        self._raise_failed()

    def _raise_failed(self) -> None:
        if self._failed is not None:
            raise self._failed

    async def _queues(self, topic: str) -> Sequence[MessageQueue]:
        """The topic's queues, all of them: keys are bound to their number. Raises NoRoute."""
        session = self._session
        route = session.routes.route(topic)
        if route is None or not route.writable or not session.settled(topic):
            await session.route_within(topic, "publish to", self._timeout_s)
            await session.wait_settled(topic, self._timeout_s)
            route = session.routes.route(topic)
            if route is None or not route.writable:
                raise not_writable(topic)
            await session.finder.learn_kinds(route.broker_names)
        for name in route.broker_names:
            if session.routes.stock_version(name):
                raise BadMessage(
                    f"columns for topic {topic!r}: {name} is a broker of Apache RocketMQ, which "
                    "takes no finished records; send messages by a Producer"
                )
        return route.writable

    async def _hand_over(self, batch: RecordsBatch) -> None:
        while self._pending_bytes and (
            self._pending_bytes + len(batch.records) > self._pending_bytes_max
        ):
            await self._changed.wait()
        self._raise_failed()
        self._pending_bytes += len(batch.records)
        name = batch.broker_name
        self._waiting.setdefault(name, deque()).append((self._batches, batch))
        self._batches += 1
        if self._senders[name] < self._side_by_side:
            self._senders[name] += 1
            self._session.tasks.start_soon(self._send_waiting, name)

    async def _send_waiting(self, broker_name: str) -> None:
        """Send the batches of one group, until none waits."""
        waiting = self._waiting[broker_name]
        try:
            while waiting and self._failed is None:
                number, batch = waiting.popleft()
                try:
                    self._stored(number, batch, await self._send(batch))
                    self.rows += batch.rows
                    self.bytes += len(batch.records)
                except SendError as error:
                    self._failed = error
                finally:
                    self._settled(len(batch.records))
        finally:
            self._senders[broker_name] -= 1
        if self._failed is not None:
            for left in self._waiting.values():
                while left:
                    self._settled(len(left.popleft()[1].records))

    def _settled(self, size_bytes: int) -> None:
        self._pending_bytes -= size_bytes
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _request(self, batch: RecordsBatch) -> Command:
        header = ProduceHeader(topic=batch.topic, producer_group=self._group, runs=[*batch.runs])
        return Command(RequestCode.PRODUCE, encode_header(header), batch.records)

    def _stored(self, number: int, batch: RecordsBatch, answer: Command) -> None:
        """Batch `number` of this writer is stored."""

    async def _send(self, batch: RecordsBatch) -> Command:
        """Store one batch at its broker group. Returns the broker's answer. Raises SendError."""
        command = self._request(batch)
        unsure: list[str] = []
        try:
            answer = await self._session.finder.ask(
                batch.broker_name, command, self._timeout_s, batch.topic, unsure=unsure
            )
        except (RemotingError, ClientError, BadInput) as error:
            is_sure = not unsure and (isinstance(error, NoLeader) or _is_definite(error))
            raise _error(batch, str(error), is_sure=is_sure) from error
        if answer.code != ResponseCode.SUCCESS:
            reason = f"code {answer.code}: {answer.remark or 'no reason given'}"
            raise _error(batch, reason, is_sure=not unsure)
        return answer


def _encoded(
    topic: str,
    columns: Columns,
    queues: Sequence[MessageQueue],
    sender: Sender,
    turn: int,
    body_bytes_max: int,
) -> Iterator[RecordsBatch]:
    from mqclient.bulk.columns import encode_columns  # noqa: PLC0415 - imports numpy: see `tables`

    return encode_columns(topic, columns, queues, sender, turn=turn, body_bytes_max=body_bytes_max)


def _next(batches: Iterator[RecordsBatch]) -> RecordsBatch | None:
    return next(batches, None)


def _error(batch: RecordsBatch, reason: str, *, is_sure: bool) -> SendError:
    rows = f"{batch.rows} rows from row {batch.first_row} on"
    kind = SendFailed if is_sure else SendUnknown
    return kind(f"{rows}: {reason}", batch.topic, batch.broker_name, batch.first_key)


def _is_definite(error: Exception) -> bool:
    return bool(getattr(error, "definite", True))
