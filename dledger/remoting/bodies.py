"""The JSON bodies of requests and responses, as typed structs.

RocketMQ writes two dialects of one document: the standard one, and a loose one that leaves
numeric map keys unquoted and uses whole objects as map keys (`dledger.remoting.json_dialect`).
Both are read; which one is written is the caller's choice, since only the loose form is proven
with clients before 4.9.4. Members that a struct does not know are ignored, members that are
missing get their defaults, as with the reference's decoder. Shapes: RocketMQ's classes of the
same names.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

import msgspec

from dledger.errors import BadInput
from dledger.limits import MIB
from dledger.remoting.command import Buffer
from dledger.remoting.json_dialect import MessageQueue, parse, write_loose, write_standard

BodyT = TypeVar("BodyT")

#: Bound of bodies that only our own reader can read, at some 0.6 s a MiB.
LOOSE_BODY_BYTES_MAX = 2 * MIB


class Dialect(Enum):
    """How a body is written."""

    STANDARD = "standard"
    LOOSE = "loose"


class Body(msgspec.Struct, rename="camel", omit_defaults=False):
    """Base of the JSON bodies."""


class DataVersion(Body):
    """Which of two states of a broker's tables is newer. `timestamp` in milliseconds."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


class TopicConfig(Body):
    """A topic as its broker knows it. `perm` is a sum of 4 read, 2 write, 1 inherit."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_sys_flag: int = 0
    order: bool = False
    topic_filter_type: str = "SINGLE_TAG"


class TopicConfigWrapper(Body):
    """All topics of a broker (GET_ALL_TOPIC_CONFIG, and inside a registration)."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class RegisterBrokerBody(Body):
    """REGISTER_BROKER: what the broker serves."""

    topic_config_serialize_wrapper: TopicConfigWrapper = msgspec.field(
        default_factory=TopicConfigWrapper
    )
    filter_server_list: list[str] = []


class QueueData(Body):
    """How many queues of a topic one broker group has."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int = 6
    topic_sys_flag: int = 0


class BrokerData(Body):
    """The replicas of one broker group: "host:port" by broker id, 0 the leader."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = {}


class TopicRouteData(Body):
    """GET_ROUTEINFO_BY_TOPIC: where the queues of a topic are."""

    broker_datas: list[BrokerData] = []
    queue_datas: list[QueueData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None


class ClusterInfo(Body):
    """GET_BROKER_CLUSTER_INFO: broker groups by name, and the names in each cluster."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMemberGroup(Body):
    """The replicas of one broker group that are registered."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = {}


class BrokerMemberGroupBody(Body):
    """GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup


class TopicList(Body):
    """A list of topic names."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class KVTable(Body):
    """Strings by name: runtime information, order configuration."""

    table: dict[str, str] = {}


class SubscriptionData(Body):
    """What a consumer wants of one topic. `code_set` holds `message.tags_code` of every tag."""

    topic: str
    sub_string: str = "*"
    tags_set: list[str] = []
    code_set: list[int] = []
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body):
    """A producer group that the client belongs to."""

    group_name: str


class ConsumerData(Body):
    """A consumer group that the client belongs to. The three enums are RocketMQ's names."""

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class HeartbeatData(Body):
    """HEART_BEAT: every group of one client."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []


class CheckClientConfigBody(Body):
    """CHECK_CLIENT_CONFIG: would this subscription be accepted?"""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


class ConsumerIdList(Body):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = []


class LockBatchBody(Body):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: the queues that a client asks for or gives up."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []


class LockBatchResponseBody(Body):
    """LOCK_BATCH_MQ: the queues that are the client's now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class TopicOffset(Body):
    """How far one queue reaches: offsets from `min_offset` up to, without, `max_offset`; ms."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStats(Body):
    """GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = {}


class OffsetWrapper(Body):
    """How far a group is in one queue: `broker_offset` is the queue's maximum; ms."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(Body):
    """GET_CONSUME_STATS."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class GroupList(Body):
    """QUERY_TOPIC_CONSUME_BY_WHO."""

    group_list: list[str] = []


class ClientConnection(Body):
    """One client of a group, as the broker sees it."""

    client_id: str
    client_addr: str
    language: str = "PYTHON"
    version: int = 0


class ConsumerConnection(Body):
    """GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[ClientConnection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"


class ProducerConnection(Body):
    """GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[ClientConnection] = []


class SubscriptionGroupConfig(Body):
    """A consumer group as its broker knows it."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True


class SubscriptionGroupWrapper(Body):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


def encode_body(body: msgspec.Struct, dialect: Dialect = Dialect.STANDARD) -> bytes:
    """Write `body`. Stock clients expect maps keyed by queues in the loose dialect."""
    return write_loose(body) if dialect is Dialect.LOOSE else write_standard(body)


def decode_body(body_type: type[BodyT], data: Buffer) -> BodyT:
    """Read a body in either dialect.

    Raises BadInput naming the member that is missing or of the wrong kind.
    """
    decoder = _standard_decoder(body_type)
    if decoder is not None:
        # Should this fail, the slow reader tells the loose dialect and null members from nonsense.
        with suppress(msgspec.DecodeError, RecursionError):
            return decoder.decode(data)
    if len(data) > LOOSE_BODY_BYTES_MAX:
        raise BadInput(
            f"a {body_type.__name__} of {len(data)} bytes that is no standard JSON "
            f"is above {LOOSE_BODY_BYTES_MAX}"
        )
    document = parse(data)
    try:
        return msgspec.convert(document, body_type, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise BadInput(f"the body is no {body_type.__name__}: {error}") from error


_standard_decoders: dict[type, msgspec.json.Decoder[Any] | None] = {}


def _standard_decoder(body_type: type[BodyT]) -> msgspec.json.Decoder[BodyT] | None:
    """A fast decoder, or None for bodies with maps keyed by queues: those are no JSON."""
    if body_type not in _standard_decoders:
        try:
            _standard_decoders[body_type] = msgspec.json.Decoder(body_type, strict=False)
        except TypeError:
            _standard_decoders[body_type] = None
    return _standard_decoders[body_type]
