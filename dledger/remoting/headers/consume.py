"""Headers of the requests that read messages and move offsets.

A queue offset counts messages of one queue; the commit-log offset that VIEW_MESSAGE_BY_ID and
CONSUMER_SEND_MSG_BACK carry is a byte position of the replicated log. Maximum offsets are
exclusive: the offset that the next message will get. Timestamps are milliseconds since 1970.
"""

from __future__ import annotations

from dledger.remoting.headers.base import Header
from dledger.remoting.numbers import Int32, Int64

#: Bits of `PullMessageHeader.sys_flag` (RocketMQ's PullSysFlag).
PULL_COMMIT_OFFSET = 1
PULL_SUSPEND = 2
PULL_SUBSCRIPTION = 4
PULL_CLASS_FILTER = 8
PULL_LITE = 16


class PullMessageHeader(Header, frozen=True):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).

    `life` is ours: the life of the topic that the offset belongs to, or 0 if the client does not
    know it.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    life: Int64 | None = None


class PullMessageResponseHeader(Header, frozen=True):
    """The answer to a pull, also if it found nothing (codes 0, 19, 20 and 21).

    `expiring` is ours: some of the messages will expire, so a client that keeps them for a while
    has to check. `life` is ours, too: the life of the topic, if the client named another life or
    none.
    """

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    expiring: bool | None = None
    life: Int64 | None = None


class QueryMessageHeader(Header, frozen=True):
    """QUERY_MESSAGE (12): messages with a key within a time window, in milliseconds."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64


class QueryMessageResponseHeader(Header, frozen=True):
    """The answer to QUERY_MESSAGE: how far the key index reached at that moment. `more` is ours:
    whether there may be more messages than the answer has."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64
    more: bool | None = None


class ViewMessageByIdHeader(Header, frozen=True):
    """VIEW_MESSAGE_BY_ID (33): one record by its commit-log offset."""

    offset: Int64
    topic: str | None = None


class ConsumerSendMsgBackHeader(Header, frozen=True):
    """CONSUMER_SEND_MSG_BACK (36): retry the message at commit-log `offset` later.

    Three fields are ours; other brokers ignore them. `delay_millis` is how long the message waits,
    instead of a level. `lock_token` is the token of the queue's lock. `pop_time` names the delivery
    of a popped message; if the message becomes a dead letter, the same entry acknowledges that
    delivery.
    """

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    delay_millis: Int64 | None = None
    lock_token: Int64 | None = None
    pop_time: Int64 | None = None


class ConsumerSendMsgBackResponseHeader(Header, frozen=True):
    """The answer to CONSUMER_SEND_MSG_BACK, ours, if `pop_time` was heeded. `late` is 1 if the
    message belonged to another member or was done already; then it was not stored."""

    late: Int32


class QueryConsumerOffsetHeader(Header, frozen=True):
    """QUERY_CONSUMER_OFFSET (14).

    `takes` and `waits_ms` are ours. `takes` says whether the asking member takes the queue over, or
    has given it up. If it takes the queue over, the answer may have the field `held`: another
    member has not given the queue up yet. `waits_ms` is how long the answer may wait for that.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    takes: bool | None = None
    waits_ms: Int64 | None = None


class QueryConsumerOffsetResponseHeader(Header, frozen=True):
    """The answer to QUERY_CONSUMER_OFFSET: the group's next offset to consume.

    Three fields are ours: `life` is the life of the topic, `begun_ms` the time at which the group
    began on this broker group, and `held` says whether another member still has the queue.
    """

    offset: Int64
    life: Int64 | None = None
    begun_ms: Int64 | None = None
    held: bool | None = None


class UpdateConsumerOffsetHeader(Header, frozen=True):
    """UPDATE_CONSUMER_OFFSET (15); one-way from a consumer's loop, two-way from the admin tools.

    Four fields are ours. With `lock_token` the commit counts only while the queue's lock has this
    token. `sought_back` says that the member has itself gone back behind offsets that it had read
    or committed; only then may its commit take the group back. `life` is the life of the topic to
    which the offset belongs. `gives_up` says that the member no longer reads the queue; the answer
    then has the field `givenUp`.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    lock_token: Int64 | None = None
    sought_back: bool | None = None
    life: Int64 | None = None
    gives_up: bool | None = None


class SearchOffsetByTimestampHeader(Header, frozen=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29). `boundary_type` is LOWER or UPPER in any case."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


class SearchOffsetByTimestampResponseHeader(Header, frozen=True):
    """The answer to SEARCH_OFFSET_BY_TIMESTAMP: the offset of the first message stored at or after
    the timestamp; past the end, the maximum offset."""

    offset: Int64


class GetMaxOffsetHeader(Header, frozen=True):
    """GET_MAX_OFFSET (30)."""

    topic: str
    queue_id: Int32
    committed: bool | None = None


class GetMaxOffsetResponseHeader(Header, frozen=True):
    """The answer to GET_MAX_OFFSET: the offset that the next message of the queue will get."""

    offset: Int64


class GetMinOffsetHeader(Header, frozen=True):
    """GET_MIN_OFFSET (31)."""

    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(Header, frozen=True):
    """The answer to GET_MIN_OFFSET: the offset of the oldest message that is still there."""

    offset: Int64


class GetEarliestMsgStoretimeHeader(Header, frozen=True):
    """GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(Header, frozen=True):
    """The answer to GET_EARLIEST_MSG_STORETIME: the time at which the oldest message of the queue
    was stored."""

    timestamp: Int64


class ListScheduledHeader(Header, frozen=True):
    """LIST_SCHEDULED (9010), ours: the next messages that are due at `begin_ms` or later."""

    begin_ms: Int64
    count: Int32


class ListScheduledResponseHeader(Header, frozen=True):
    """The answer to LIST_SCHEDULED. `due_ms` has the time at which each record of the body is due,
    separated by blanks; `waiting` is the number of messages that wait on this broker group."""

    due_ms: str
    waiting: Int64
