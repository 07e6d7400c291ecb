"""Requests that wait for a reply, and replies on their way: RocketMQ's request-reply.

A request is an ordinary message with four more properties: the client that asks, the id of the
question, how long it waits for the reply, and the cluster, from which stock repliers derive where
to send. The consumer sends its reply to a broker, which pushes it to the client that asked, over
the connection of that client's heartbeats. Replies are not stored: one that comes after the
deadline, or for a client that is gone, is lost, and the client may ask again.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio

from dledger.errors import BadInput, RecordError
from dledger.remoting import message as wire
from dledger.remoting.bodies import HeartbeatData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    PushReplyMessageToClientHeader,
    SendMessageV2Header,
    decode_header,
    encode_header,
)
from dledger.remoting.record import COMPRESSED
from dledger.world import seconds_left, steady_s, unix_ms
from mqclient import limits
from mqclient.compression import inflate
from mqclient.connection.session import Session
from mqclient.errors import BadMessage, BufferFull, ClientClosed, NoReply, NoRoute, Refused
from mqclient.models import Message, ReceivedMessage, Reply, SendResult
from mqclient.user_properties import OwnProperties, encode_properties


@dataclass(slots=True)
class _Expected:
    """A reply that is waited for, or has come."""

    came: anyio.Event
    reply: Reply | RecordError | ClientClosed | None = None


class Questions:
    """The requests and replies of one client of a producer group, by the id of each question."""

    def __init__(
        self, session: Session, group: str, heartbeat: Callable[[], HeartbeatData]
    ) -> None:
        self._session = session
        self._group = group
        self._heartbeat = heartbeat
        self._known_to: set[str] = set()
        self._expected: dict[str, _Expected] = {}

    async def ask(
        self,
        message: Message,
        send: Callable[[Message, float], Awaitable[SendResult]],
        timeout_s: float,
    ) -> Reply:
        """Send a message as a request and wait for its reply; the topic's route is known.

        `send` gets the message with the properties of a request, and the time that is left.
        """
        deadline_s = steady_s() + timeout_s
        if len(self._expected) >= limits.REPLIES_AWAITED_MAX:
            reason = f"{limits.REPLIES_AWAITED_MAX} requests wait for their replies"
            raise BufferFull(reason, message.topic, "", message.unique_key or "without a key yet")
        question = await self._question(message, timeout_s)
        correlation_id = question[wire.CORRELATION_ID]
        expected = self._expected[correlation_id] = _Expected(anyio.Event())
        try:
            sent = await send(replace(message, properties=question), seconds_left(deadline_s))
            with anyio.move_on_after(deadline_s - steady_s()):
                await expected.came.wait()
        finally:
            del self._expected[correlation_id]
        if expected.reply is None:
            raise NoReply(message.topic, sent.message_id, timeout_s)
        if isinstance(expected.reply, RecordError | ClientClosed):
            raise expected.reply
        return expected.reply

    def close(self) -> None:
        """No reply will come any more: tell all who wait for one."""
        for expected in self._expected.values():
            if expected.reply is None:
                expected.reply = ClientClosed(
                    "this Producer was closed before the reply came; the request may be stored"
                )
                expected.came.set()

    async def reply(
        self,
        to: ReceivedMessage,
        body: bytes,
        properties: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        """Ask the leader that the request came from to push a reply; see `Producer.reply`."""
        now_ms = unix_ms()
        command = reply_request(to, body, properties, group=self._group, now_ms=now_ms)
        answer = await self._session.finder.ask(to.broker_name, command, timeout_s, to.topic)
        if answer.code != ResponseCode.SUCCESS:
            what = f"the reply to message {to.message_id}"
            raise Refused(what, to.broker_name, answer.code, answer.remark)

    def take(self, push: Command) -> Command | None:
        """Take a reply that a broker pushes; drop it if no call waits for it any more."""
        if push.code != RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return None
        header = decode_header(PushReplyMessageToClientHeader, push)
        properties = wire.properties_decode((header.properties or "").encode())
        expected = self._expected.get(properties.get(wire.CORRELATION_ID, ""))
        if expected is not None:
            expected.reply = _reply(bytes(push.payload), header.sys_flag, properties)
            expected.came.set()
        return push.reply()

    async def _question(self, message: Message, timeout_s: float) -> dict[str, str]:
        """The properties of a request. Before they are made the brokers must know this client."""
        route = await self._session.route(message.topic, "publish to")
        cluster = self._session.routes.cluster(route.broker_names[0])
        if not self._known_to.issuperset(self._session.routes.broker_names()):
            with suppress(NoRoute):
                # Stock repliers may take any broker that has this topic.
                await self._session.route(cluster + wire.REPLY_SUFFIX, "reply by")
            names = self._session.routes.broker_names()
            await self._session.heartbeats.tell(self._heartbeat())
            self._known_to.update(names)
        asked = {
            wire.CORRELATION_ID: uuid.uuid4().hex,
            wire.REPLY_TO_CLIENT: self._session.client_id,
            wire.TTL: str(round(min(timeout_s, limits.TTL_S_MAX) * 1000)),
            wire.CLUSTER: cluster,
        }
        try:
            return OwnProperties.of(message.properties, asked)
        except BadInput as error:
            raise BadMessage(f"request to topic {message.topic!r}: {error}") from error


def reply_request(
    to: ReceivedMessage, body: bytes, properties: Mapping[str, str], *, group: str, now_ms: int
) -> Command:
    """The request that carries a reply. Raises BadMessage if `to` asks for none."""
    asked = to.properties
    if not {wire.CORRELATION_ID, wire.REPLY_TO_CLIENT} <= asked.keys():
        raise BadMessage(f"{to!r} asks for no reply: it was sent, not requested")
    try:
        own = OwnProperties.of(properties, {wire.MSG_TYPE: "reply"})
    except BadInput as error:
        raise BadMessage(f"reply to {to!r}: {error}") from error
    for name in (wire.CORRELATION_ID, wire.REPLY_TO_CLIENT, wire.TTL):
        if name in asked:
            own[name] = asked[name]
    header = SendMessageV2Header(
        a=group,
        b=asked.get(wire.CLUSTER, "") + wire.REPLY_SUFFIX,
        c=wire.DEFAULT_TOPIC,
        d=1,
        e=0,
        f=0,
        g=now_ms,
        h=0,
        i=encode_properties(own).decode(),
    )
    return Command(RequestCode.SEND_REPLY_MESSAGE_V2, encode_header(header), body)


def _reply(body: bytes, sys_flag: int, properties: Mapping[str, str]) -> Reply | RecordError:
    """A reply as its sender wrote it; or the error if it can't be inflated."""
    try:
        if sys_flag & COMPRESSED:
            body = inflate(body, sys_flag, "the body of a reply")
    except RecordError as error:
        return error
    return Reply(body, properties)
