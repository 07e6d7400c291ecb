"""Reads ranges of queues: all messages from one offset to another, or which of them are missing.

This is for programs that keep their own positions and may read a range again, for example a data
pipeline. No group is needed, and nothing is committed unless the program asks for it. Pulls have
the group name of RocketMQ's tools, so brokers give all messages that are there, also those that
have expired meanwhile: a range that is read twice is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

import anyio

from dledger.errors import BadInput, RecordError, RemotingError
from dledger.observe import get_logger
from dledger.remoting.bodies import (
    BrokerData,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    TopicStats,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GetEarliestMsgStoretimeHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetTopicStatsInfoHeader,
    PullMessageHeader,
    PullMessageResponseHeader,
    UpdateConsumerOffsetHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.headers.consume import PULL_SUBSCRIPTION
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.names import PERM_READ
from dledger.tls.options import AskedTls
from mqclient import limits, tables
from mqclient.admin.messages import offset_at
from mqclient.admin.session import AdminSession, SessionClient, run_for_each
from mqclient.admin.topics import Topics
from mqclient.connection.answers import checked_offset
from mqclient.connection.credentials import Credentials
from mqclient.connection.retry import backoff_s, retry_after_s
from mqclient.consuming.sharing.beginnings import ask_place
from mqclient.consuming.subscriptions import ALL, Sql, parse_subscription
from mqclient.errors import NoLeader, NoRoute, Refused
from mqclient.large.fetching import LargeBodies
from mqclient.models import ReceivedMessage
from mqclient.ranges.pieces import DELETED, TRUNCATED, Piece, all_missing, piece_of
from mqclient.signatures import checked

log = get_logger(__name__)

_ANSWERS = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class Bounds(NamedTuple):
    """Offsets of a queue: from `begin` to before `end`. `life` is the life of the topic on its
    broker group, 0 if the brokers don't know lives."""

    begin: int
    end: int
    life: int


class TopicBounds(NamedTuple):
    """The queues of a topic that can be read.

    `answered` are the broker groups that have answered: a queue of theirs that is not listed does
    not exist. `silent` are broker groups that have or had the topic, and either can't be asked now
    or must not be read. Nothing is known of other broker groups."""

    queues: Mapping[MessageQueue, Bounds]
    answered: frozenset[str]
    silent: frozenset[str]


@checked
class RangeReader(SessionClient):
    """A client that reads ranges of queues. A request ends after `timeout_s`.

    A read waits up to `patience_s` for a broker group that does not serve. `user` and `secret`, its
    password, sign each request; without a user, `secret` is the cluster's secret.
    """

    def __init__(
        self,
        namesrv_addr: str = limits.NAMESRV_ADDR,
        *,
        timeout_s: float = limits.REQUEST_TIMEOUT_S,
        patience_s: float = limits.RANGE_PATIENCE_S,
        user: str | None = None,
        secret: str | None = None,
        tls: AskedTls = None,
    ) -> None:
        tables.needed("reading by ranges")
        credentials = Credentials.of(user, secret)
        super().__init__(AdminSession(namesrv_addr, timeout_s, credentials=credentials, tls=tls))
        self._leaders = self._requests.leaders
        self._large = LargeBodies(self._leaders)
        self._patience_s = patience_s

    async def topics(self) -> list[str]:
        """The topics of applications, sorted."""
        return [info.topic for info in await Topics(self._session).list() if info.kind == "user"]

    async def bounds(self, topic: str, known: Collection[str] = ()) -> TopicBounds:
        """The queues of a topic on all broker groups that answer. `known` broker groups are asked
        even if the route lacks them.

        A topic that does not exist has no queues. Raises RemotingError if no name server answers.
        """
        self.check_open()
        brokers: dict[str, BrokerData] = {}
        silent: set[str] = set()
        with suppress(NoRoute):
            route = await self._session.route(topic)
            brokers = {broker.broker_name: broker for broker in route.broker_datas}
            silent = {row.broker_name for row in route.absent_queue_datas or ()}
        if not set(known) <= brokers.keys():
            table = (await self._requests.cluster_info()).broker_addr_table
            brokers |= {name: table[name] for name in known if name in table}
        found = await run_for_each(lambda broker: self._bounds_on(broker, topic), brokers.values())
        heard = {name: each for name, each in zip(brokers, found, strict=True) if each is not None}
        queues = {queue: bounds for each in heard.values() for queue, bounds in each.items()}
        silent = (silent | brokers.keys()) - heard.keys()
        return TopicBounds(dict(sorted(queues.items())), frozenset(heard), frozenset(silent))

    async def _bounds_on(self, broker: BrokerData, topic: str) -> dict[MessageQueue, Bounds] | None:
        """The queues on one broker group; None if it gives no answer, or must not be read."""
        try:
            config = await self._requests.topic_config(broker, topic)
            if config is None:
                return {}
            if not config.perm & PERM_READ:
                return None
            life = await self._life(MessageQueue(topic, broker.broker_name, 0))
            header = GetTopicStatsInfoHeader(topic=topic)
            answer = await self._requests.ask_leader(broker, header)
        except (RemotingError, NoLeader, Refused) as error:
            log.warning("group not asked", broker=broker.broker_name, reason=str(error))
            return None
        table = decode_body(TopicStats, answer.payload).offset_table
        return {
            MessageQueue(topic, broker.broker_name, queue.queue_id): Bounds(
                checked_offset(row.min_offset, f"the first offset of {queue}"),
                checked_offset(row.max_offset, f"the end of {queue}"),
                life,
            )
            for queue, row in table.items()
            if 0 <= queue.queue_id < config.read_queue_nums
        }

    async def _life(self, queue: MessageQueue) -> int:
        """The life of a topic on one broker group; 0 if it is RocketMQ's."""
        answer = await ask_place(self._leaders, limits.READERS_GROUP, queue)
        life = answer.ext.get("life", 0)
        return life if isinstance(life, int) and life > 0 else 0

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after a time; without one, the end."""
        (broker,) = await self._session.broker_groups(broker=queue.broker_name)
        return await offset_at(self._session, broker, queue, timestamp_ms)

    async def stored_ms(self, queue: MessageQueue) -> int:
        """The time at which a queue's oldest message was stored, in ms; -1 for an empty queue."""
        header = GetEarliestMsgStoretimeHeader(topic=queue.topic, queue_id=queue.queue_id)
        (broker,) = await self._session.broker_groups(broker=queue.broker_name)
        answer = await self._requests.ask_leader(broker, header)
        return decode_header(GetEarliestMsgStoretimeResponseHeader, answer).timestamp

    async def read(
        self,
        queue: MessageQueue,
        begin: int,
        end: int,
        *,
        life: int = 0,
        expression: str | Sql = ALL,
        messages: int = limits.PULL_RECORDS_MAX,
        size_bytes: int = limits.PULL_BYTES_MAX,
    ) -> Piece:
        """Read from `begin` towards `end`: one answer of a broker. Call again with its
        `next_offset` as `begin`, until that is `end`.

        `life` is the life of the topic to which the offsets belong. Brokers compare tags only by
        their hashes: with an `expression` of tags, the result may have messages with other tags.
        Raises BadInput for offsets that are not a range, Refused if the broker does not give them,
        NoLeader or RemotingError if no broker answers.
        """
        self.check_open()
        if not 0 <= begin <= end:
            raise BadInput(f"offsets {begin} to {end} are not a range of {queue}")
        if begin == end:
            return Piece(end)
        wanted = parse_subscription(queue.topic, expression, 0)
        header = PullMessageHeader(
            consumer_group=limits.READERS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=begin,
            max_msg_nums=min(messages, end - begin),
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=wanted.sub_string,
            expression_type=wanted.expression_type,
            max_msg_bytes=size_bytes,
            life=life or None,
        )
        command = Command(RequestCode.PULL_MESSAGE, encode_header(header))
        until_s = anyio.current_time() + self._patience_s
        cut_s = anyio.current_time() + limits.RANGE_TRUNCATED_S
        attempt = 0
        while True:
            attempt += 1
            answer = await self._answer(queue.broker_name, command, until_s, queue.topic)
            piece = self._piece(queue, begin, end, answer, filtered=wanted.sub_string != ALL)
            seems_cut = any(gap.why == TRUNCATED for gap in piece.gaps)
            if piece.next_offset > begin and (not seems_cut or anyio.current_time() >= cut_s):
                return piece
            if anyio.current_time() >= until_s:
                raise Refused(f"reading {queue} from {begin}", "its leader", answer.code, "nothing")
            await anyio.sleep(retry_after_s(answer) or backoff_s(attempt))

    @staticmethod
    def _piece(
        queue: MessageQueue, begin: int, end: int, answer: Command, *, filtered: bool
    ) -> Piece:
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return all_missing(begin, end, DELETED)
        if answer.code == ResponseCode.SYSTEM_BUSY:
            return Piece(begin)
        if answer.code not in _ANSWERS:
            what = f"reading {queue} from {begin}"
            raise Refused(what, "its leader", answer.code, answer.remark)
        header = decode_header(PullMessageResponseHeader, answer)
        return piece_of(
            begin, end, queue.queue_id, answer.code, header, answer.payload, filtered=filtered
        )

    async def body(self, message: ReceivedMessage) -> bytes:
        """The whole body of a message, fetched if its parts are elsewhere. Raises RecordError."""
        until_s = anyio.current_time() + self._patience_s
        await self._large.wait_for([message], until_s)
        if message.large_bytes and not message.is_whole:
            raise RecordError(f"the broker group with the parts of {message!r} does not serve")
        return message.body

    async def commit(self, group: str, offsets: Mapping[MessageQueue, tuple[int, int]]) -> None:
        """Commit the next offsets of queues for a group. `offsets` has an offset and the life that
        it belongs to for each queue.

        An offset may also go back, as with an operator's tool. Raises Refused, NoLeader or
        RemotingError.
        """
        self.check_open()

        async def commit(queue: MessageQueue) -> None:
            offset, life = offsets[queue]
            header = UpdateConsumerOffsetHeader(
                consumer_group=group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=offset,
                life=life or None,
            )
            command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, encode_header(header))
            what = f"the commit of {queue} for group {group!r}"
            await self._leaders.granted(
                what, queue.broker_name, queue.topic, command, self._timeout_s
            )

        await run_for_each(commit, offsets)

    async def present(self, group: str, client_id: str, queue: MessageQueue) -> None:
        """Tell the broker group of a queue that this client reads for `group`. Brokers remember it
        for two minutes, or until this client is closed. Brokers that don't answer are left out."""
        self.check_open()
        data = ConsumerData(
            group_name=group,
            consume_type="CONSUME_ACTIVELY",
            subscription_data_set=[SubscriptionData(queue.topic)],
        )
        body = encode_body(HeartbeatData(client_id, [], [data]))

        async def tell(address: str) -> None:
            with suppress(RemotingError):
                await self._requests.ask(address, RequestCode.HEART_BEAT, body=body)

        with anyio.move_on_after(self._timeout_s):
            await self._leaders.find(queue.broker_name, queue.topic)
        await run_for_each(tell, self._leaders.routes.members(queue.broker_name))
