"""Gets messages their large bodies, when they are about to be handed out.

Only then: so no more is held in memory than the application has asked for. The parts are read as
tools read, for no group. That they are the right ones, their number, size and CRC-32 say.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from zlib import crc32

import anyio

from dledger.errors import BadInput, DledgerError, RecordError, RemotingError
from dledger.observe import get_logger
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import encode_header
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import LARGE_PART
from mqclient import limits
from mqclient.connection.leaders import LeaderFinder
from mqclient.connection.retry import RETRIED_CODES, backoff_s
from mqclient.errors import NoLeader, Refused
from mqclient.large.manifest import Manifest
from mqclient.lookup import look
from mqclient.models import ReceivedMessage, messages_in

MessageT = TypeVar("MessageT", bound=ReceivedMessage)
#: Answers by which a part is not there, or not for this client.
_NOT_THERE = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    }
)
log = get_logger(__name__)


class _NotNow(RecordError):
    """A part can't be read now. It may be there: the broker says that it failed, not what it
    found."""


class _Away(_NotNow):
    """The group with the parts serves nobody now."""


class Patience:
    """How long groups that don't serve are waited for: each once, not with each message that names
    it. Pure."""

    def __init__(self) -> None:
        #: Group -> since when it does not serve, and when that was last seen.
        self._waits: dict[str, tuple[float, float]] = {}

    def until_s(self, broker_name: str, now_s: float) -> float:
        """Time until which a group that does not serve now is waited for.

        All groups beyond `LARGE_GROUPS_WAITED_MAX` count as one: names may be made up.
        """
        if broker_name not in self._waits and len(self._waits) >= limits.LARGE_GROUPS_WAITED_MAX:
            broker_name = ""
        since_s, seen_s = self._waits.get(broker_name, (now_s, now_s))
        if now_s - seen_s > limits.LARGE_PATIENCE_AGAIN_S:
            since_s = now_s
        self._waits[broker_name] = (since_s, now_s)
        return since_s + limits.LARGE_FETCH_S

    def served(self, broker_name: str) -> None:
        """Note that a broker group serves again."""
        self._waits.pop(broker_name, None)


class LargeBodies:
    """The large bodies of one consumer."""

    def __init__(self, finder: LeaderFinder) -> None:
        self._finder = finder
        self._patience = Patience()

    async def wait_for(self, messages: Sequence[ReceivedMessage], deadline_s: float) -> int:
        """Fetch the bodies of messages. One that can't be had raises when it is looked at.

        While the group of a message is away nobody can say that. Then this waits until `deadline_s`
        of the event loop's clock. Returns how many messages before that one are as they should be.
        """
        for number, message in enumerate(messages):
            try:
                await self._have(message, deadline_s)
            except _Away:
                return number
        return len(messages)

    async def see_to(self, messages: Sequence[ReceivedMessage]) -> None:
        """Fetch the bodies of messages that are this consumer's for a time only: don't wait
        long."""
        for message in messages:
            try:
                await self._have(message, anyio.current_time() + limits.LARGE_FETCH_S)
            except _Away as error:
                message.take_body(error)

    def before(
        self, handler: Callable[[Sequence[MessageT]], Awaitable[None] | None]
    ) -> Callable[[Sequence[MessageT]], Awaitable[None] | None]:
        """The handler, called with messages whose bodies are there. Its error is that of a body
        that can't be had, too."""

        async def fetch_first(messages: Sequence[MessageT]) -> None:
            for message in messages:
                if message.large_bytes and not message.is_whole:
                    until_s = anyio.current_time() + limits.LARGE_FETCH_S
                    message.take_body(await self._patiently(message, until_s))
            outcome = handler(messages)
            if inspect.isawaitable(outcome):
                await outcome

        def call(messages: Sequence[MessageT]) -> Awaitable[None] | None:
            for message in messages:
                if message.large_bytes:
                    return fetch_first(messages)
            return handler(messages)

        return call

    async def _have(self, message: ReceivedMessage, deadline_s: float) -> None:
        if not message.large_bytes or message.is_whole:
            return
        try:
            message.take_body(await self._patiently(message, deadline_s))
        except _Away:
            raise
        except DledgerError as error:
            log.warning("body not fetched", message=repr(message), reason=str(error))
            message.take_body(error)

    async def _patiently(self, message: ReceivedMessage, deadline_s: float) -> bytes:
        """Through a change of leaders, and what passes by itself.

        A group that is known gets until `deadline_s`, then this raises _Away. A message may lie
        about where its parts are. If name servers have no such queue, it does. A group that is not
        known, or answers that it failed, is waited for `LARGE_FETCH_S` and no longer, however many
        messages name it.
        """
        manifest = Manifest.decode(message.manifest)
        attempt = 0
        broker_name = manifest.queue.broker_name
        if not self._knows(broker_name, message):
            await self._check_unknown(manifest.queue)
        while True:
            attempt += 1
            try:
                return await self._fetch(message, manifest)
            except (RemotingError, NoLeader, _NotNow) as error:
                failed = isinstance(error, _NotNow) and not isinstance(error, _Away)
                if failed and attempt == 1:
                    await self._check_place(manifest.queue)
                waits = not failed and self._knows(broker_name, message)
                until_s = self._patience.until_s(broker_name, anyio.current_time())
                if anyio.current_time() >= (deadline_s if waits else until_s):
                    if waits:
                        raise _Away(str(error)) from error
                    raise RecordError(str(error)) from error
                await anyio.sleep(backoff_s(attempt))

    def _knows(self, broker_name: str, message: ReceivedMessage) -> bool:
        return broker_name == message.broker_name or bool(self._finder.routes.members(broker_name))

    async def _check_unknown(self, queue: MessageQueue) -> None:
        """Raise RecordError for a group that is not there, or was waited for already."""
        await self._check_place(queue)
        now_s = anyio.current_time()
        if now_s >= self._patience.until_s(queue.broker_name, now_s):
            raise RecordError(f"the broker group of {queue}, part of a body, is not known")

    async def _check_place(self, queue: MessageQueue) -> None:
        """Raise RecordError if a name server knows the topic's groups, also those that are away,
        and none of them has this queue. Without an answer, or with RocketMQ's, nobody can say."""
        for name_server in self._finder.name_servers:
            try:
                route = await self._finder.topic_route(name_server, queue.topic)
            except (RemotingError, Refused, BadInput):
                continue
            if route is None or route.absent_queue_datas is None:
                continue
            rows = (*route.queue_datas, *route.absent_queue_datas)
            if not any(
                row.broker_name == queue.broker_name and queue.queue_id < row.read_queue_nums
                for row in rows
            ):
                raise RecordError(f"there is no {queue}, which would have the parts of a body")
            return

    async def _fetch(self, message: ReceivedMessage, manifest: Manifest) -> bytes:
        pieces: list[bytes] = []
        left = manifest.size_bytes
        for first, last in manifest.runs:
            offset = first
            while offset <= last:
                found = await self._pull(manifest.queue, offset, last - offset + 1)
                if not found:
                    raise _gone(manifest, offset)
                for part in found:
                    if part.queue_offset != offset or offset > last:
                        raise _gone(manifest, offset)
                    if part.properties.get(LARGE_PART) != manifest.set_id:
                        raise _gone(manifest, offset)
                    pieces.append(part.body)
                    left -= len(pieces[-1])
                    offset += 1
                    if left < 0:
                        raise _gone(manifest, offset)
        self._patience.served(manifest.queue.broker_name)
        body = b"".join(pieces)
        if left or crc32(body) != manifest.crc:
            raise RecordError(
                f"the parts of {message!r} in {manifest.queue} are {len(body)} bytes, not the "
                f"{manifest.size_bytes} that were sent"
            )
        return body

    async def _pull(self, queue: MessageQueue, offset: int, count: int) -> list[ReceivedMessage]:
        """The parts from `offset` on, at least one. Raises RecordError if there is none, or
        _NotNow."""
        header = look(
            *(limits.READERS_GROUP, queue.topic, queue.queue_id, offset, count),
            bytes_max=limits.LARGE_PULL_BYTES_MAX,
        )
        command = Command(RequestCode.PULL_MESSAGE, encode_header(header))
        answer = await self._finder.ask(
            queue.broker_name, command, limits.REQUEST_TIMEOUT_S, queue.topic
        )
        if answer.code != ResponseCode.SUCCESS:
            reason = (
                f"message {offset} of {queue}, a part of a body, can't be read: code "
                f"{answer.code}, {answer.remark}"
            )
            if answer.code in RETRIED_CODES:
                raise _Away(reason)
            if answer.code not in _NOT_THERE:
                raise _NotNow(reason)
            raise RecordError(f"{reason}. Retention may have removed it")
        try:
            return messages_in(answer.payload, queue.broker_name)
        except BadInput as error:
            raise RecordError(f"message {offset} of {queue} can't be read: {error}") from error


def _gone(manifest: Manifest, offset: int) -> RecordError:
    return RecordError(
        f"message {offset} of {manifest.queue} is not the part of a body that it was"
    )
