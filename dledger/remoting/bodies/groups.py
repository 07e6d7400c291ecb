"""Consumers and their groups: heartbeats, subscriptions, queue locks, settings."""

# ruff: noqa: RUF012 -- msgspec gives every struct its own copy of a mutable default

from __future__ import annotations

import msgspec

from dledger.remoting.bodies.base import Body, ClientBody, ToolBody
from dledger.remoting.bodies.routes import DataVersion
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.numbers import Int32, Int64


class SubscriptionData(Body, gc=False):
    """A consumer's subscription to one topic. `code_set` holds `message.tags_code` of every tag.

    A broker keeps many, so the garbage collector, which stops the loop, does not track them.
    """

    topic: str
    sub_string: str = "*"
    tags_set: tuple[str, ...] = ()
    code_set: tuple[Int64, ...] = ()
    sub_version: Int64 = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body):
    """A producer group that the client belongs to."""

    group_name: str


# RocketMQ's enums in their order: C++ clients send a constant's number instead of its name.
_CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
_MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
_CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class ConsumerData(Body):
    """A consumer group that the client belongs to.

    The three enums may be read as numbers, and are RocketMQ's names afterwards. The last three
    fields are ours: how its members share queues out, whether one that subscribes to something
    else than the others wants to be refused, and which queues the member has paused (without a
    broker's name: all of a topic).
    """

    group_name: str
    consume_type: str | int = "CONSUME_PASSIVELY"
    message_model: str | int = "CLUSTERING"
    consume_from_where: str | int = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False
    allocation: str | None = None
    same_subscriptions: bool = False
    paused: list[MessageQueue] | None = None

    def __post_init__(self) -> None:
        self.consume_type = _name(self.consume_type, _CONSUME_TYPES)
        self.message_model = _name(self.message_model, _MESSAGE_MODELS)
        self.consume_from_where = _name(self.consume_from_where, _CONSUME_FROM_WHERE)


def _name(value: str | int, names: tuple[str, ...]) -> str:
    """An enum's constant by its name. Raises ValueError for a number that it does not have."""
    if isinstance(value, str):
        return value
    if not 0 <= value < len(names):
        raise ValueError(f"{value} is not the number of one of {', '.join(names)}")
    return names[value]


class HeartbeatData(ClientBody):
    """HEART_BEAT: every group of one client."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []


class CheckClientConfigBody(ClientBody):
    """CHECK_CLIENT_CONFIG: would this subscription be accepted?"""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


class ConsumerIdList(Body):
    """Answer to GET_CONSUMER_LIST_BY_GROUP: ids of the clients that are connected."""

    consumer_id_list: list[str] = []


class QueryAssignmentBody(ClientBody):
    """QUERY_ASSIGNMENT: which queues of a topic are this member's?"""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str | int = "CLUSTERING"

    def __post_init__(self) -> None:
        self.message_model = _name(self.message_model, _MESSAGE_MODELS)


class QueueAssignment(Body):
    """A queue of a member, and how it is read: "PULL" or "POP"."""

    message_queue: MessageQueue
    mode: str = "PULL"


class QueryAssignmentResponseBody(Body):
    """Answer to QUERY_ASSIGNMENT: None tells the client to keep its queues, [] that it has none."""

    message_queue_assignments: list[QueueAssignment] | None = None


class SetMessageRequestModeBody(ClientBody):
    """SET_MESSAGE_REQUEST_MODE: how a group's members read a topic whose queues the broker shares
    out; with POP how many further members each queue is shared with, below 1 all. The number stays
    as it is if none is given (ours; stock tools always give one)."""

    topic: str
    consumer_group: str
    mode: str
    pop_share_queue_num: Int32 | None = None


class BatchAck(Body):
    """Messages of one delivery that are done. Each member has a short name and a long one."""

    c: str | None = None
    t: str | None = None
    r: str | int | None = None
    so: Int64 | None = None
    q: Int32 | None = None
    pt: Int64 | None = None
    b: str | None = None
    consumer_group: str | None = None
    topic: str | None = None
    retry: str | int | None = None
    start_offset: Int64 | None = None
    queue_id: Int32 | None = None
    pop_time: Int64 | None = None
    bit_set: str | None = None


class BatchAckMessageBody(ClientBody):
    """Request of BATCH_ACK_MESSAGE: acks at one broker."""

    broker_name: str = ""
    acks: list[BatchAck] = []


class LockBatchBody(ClientBody):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: the queues that a client asks for or gives up.

    `with_tokens` and `waits_ms` are ours. `with_tokens` asks for the tokens of the locks.
    `waits_ms`, with one queue, is how long the answer may wait until another client has unlocked
    it. A client that wants the queue no more ends the wait by UNLOCK_BATCH_MQ.
    """

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []
    with_tokens: bool | None = None
    waits_ms: Int64 | None = None


class LockBatchResponseBody(Body):
    """LOCK_BATCH_MQ: the queues that are the client's now.

    `lock_tokens` is ours: for each of them what fences off its earlier owners.
    """

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)
    lock_tokens: list[Int64] | None = None


class SubscriptionGroupConfig(ClientBody, gc=False):
    """A consumer group as its broker knows it.

    `attributes` are 5.x's named settings; in a request that changes the group, names have a sign.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    attributes: dict[str, str] = {}


class SubscriptionGroupWrapper(Body):
    """Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG: configs by name of group."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class SubscriptionGroupList(ToolBody):
    """Request of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups to make or to change."""

    group_config_list: list[SubscriptionGroupConfig]
