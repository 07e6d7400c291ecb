"""Headers of the broker's administration requests.

GET_ALL_TOPIC_CONFIG (21), GET_BROKER_RUNTIME_INFO (28) and the like have none.
"""

from __future__ import annotations

from dledger.remoting.headers.base import Header
from dledger.remoting.numbers import Int32, Int64


class UpdateAndCreateTopicHeader(Header, frozen=True):
    """UPDATE_AND_CREATE_TOPIC (17). `perm` is a sum of 4 read, 2 write, 1 inherit.

    `changes` is ours: the fields that were named, by their names here, separated by commas. The
    other fields of an existing topic stay as they are. With `force` the change is made even if it
    makes messages unreachable.
    """

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    order: bool
    topic_sys_flag: Int32 | None = None
    attributes: str | None = None
    force: bool | None = None
    changes: str | None = None


class UpdateAndCreateSubscriptiongroupHeader(Header, frozen=True):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200). The body is the group's config.

    `changes` is ours: the body's fields that were named. The other fields of an existing group stay
    as they are.
    """

    changes: str | None = None


class DeleteTopicInBrokerHeader(Header, frozen=True):
    """DELETE_TOPIC_IN_BROKER (215)."""

    topic: str


class GetTopicConfigHeader(Header, frozen=True):
    """GET_TOPIC_CONFIG (351)."""

    topic: str


class GetTopicStatsInfoHeader(Header, frozen=True):
    """GET_TOPIC_STATS_INFO (202)."""

    topic: str


class GetConsumeStatsHeader(Header, frozen=True):
    """GET_CONSUME_STATS (208). Without `topic`: every topic that the group has offsets for.

    `reasons` is ours: whether the answer says why a queue's messages are not done.
    """

    consumer_group: str
    topic: str | None = None
    reasons: bool | None = None


class GetConsumerConnectionListHeader(Header, frozen=True):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


class InvokeBrokerToResetOffsetHeader(Header, frozen=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222): a group's offsets of one topic. `timestamp` is in ms; -1
    means the end.

    RocketMQ 5 may name one queue, and an offset instead of the timestamp.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 | None = None
    offset: Int64 | None = None


class GetConsumerRunningInfoHeader(Header, frozen=True):
    """GET_CONSUMER_RUNNING_INFO (307). The broker passes it on to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


class GetProducerConnectionListHeader(Header, frozen=True):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class QueryTopicConsumeByWhoHeader(Header, frozen=True):
    """QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    topic: str


class GetSubscriptiongroupConfigHeader(Header, frozen=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


class DeleteSubscriptiongroupHeader(Header, frozen=True):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None


class ViewBrokerStatsDataHeader(Header, frozen=True):
    """VIEW_BROKER_STATS_DATA (315), for example TOPIC_PUT_NUMS of a topic, or GROUP_GET_NUMS of
    "topic@group"."""

    stats_name: str
    stats_key: str


class GetBrokerConfigResponseHeader(Header, frozen=True):
    """The answer to GET_BROKER_CONFIG (26). `version` is a DataVersion as JSON; the body is
    properties text."""

    version: str


class QueryConsumeTimeSpanHeader(Header, frozen=True):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class CloneGroupOffsetHeader(Header, frozen=True):
    """CLONE_GROUP_OFFSET (314): the offsets of one topic, or of all topics that the source group
    has offsets for."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


class GetBrokerConsumeStatsHeader(Header, frozen=True):
    """GET_BROKER_CONSUME_STATS (317): all topics, or only ordered ones."""

    is_order: bool


class QueryConsumeQueueHeader(Header, frozen=True):
    """QUERY_CONSUME_QUEUE (321): `count` units from queue offset `index` on."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class QueryTopicsByConsumerHeader(Header, frozen=True):
    """QUERY_TOPICS_BY_CONSUMER (343)."""

    group: str


class QuerySubscriptionByConsumerHeader(Header, frozen=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str


class ViewHistoryHeader(Header, frozen=True):
    """VIEW_HISTORY (9017), ours, to any broker or name server: figures of its last hour, by pages.

    `after` is the number of the last row that the sender has; it is left out at first.
    """

    after: Int64 | None = None


class ViewHistoryResponseHeader(Header, frozen=True):
    """The answer to VIEW_HISTORY. `last` is the number of its last row; there are no further rows
    if it equals `newest`."""

    last: Int64
    newest: Int64
