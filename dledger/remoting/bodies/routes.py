"""The places of topics: registrations of brokers, and the routes that name servers answer."""

# ruff: noqa: RUF012 -- msgspec gives every struct its own copy of a mutable default

from __future__ import annotations

import msgspec

from dledger.remoting.bodies.base import Body, ClientBody, RegistrationBody, ToolBody
from dledger.remoting.numbers import Int32, Int64


class DataVersion(ClientBody):
    """Which of two states of a broker's tables is newer. `timestamp` in milliseconds."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0


class TopicConfig(Body, gc=False):
    """A topic as its broker knows it. `perm` is a sum of 4 read, 2 write, 1 inherit.

    `attributes` are 5.x's named settings; in a request that changes the topic, names have a sign.
    """

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_sys_flag: Int32 = 0
    order: bool = False
    topic_filter_type: str = "SINGLE_TAG"
    attributes: dict[str, str] = {}

    @property
    def queues(self) -> int:
        """Queues that are read or written."""
        return max(self.read_queue_nums, self.write_queue_nums)


class TopicConfigWrapper(Body):
    """All topics of a broker (GET_ALL_TOPIC_CONFIG, and inside a registration)."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class CreateTopicListBody(ToolBody):
    """Request of UPDATE_AND_CREATE_TOPIC_LIST: topics to make or to change."""

    topic_config_list: list[TopicConfig]


class RegisterBrokerBody(RegistrationBody):
    """REGISTER_BROKER: what the broker serves."""

    topic_config_serialize_wrapper: TopicConfigWrapper = msgspec.field(
        default_factory=TopicConfigWrapper
    )
    filter_server_list: list[str] = []


class QueueData(Body):
    """How many queues of a topic one broker group has."""

    broker_name: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32 = 6
    topic_sys_flag: Int32 = 0


class BrokerData(Body):
    """The replicas of one broker group: "host:port" by broker id, 0 the leader.

    `enable_acting_master` is always false here: some clients read no route that lacks it.
    """

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = {}
    enable_acting_master: bool = False


class TopicRouteData(Body):
    """GET_ROUTEINFO_BY_TOPIC: where the queues of a topic are.

    Ours are the last four, which our clients alone are sent: the topic's queues of broker groups
    that are away; which of the groups that the request calls known are there without the topic;
    which groups take no messages at all, while a topic without write permission may be in any; and
    in how long all groups that serve will have registered, of a name server that has just begun.
    """

    broker_datas: list[BrokerData] = []
    queue_datas: list[QueueData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    absent_queue_datas: list[QueueData] | None = None
    without: list[str] | None = None
    withdrawn: list[str] | None = None
    settles_in_ms: Int64 | None = None


class ClusterInfo(Body):
    """GET_BROKER_CLUSTER_INFO: broker groups by name, and the names in each cluster.

    `absent_brokers` is ours, and our clients alone are sent it: the groups that are away, and the
    cluster of each. Those that an operator has retired are not among them.
    """

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}
    absent_brokers: dict[str, str] | None = None


class BrokerMemberGroup(Body):
    """The replicas of one broker group that are registered."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = {}


class BrokerMemberGroupBody(Body):
    """Answer to GET_BROKER_MEMBER_GROUP: addresses of one broker group."""

    broker_member_group: BrokerMemberGroup


class TopicList(Body):
    """A list of topic names."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class KVTable(Body):
    """Strings by name: runtime information, order configuration."""

    table: dict[str, str] = {}
