"""Where topics are: what brokers register, and the routes that name servers answer."""

# ruff: noqa: RUF012 -- msgspec gives every struct its own copy of a mutable default

from __future__ import annotations

import msgspec

from dledger.remoting.bodies.base import Body


class DataVersion(Body):
    """Which of two states of a broker's tables is newer. `timestamp` in milliseconds."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


class TopicConfig(Body, gc=False):
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


class CreateTopicListBody(Body):
    """UPDATE_AND_CREATE_TOPIC_LIST."""

    topic_config_list: list[TopicConfig]


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
