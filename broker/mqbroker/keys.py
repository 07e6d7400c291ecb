"""The keys of a broker's config file: RocketMQ's names where it has them, with type, default and
meaning.

`docs/generate.py` makes the page about configuration of this module and of the name server's
config. A meaning begins with the unit of a number that has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from dledger import limits as foundation
from dledger.metrics.limits import PORT
from dledger.remoting.names import PERM_READ_WRITE
from dledger.tls.keys import TLS_SECRET_KEYS, ModeName, TlsKeys
from dledger.trust.admin import LOOPBACK
from mqbroker.leader.waiting.delays import DEFAULT_LEVELS

RUNTIME_KEYS: Final = frozenset(
    {
        "authorizationMode",
        "autoCreateTopicEnable",
        "brokerPermission",
        "enableTopicMessageTypeCheck",
        "defaultTopicQueueNums",
        "maxMessageSize",
        "registerBrokerHeartbeatMillis",
    }
)
"""Keys that UPDATE_BROKER_CONFIG can change, on all replicas of the group alike."""
SECRET_KEYS: Final = frozenset({"dLegerSecret"}) | TLS_SECRET_KEYS
"""Keys that GET_BROKER_CONFIG does not show."""
BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "brokerPermission": (0, PERM_READ_WRITE),
    "maxMessageSize": (1, foundation.MESSAGE_BODY_BYTES_MAX),
    "defaultTopicQueueNums": (1, 1024),
    "registerBrokerHeartbeatMillis": (100, 30_000),
    "fileReservedTime": (0, 1_000_000),
    "cleanResourceInterval": (100, 86_400_000),
    "diskMaxUsedSpaceRatio": (10, 100),
    "diskSpaceCleanForciblyRatio": (10, 100),
    "diskSpaceWarningLevelRatio": (10, 100),
    "commitLogSizeMax": (0, 1 << 62),
    "clientMemoryMax": (0, 1 << 40),
    "connectionsPerAddressMax": (0, 1_000_000),
    "listenPort": (0, foundation.PORT_MAX),
    "transactionTimeOut": (100, 86_400_000),
    "transactionCheckInterval": (100, 86_400_000),
    "transactionCheckMax": (1, 1000),
    "flushIntervalCommitLog": (10, 60_000),
}
"""The least and the greatest value of numbers that have bounds."""


class BrokerKeys(TlsKeys, rename="camel", kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Every key, with its default."""

    broker_cluster_name: str = "DefaultCluster"
    """Cluster that the broker registers under."""
    broker_name: str = "broker-a"
    """Broker group of this replica; its queues carry this name."""
    broker_permission: int = PERM_READ_WRITE
    """Permission of the broker group: 4 read, 2 write, 6 both, 0 nothing."""
    broker_ip1: str = msgspec.field(name="brokerIP1", default="127.0.0.1")
    """Address that clients are told for this replica."""
    listen_port: int = 10911
    """Port for clients; 0 lets the system choose."""
    bind_address: str = ""
    """Address to listen on for clients and members, if it differs from the one that is told."""
    vip_channel_enable: bool = False
    """Whether to listen on `listenPort` - 2, too."""
    namesrv_addr: str = ""
    """Name servers, `host:port;host:port`; `-n` replaces it."""
    store_path_root_dir: str = "store"
    """Folder of this replica; no other replica may use it."""
    export_dir: str = ""
    """Folder for the copies of `mqadmin exportReplica`; without it, no copies are made."""
    audit_log_dir: str = ""
    """Folder of the audit log; `""` is `audit` in `storePathRootDir`."""
    flush_disk_type: Literal["SYNC_FLUSH", "ASYNC_FLUSH"] = "SYNC_FLUSH"
    """Whether a message is on disk before it is acknowledged."""
    flush_interval_commit_log: int = int(foundation.FLUSH_INTERVAL_S * 1000)
    """Milliseconds between syncs with `ASYNC_FLUSH`."""
    mapped_file_size_commit_log: int = foundation.SEGMENT_BYTES
    """Bytes of a log segment; the same on all members, for ever."""
    auto_create_topic_enable: bool = True
    """Whether the first send to an unknown topic makes it."""
    default_topic_queue_nums: int = 8
    """Queues of a topic that a send makes."""
    enable_topic_message_type_check: bool = False
    """Whether messages that are not of their topic's `message.type` are refused."""
    max_message_size: int = foundation.MESSAGE_BODY_BYTES_MAX
    """Bytes of a message body, at most."""
    message_delay_level: str = DEFAULT_LEVELS
    """Delays of the levels from 1 on, with `s`, `m`, `h` or `d`; the same on all members."""
    file_reserved_time: float = 72.0
    """Hours that messages are kept; 0 for no limit."""
    commit_log_size_max: int = 0
    """Bytes of log that are kept; 0 for no limit."""
    clean_resource_interval: int = 10_000
    """Milliseconds between two looks for old segments."""
    disk_max_used_space_ratio: int = 75
    """Percent of the partition in use from which a warning is logged."""
    disk_space_clean_forcibly_ratio: int = 85
    """Percent in use from which old segments go early, with `cleanFileForciblyEnable`."""
    disk_space_warning_level_ratio: int = 90
    """Percent in use from which no more messages are taken."""
    clean_file_forcibly_enable: bool = False
    """Whether segments may go before their time; RocketMQ's default is `true`."""
    transaction_time_out: int = 6_000
    """Milliseconds until a producer is first asked how a transaction ended."""
    transaction_check_interval: int = 60_000
    """Milliseconds between later questions."""
    transaction_check_max: int = 15
    """Questions before the message goes to `TRANS_CHECK_MAX_TIME_TOPIC`."""
    d_leger_group: str = ""
    """Name of the broker group between its members; `""` is `brokerName`."""
    d_leger_peers: str = ""
    """Ports between members, `n0-host:port;n1-host:port`; without it, a group of one."""
    d_leger_self_id: str = "n0"
    """Name of this replica within the broker group."""
    d_leger_secret: str = ""
    """Secret of the cluster, instead of a file; give one of the two."""
    secret_file: str = ""
    """File with the cluster's secret, which only its user may read."""
    admin_addresses: str = LOOPBACK
    """Addresses that may administrate without the secret."""
    authorization_mode: Literal["off", "observe", "enforce"] = "off"
    """Whether users and their rights count."""
    preferred_leader_id: str = ""
    """Member that gets leadership back once it has been well for 5 s."""
    repair_damaged_log: bool = True
    """Whether a replica with a damaged log waits for the leader to repair it."""
    group_client_addrs: str = ""
    """Ports for clients, in the form of `dLegerPeers`."""
    client_memory_max: int = 0
    """Bytes kept for all clients; 0: a quarter of the memory, 512 MiB at most."""
    connections_per_address_max: int = 0
    """Connections from one address that is not loopback; 0: half of all places."""
    metrics_exporter_type: Literal["DISABLE", "PROM"] = "DISABLE"
    """Whether metrics and health are served over HTTP (`PROM`)."""
    metrics_prom_exporter_host: str = "127.0.0.1"
    """Address for metrics."""
    metrics_prom_exporter_port: int = PORT
    """Port for metrics; 0 lets the system choose."""
    metrics_token_file: str = ""
    """File with a token that a request for metrics must show."""
    log_format: Literal["json", "console"] = "json"
    """Form of the log on stderr; `--log-format` replaces it."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level of the lines that are logged."""
    register_broker_heartbeat_millis: int = 1000
    """Milliseconds between heartbeats to name servers."""
    tls_peer_mode: ModeName | Literal[""] = msgspec.field(name="tls.peer.mode", default="")
    """Connections that the port for other members accepts; `""`: TLS alone as soon as there is a
    certificate."""
