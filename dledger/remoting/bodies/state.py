"""The state of a broker, for administration tools: offsets of queues and groups, connections."""

# ruff: noqa: RUF012 -- msgspec gives every struct its own copy of a mutable default

from __future__ import annotations

import msgspec

from dledger.remoting.bodies.base import Body
from dledger.remoting.bodies.groups import SubscriptionData
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.numbers import Int32, Int64


class TopicOffset(Body):
    """How far one queue reaches: offsets from `min_offset` up to, without, `max_offset`; ms."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStats(Body):
    """Answer to GET_TOPIC_STATS_INFO: offsets of each queue."""

    offset_table: dict[MessageQueue, TopicOffset] = {}


class OffsetWrapper(Body):
    """How far a group is in one queue: `broker_offset` is the queue's maximum; ms."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    #: Up to where it has pulled; tools of 5.x show what lies between as in flight.
    pull_offset: Int64 = 0
    #: Ours, if asked for: messages in hand, why the others are not done in a word and in words, and
    #: since when; ms, 0 if nothing tells.
    in_flight: Int64 | None = None
    state: str | None = None
    reason: str | None = None
    since: Int64 | None = None


class ConsumeStats(Body):
    """Answer to GET_CONSUME_STATS: a group's progress in each queue, and its messages per
    second."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0
    #: Ours, if reasons were asked for: messages a second that come into these topics.
    produce_tps: float | None = None


class ResetOffsetBody(Body):
    """INVOKE_BROKER_TO_RESET_OFFSET's answer, RESET_CONSUMER_CLIENT_OFFSET: the new offsets."""

    offset_table: dict[MessageQueue, Int64] = {}


class QueueOffset(Body):
    """A queue and an offset in it, for clients that can't read maps keyed by queues."""

    topic: str
    broker_name: str
    queue_id: Int32
    offset: Int64


class ResetOffsetListBody(Body):
    """Body of RESET_CONSUMER_CLIENT_OFFSET, in the form that C++ clients read."""

    offset_table: list[QueueOffset] = []


class ConsumerStatusFromClientBody(Body):
    """GET_CONSUMER_STATUS_FROM_CLIENT: how far the client has come in each of its queues."""

    message_queue_table: dict[MessageQueue, Int64] = {}


class ConsumerStatusBody(Body):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: the same, by client id."""

    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}


class BrokerStatsItem(Body):
    """A figure over one span: its sum, its sum per second, and per operation."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """Answer to VIEW_BROKER_STATS_DATA: one key's figures over a minute, an hour and a day."""

    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem


class GroupList(Body):
    """Answer to QUERY_TOPIC_CONSUME_BY_WHO: names of the groups that read the topic."""

    group_list: list[str] = []


class ClientConnection(Body):
    """A client of a group, as the broker sees it."""

    client_id: str
    client_addr: str
    language: str = "PYTHON"
    version: Int32 = 0


class ConsumerConnection(Body):
    """Answer to GET_CONSUMER_CONNECTION_LIST: a group's clients, and what they subscribe to."""

    connection_set: list[ClientConnection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    differing: dict[str, str] | None = None
    """Ours: what each client subscribes to, if those of the group do not agree."""


class HistoryBody(Body):
    """VIEW_HISTORY: a row for each time, with a number for each name; ms."""

    names: list[str] = []
    times: list[Int64] = []
    rows: list[list[float]] = []


class ProcessQueueInfo(Body):
    """A queue within a consumer: its committed offset, and the messages that wait to be
    consumed."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int64 = 0
    cached_msg_size_in_mib: Int64 = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    locked: bool = False
    droped: bool = False
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class ConsumerRunningInfo(Body):
    """GET_CONSUMER_RUNNING_INFO: what a consumer says of itself."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    status_table: dict[str, dict[str, float]] = {}


class ProducerConnection(Body):
    """Answer to GET_PRODUCER_CONNECTION_LIST: a group's connected producers."""

    connection_set: list[ClientConnection] = []


class ProducerInfo(Body):
    """A client of a producer group; `last_update_timestamp` is its last heartbeat's, in ms."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str = "PYTHON"
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTableInfo(Body):
    """Answer to GET_ALL_PRODUCER_INFO: connected producers by group."""

    data: dict[str, list[ProducerInfo]] = {}


class QueueTimeSpan(Body):
    """The store times of a queue's first and last message, and where a group is; ms.

    `delay_time` is how long the next message has been waiting for the group.
    """

    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0


class QueryConsumeTimeSpanBody(Body):
    """Answer to QUERY_CONSUME_TIME_SPAN: store times of each queue, in unix ms."""

    consume_time_span_set: list[QueueTimeSpan] = []


class ConsumeStatsList(Body):
    """GET_BROKER_CONSUME_STATS: of each group the progress in each of its topics."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str = ""
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class ConsumeQueueData(Body):
    """A unit of a consume queue."""

    physic_offset: Int64
    physic_size: Int32
    tags_code: Int64


class QueryConsumeQueueResponseBody(Body):
    """Answer to QUERY_CONSUME_QUEUE: units of a queue. `max_queue_index` is the offset of the next
    message to come."""

    max_queue_index: Int64
    min_queue_index: Int64
    queue_data: list[ConsumeQueueData] = []
    subscription_data: SubscriptionData | None = None


class QuerySubscriptionResponseBody(Body):
    """QUERY_SUBSCRIPTION_BY_CONSUMER: what the group's members want now, if any is there."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None
