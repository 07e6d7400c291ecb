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
from mqclient.connection.retry import backoff_s
from mqclient.errors import NoLeader
from mqclient.large.manifest import Manifest
from mqclient.lookup import look
from mqclient.models import ReceivedMessage, messages_in

MessageT = TypeVar("MessageT", bound=ReceivedMessage)
log = get_logger(__name__)


class LargeBodies:
    """Of one consumer."""

    def __init__(self, finder: LeaderFinder) -> None:
        self._finder = finder

    async def see_to(self, messages: Sequence[ReceivedMessage]) -> None:
        """Have the bodies of messages there. One that can't be had raises when it is looked at."""
        for message in messages:
            if message.large_bytes and not message.is_whole:
                try:
                    message.take_body(await self._patiently(message))
                except DledgerError as error:
                    log.warning("body not fetched", message=repr(message), reason=str(error))
                    message.take_body(error)

    def before(
        self, handler: Callable[[Sequence[MessageT]], Awaitable[None] | None]
    ) -> Callable[[Sequence[MessageT]], Awaitable[None] | None]:
        """The handler, called with messages whose bodies are there. Its error is that of a body
        that can't be had, too."""

        async def fetch_first(messages: Sequence[MessageT]) -> None:
            for message in messages:
                if message.large_bytes and not message.is_whole:
                    message.take_body(await self._patiently(message))
            outcome = handler(messages)
            if inspect.isawaitable(outcome):
                await outcome

        def call(messages: Sequence[MessageT]) -> Awaitable[None] | None:
            if any(message.large_bytes for message in messages):
                return fetch_first(messages)
            return handler(messages)

        return call

    async def _patiently(self, message: ReceivedMessage) -> bytes:
        """Through a change of leaders."""
        attempt = 0
        until_s = anyio.current_time() + limits.LARGE_FETCH_S
        while True:
            attempt += 1
            try:
                return await self._fetch(message)
            except (RemotingError, NoLeader):
                if anyio.current_time() >= until_s:
                    raise
                await anyio.sleep(backoff_s(attempt))

    async def _fetch(self, message: ReceivedMessage) -> bytes:
        manifest = Manifest.decode(message.manifest)
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
        """One part at least. Raises RecordError if there is none."""
        header = look(
            *(limits.READERS_GROUP, queue.topic, queue.queue_id, offset, count),
            bytes_max=limits.LARGE_PULL_BYTES_MAX,
        )
        command = Command(RequestCode.PULL_MESSAGE, encode_header(header))
        answer = await self._finder.ask(
            queue.broker_name, command, limits.REQUEST_TIMEOUT_S, queue.topic
        )
        if answer.code != ResponseCode.SUCCESS:
            raise RecordError(
                f"message {offset} of {queue}, a part of a body, can't be read: code "
                f"{answer.code}, {answer.remark}. Retention may have removed it"
            )
        try:
            return messages_in(answer.payload, queue.broker_name)
        except BadInput as error:
            raise RecordError(f"message {offset} of {queue} can't be read: {error}") from error


def _gone(manifest: Manifest, offset: int) -> RecordError:
    return RecordError(
        f"message {offset} of {manifest.queue} is not the part of a body that it was"
    )
