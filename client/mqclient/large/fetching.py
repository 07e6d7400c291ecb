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
from mqclient.errors import NoLeader
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


class LargeBodies:
    """Of one consumer."""

    def __init__(self, finder: LeaderFinder) -> None:
        self._finder = finder

    async def wait_for(self, messages: Sequence[ReceivedMessage], deadline_s: float) -> int:
        """Have the bodies of messages there. One that can't be had raises when it is looked at.

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
        """The same for messages that are this consumer's for a time only: not for long."""
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
        about where its parts are: for a group that nobody knows, or one that answers that it
        failed, `LARGE_FETCH_S` is enough.
        """
        manifest = Manifest.decode(message.manifest)
        attempt = 0
        until_s = anyio.current_time() + limits.LARGE_FETCH_S
        while True:
            attempt += 1
            try:
                return await self._fetch(message, manifest)
            except (RemotingError, NoLeader, _NotNow) as error:
                failed = isinstance(error, _NotNow) and not isinstance(error, _Away)
                waits = not failed and self._knows(manifest.queue.broker_name, message)
                if anyio.current_time() >= (deadline_s if waits else until_s):
                    if waits:
                        raise _Away(str(error)) from error
                    raise RecordError(str(error)) from error
                await anyio.sleep(backoff_s(attempt))

    def _knows(self, broker_name: str, message: ReceivedMessage) -> bool:
        return broker_name == message.broker_name or bool(self._finder.routes.members(broker_name))

    async def _fetch(self, message: ReceivedMessage, manifest: Manifest) -> bytes:
        pieces: list[bytes] = []
        left = manifest.size_bytes
        for first, last in manifest.runs:
            offset = first
            while offset <= last:
                for part in await self._pull(manifest.queue, offset, last - offset + 1):
                    if part.queue_offset != offset or offset > last:
                        raise _gone(manifest, offset)
                    if part.properties.get(LARGE_PART) != manifest.set_id:
                        raise _gone(manifest, offset)
                    pieces.append(part.body)
                    left -= len(pieces[-1])
                    offset += 1
                    if left < 0:
                        raise _gone(manifest, offset)
        body = b"".join(pieces)
        if left or crc32(body) != manifest.crc:
            raise RecordError(
                f"the parts of {message!r} in {manifest.queue} are {len(body)} bytes, not the "
                f"{manifest.size_bytes} that were sent"
            )
        return body

    async def _pull(self, queue: MessageQueue, offset: int, count: int) -> list[ReceivedMessage]:
        """One part at least. Raises RecordError if there is none, or _NotNow."""
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
