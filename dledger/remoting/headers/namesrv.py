"""Headers of the name server's requests: registration, routes, key-value config.

Addresses are "host:port". A broker id of 0 is the broker that takes writes; followers have ids
from 1.
"""

from __future__ import annotations

from dledger.remoting.headers.base import Header
from dledger.remoting.numbers import Int32, Int64


class PutKvConfigHeader(Header, frozen=True):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class GetKvConfigHeader(Header, frozen=True):
    """GET_KV_CONFIG (101)."""

    namespace: str
    key: str


class GetKvConfigResponseHeader(Header, frozen=True):
    """The answer to GET_KV_CONFIG: the value found."""

    value: str | None = None


class DeleteKvConfigHeader(Header, frozen=True):
    """DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class GetKvlistByNamespaceHeader(Header, frozen=True):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str


class RegisterBrokerHeader(Header, frozen=True):
    """REGISTER_BROKER (103).

    `body_crc32` is the body's CRC-32 without its top bit; with 0 it is not checked. The last four
    fields are ours: `term` lets the name server refuse a leader of an older term, `node_id` names
    the replica. With `since` the body lists only topics that have changed since the sender's
    registration whose data version had this counter. `permission` is the group's brokerPermission.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool | None = None
    body_crc32: Int32 | None = None
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    term: Int64 | None = None
    node_id: str | None = None
    since: Int64 | None = None
    permission: Int32 | None = None


class RegisterBrokerResponseHeader(Header, frozen=True):
    """The answer to REGISTER_BROKER. It tells a follower where the leader is.

    The last two fields are ours: whether `since` is known, and whether an operator has taken the
    group's write permission.
    """

    ha_server_addr: str | None = None
    master_addr: str | None = None
    takes_changes: bool | None = None
    wiped: bool | None = None


class BrokerHeartbeatResponseHeader(Header, frozen=True):
    """The answer to BROKER_HEARTBEAT, ours: whether an operator has taken the write permission of
    the sender's group."""

    wiped: bool | None = None


class ProveHeader(Header, frozen=True):
    """PROVE (9006), ours: first a broker's hello (`nonce`), then its proof, both in hexadecimal."""

    cluster_name: str
    broker_name: str
    node_id: str
    nonce: str | None = None
    proof: str | None = None


class ProveResponseHeader(Header, frozen=True):
    """The answer to PROVE: first the name server's nonce, then the name server's proof."""

    nonce: str | None = None
    proof: str | None = None


class UnregisterBrokerHeader(Header, frozen=True):
    """UNREGISTER_BROKER (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class BrokerHeartbeatHeader(Header, frozen=True):
    """BROKER_HEARTBEAT (904), one-way.

    A heartbeat of our brokers always has `broker_id`, `epoch` (the Raft term) and
    `heartbeat_timeout_mills` (RocketMQ's spelling).
    """

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int64 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


class GetRouteinfoByTopicHeader(Header, frozen=True):
    """GET_ROUTEINFO_BY_TOPIC (105). `known` is ours: the broker groups that had the topic."""

    topic: str
    accept_standard_json_only: bool | None = None
    known: list[str] | None = None


class WipeWritePermOfBrokerHeader(Header, frozen=True):
    """WIPE_WRITE_PERM_OF_BROKER (205)."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, frozen=True):
    """The answer to WIPE_WRITE_PERM_OF_BROKER: how many topics lost their write permission."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerHeader(Header, frozen=True):
    """ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, frozen=True):
    """The answer to ADD_WRITE_PERM_OF_BROKER: how many topics got their write permission back."""

    add_topic_count: Int32


class DeleteTopicInNamesrvHeader(Header, frozen=True):
    """DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster_name: str | None = None


class GetTopicsByClusterHeader(Header, frozen=True):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


class QueryDataVersionHeader(Header, frozen=True):
    """QUERY_DATA_VERSION (322): whether anything changed since this broker registered last."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(Header, frozen=True):
    """The answer to QUERY_DATA_VERSION: whether the broker should register again."""

    changed: bool


class GetBrokerMemberGroupHeader(Header, frozen=True):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str
