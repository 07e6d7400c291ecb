"""Requests by code: which handler answers, and what needs the leader.

Followers hold the same state, but only a leader knows that nothing newer is acknowledged; so reads
of messages and offsets need it too. Clients' heartbeats, member lists and questions about the
replica itself are answered everywhere.

A leader that was cut off is the last to know it. What would be wrong if it were stale, offsets and
the ends of queues, is answered only when a majority has confirmed, after the request came, that
this replica still leads. Messages are not: an old leader's are a part of what the new one has.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol, TypeAlias

from dledger.errors import AppendError, NotConfirmed, StorageError
from dledger.net import Connection
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from mqbroker.refusal import Refused, unreadable
from mqbroker.requests.admin.broker import BrokerAdminHandler
from mqbroker.requests.admin.groups import GroupAdminHandler
from mqbroker.requests.admin.leadership import LeadershipHandler
from mqbroker.requests.admin.topics import TopicAdminHandler
from mqbroker.requests.core import Core
from mqbroker.requests.forwarding import Forwarding
from mqbroker.requests.groups.assignment import AssignmentHandler
from mqbroker.requests.groups.clients import ClientHandler
from mqbroker.requests.groups.progress import ProgressHandler
from mqbroker.requests.groups.relays import RelayHandler
from mqbroker.requests.groups.resets import ResetHandler
from mqbroker.requests.reading.lookups import LookupHandler
from mqbroker.requests.reading.pull import PullHandler
from mqbroker.requests.reading.queries import QueryHandler
from mqbroker.requests.sending.produce import ProduceHandler
from mqbroker.requests.sending.recall import RecallHandler
from mqbroker.requests.sending.request_reply import ReplyHandler
from mqbroker.requests.sending.send import SendHandler
from mqbroker.requests.sending.send_back import SendBackHandler
from mqbroker.requests.sending.transactions import TransactionHandler
from mqbroker.requests.unsupported import not_supported

Answer: TypeAlias = "Command | Awaitable[Command | None] | None"
HandlerMethod: TypeAlias = Callable[[Command, Connection], Answer]


CONFIRMED_FIRST = frozenset(
    {RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET}
)


class Departures(Protocol):
    """Who must know that a connection is gone."""

    def disconnected(self, connection: Connection) -> None:
        """The connection is gone."""


class Dispatcher:
    """The handler that `serve_remoting` runs."""

    def __init__(
        self,
        core: Core,
        everywhere: Mapping[int, HandlerMethod],
        leader_only: Mapping[int, HandlerMethod],
        departures: Departures,
    ) -> None:
        self._core = core
        self._everywhere = everywhere
        self._leader_only = leader_only
        self._departures = departures
        self._forwarding = Forwarding(core)

    def __call__(self, request: Command, connection: Connection) -> Answer:
        """Answer a request, at once or later."""
        try:
            handler = self._everywhere.get(request.code) or self._led(request)
            answer = handler(request, connection)
        except Refused as refused:
            return self._core.replies.refusal(request, connection, refused)
        except StorageError as error:
            return self._core.replies.refusal(request, connection, unreadable(error))
        if inspect.isawaitable(answer):
            return self._later(request, connection, answer)
        return answer

    def _led(self, request: Command) -> HandlerMethod:
        """The handler of what needs the leader: its own, or the way there."""
        handler = self._leader_only.get(request.code)
        if handler is None:
            raise not_supported(request.code)
        role = self._core.role
        if not role.serving and self._forwarding.takes(request):
            return lambda request, _: self._forwarding.forward(request)
        role.check_serving()
        if request.code in CONFIRMED_FIRST:
            return partial(self._when_confirmed, handler)
        return handler

    def connected(self, connection: Connection) -> None:
        """Nothing to note: a connection is known by its first heartbeat."""

    def disconnected(self, connection: Connection) -> None:
        """Pass it on."""
        self._departures.disconnected(connection)

    async def _when_confirmed(
        self, handler: HandlerMethod, request: Command, connection: Connection
    ) -> Command | None:
        await self._core.log.read_index()
        answer = handler(request, connection)
        return await answer if inspect.isawaitable(answer) else answer

    async def _later(
        self, request: Command, connection: Connection, answer: Awaitable[Command | None]
    ) -> Command | None:
        try:
            return await answer
        except Refused as refused:
            return self._core.replies.refusal(request, connection, refused)
        except StorageError as error:
            return self._core.replies.refusal(request, connection, unreadable(error))
        except (AppendError, NotConfirmed) as error:
            not_done = self._core.role.refusal_of(error)
            return self._core.replies.refusal(request, connection, not_done)


def answered_everywhere(
    clients: ClientHandler,
    assignment: AssignmentHandler,
    broker: BrokerAdminHandler,
    topics: TopicAdminHandler,
) -> dict[int, HandlerMethod]:
    """What every replica answers."""
    return {
        RequestCode.HEART_BEAT: clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: clients.unregister,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
        RequestCode.CHECK_CLIENT_CONFIG: clients.check_config,
        RequestCode.QUERY_ASSIGNMENT: assignment.query,
        RequestCode.GROUP_INFO: broker.group_info,
        RequestCode.GET_BROKER_CONFIG: broker.config,
        RequestCode.GET_BROKER_RUNTIME_INFO: broker.runtime,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: broker.nothing_to_clean,
        RequestCode.CLEAN_UNUSED_TOPIC: broker.nothing_to_clean,
        RequestCode.DELETE_EXPIRED_COMMITLOG: broker.nothing_to_clean,
        RequestCode.VIEW_BROKER_STATS_DATA: broker.statistics,
        RequestCode.GET_ALL_TOPIC_CONFIG: topics.all_topics,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.system_topics,
    }


def answered_by_leader(
    produce: ProduceHandler,
    send: SendHandler,
    send_back: SendBackHandler,
    pull: PullHandler,
    lookups: LookupHandler,
    queries: QueryHandler,
    transactions: TransactionHandler,
    replies: ReplyHandler,
    recalls: RecallHandler,
) -> dict[int, HandlerMethod]:
    """Messages and offsets: what the leader answers."""
    return {
        RequestCode.PRODUCE: produce.produce,
        RequestCode.SEND_MESSAGE: send.send,
        RequestCode.SEND_MESSAGE_V2: send.send,
        RequestCode.SEND_BATCH_MESSAGE: send.send_batch,
        RequestCode.SEND_REPLY_MESSAGE: replies.reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply,
        RequestCode.RECALL_MESSAGE: recalls.recall,
        RequestCode.CONSUMER_SEND_MSG_BACK: send_back.send_back,
        RequestCode.END_TRANSACTION: transactions.end,
        RequestCode.PULL_MESSAGE: pull.pull,
        RequestCode.LITE_PULL_MESSAGE: pull.pull,
        RequestCode.GET_MAX_OFFSET: lookups.max_offset,
        RequestCode.GET_MIN_OFFSET: lookups.min_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lookups.search_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: lookups.earliest_store_time,
        RequestCode.VIEW_MESSAGE_BY_ID: lookups.view_message,
        RequestCode.QUERY_MESSAGE: queries.query,
        RequestCode.QUERY_CONSUMER_OFFSET: lookups.consumer_offset,
        RequestCode.UPDATE_CONSUMER_OFFSET: lookups.commit_offset,
    }


def administered_by_leader(
    clients: ClientHandler,
    broker: BrokerAdminHandler,
    topics: TopicAdminHandler,
    groups: GroupAdminHandler,
    progress: ProgressHandler,
    resets: ResetHandler,
    relays: RelayHandler,
    leadership: LeadershipHandler,
) -> dict[int, HandlerMethod]:
    """Locks, settings, topics, groups and its own office: what the leader answers."""
    return {
        RequestCode.TRANSFER_LEADER: leadership.transfer,
        RequestCode.ADD_MEMBER: leadership.add_member,
        RequestCode.REMOVE_MEMBER: leadership.remove_member,
        RequestCode.UPDATE_BROKER_CONFIG: broker.update_config,
        RequestCode.LOCK_BATCH_MQ: clients.lock,
        RequestCode.UNLOCK_BATCH_MQ: clients.unlock,
        RequestCode.UPDATE_AND_CREATE_TOPIC: topics.put_topic,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: topics.put_topics,
        RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete_topic,
        RequestCode.QUERY_CONSUME_QUEUE: topics.consume_queue,
        RequestCode.GET_TOPIC_CONFIG: topics.topic_config,
        RequestCode.GET_TOPIC_STATS_INFO: topics.topic_stats,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.put_group,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups.put_groups,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.delete_group,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.all_groups,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.group_config,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: groups.consumers,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: groups.producers,
        RequestCode.GET_ALL_PRODUCER_INFO: groups.all_producers,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: groups.topics_of_group,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: groups.subscription,
        RequestCode.GET_CONSUME_STATS: progress.consume_stats,
        RequestCode.GET_BROKER_CONSUME_STATS: progress.broker_stats,
        RequestCode.QUERY_CONSUME_TIME_SPAN: progress.time_span,
        RequestCode.CLONE_GROUP_OFFSET: progress.clone,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: groups.groups_of_topic,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: resets.reset,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: relays.consumer_status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: relays.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: relays.consume_directly,
    }
