"""A broker's config file: TOML with the keys that RocketMQ users know.

A replica belongs to a broker group (`brokerName`); `dLegerPeers` names the members and their ports
for each other, `groupClientAddrs` those for clients. Both spell an address `n0-127.0.0.1:40911`,
as RocketMQ's DLedger does. A group of one may leave both out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from dledger import limits as foundation
from dledger.addresses import check_host, parse_address
from dledger.errors import BadInput, ConfigError
from dledger.ledger.config import LedgerConfig
from dledger.metrics.config import check_keys as check_metrics
from dledger.metrics.limits import PORT
from dledger.program.settings import changed, check_keys
from dledger.raft.membership.configuration import check_node_id
from dledger.remoting.names import PERM_READ_WRITE
from dledger.tls.keys import TLS_SECRET_KEYS, ModeName, TlsKeys
from dledger.tls.options import Mode, ServerOptions
from dledger.trust.admin import LOOPBACK, AdminAddresses
from dledger.trust.rolling import Secrets, parse
from dledger.trust.secret import read_secret
from mqbroker.leader.waiting.delays import DEFAULT_LEVELS, DelayLevels

#: RocketMQ's convention: clients compute the VIP port, it is not registered anywhere.
VIP_PORT_BELOW: Final = 2
PEER_PORT_ABOVE: Final = 30_000
"""The peer port of a group of one that names no peers is its client port plus this."""
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
"""What UPDATE_BROKER_CONFIG can change, on all replicas of the group alike."""
_MEMBER_ID: Final = re.compile(r"[^\s;:-]+")
SECRET_KEYS: Final = frozenset({"dLegerSecret"}) | TLS_SECRET_KEYS
"""What GET_BROKER_CONFIG does not show."""


class BrokerConfig(TlsKeys, rename="camel", kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The keys, with their defaults. A config never changes: a change at run time makes another
    one.

    `with_settings` makes it, and `Core.config` holds the present one.
    """

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_permission: int = PERM_READ_WRITE
    broker_ip1: str = msgspec.field(name="brokerIP1", default="127.0.0.1")
    listen_port: int = 10911
    bind_address: str = ""
    vip_channel_enable: bool = False
    namesrv_addr: str = ""
    store_path_root_dir: str = "store"
    export_dir: str = ""
    audit_log_dir: str = ""
    flush_disk_type: Literal["SYNC_FLUSH", "ASYNC_FLUSH"] = "SYNC_FLUSH"
    flush_interval_commit_log: int = int(foundation.FLUSH_INTERVAL_S * 1000)
    mapped_file_size_commit_log: int = foundation.SEGMENT_BYTES
    auto_create_topic_enable: bool = True
    default_topic_queue_nums: int = 8
    enable_topic_message_type_check: bool = False
    max_message_size: int = foundation.MESSAGE_BODY_BYTES_MAX
    message_delay_level: str = DEFAULT_LEVELS
    file_reserved_time: float = 72.0
    commit_log_size_max: int = 0
    clean_resource_interval: int = 10_000
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    clean_file_forcibly_enable: bool = False
    transaction_time_out: int = 6_000
    transaction_check_interval: int = 60_000
    transaction_check_max: int = 15
    d_leger_group: str = ""
    d_leger_peers: str = ""
    d_leger_self_id: str = "n0"
    d_leger_secret: str = ""
    secret_file: str = ""
    admin_addresses: str = LOOPBACK
    authorization_mode: Literal["off", "observe", "enforce"] = "off"
    preferred_leader_id: str = ""
    repair_damaged_log: bool = True
    group_client_addrs: str = ""
    client_memory_max: int = 0
    connections_per_address_max: int = 0
    metrics_exporter_type: Literal["DISABLE", "PROM"] = "DISABLE"
    metrics_prom_exporter_host: str = "127.0.0.1"
    metrics_prom_exporter_port: int = PORT
    metrics_token_file: str = ""
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    register_broker_heartbeat_millis: int = 1000
    #: What the port for other members takes; "": TLS alone as soon as there is a certificate.
    tls_peer_mode: ModeName | Literal[""] = msgspec.field(name="tls.peer.mode", default="")

    @property
    def node_id(self) -> str:
        """This replica's name within the group."""
        return self.d_leger_self_id

    @property
    def client_host(self) -> str:
        """Where this replica listens for clients."""
        return self.bind_address or self.broker_ip1

    @property
    def vip_port(self) -> int:
        """Where clients with `vipChannelEnabled` send to."""
        return self.listen_port - VIP_PORT_BELOW

    @property
    def audit_folder(self) -> Path:
        """Where the audit log is kept."""
        return Path(self.audit_log_dir or Path(self.store_path_root_dir) / "audit")

    def peers(self) -> dict[str, tuple[str, int]]:
        """node id -> (host, port for other members), of all members."""
        if not self.d_leger_peers:
            port = self.listen_port + PEER_PORT_ABOVE
            if not 0 < port <= foundation.PORT_MAX:
                raise ConfigError(
                    f"dLegerPeers is not set, and listenPort {self.listen_port} + "
                    f"{PEER_PORT_ABOVE} is no port: set dLegerPeers to {self.node_id}-host:port"
                )
            return {self.node_id: (self.broker_ip1, port)}
        return _members("dLegerPeers", self.d_leger_peers)

    def client_addresses(self) -> dict[str, str]:
        """node id -> "host:port" for clients, of all members."""
        if not self.group_client_addrs:
            return {self.node_id: f"{self.broker_ip1}:{self.listen_port}"}
        members = _members("groupClientAddrs", self.group_client_addrs)
        return {node_id: f"{host}:{port}" for node_id, (host, port) in members.items()}

    def name_servers(self) -> list[tuple[str, int]]:
        """(host, port) of each name server."""
        return [
            _address("namesrvAddr", address.strip())
            for address in self.namesrv_addr.split(";")
            if address.strip()
        ]

    def with_secret(self) -> BrokerConfig:
        """This config with the secret that its `secretFile` holds. Raises ConfigError."""
        if not self.secret_file:
            return self
        if self.d_leger_secret:
            raise ConfigError("secretFile and dLegerSecret are both given: keep secretFile")
        secret = read_secret(Path(self.secret_file))
        parse(secret, f"secretFile {self.secret_file}")
        return msgspec.structs.replace(self, d_leger_secret=secret)

    def secrets(self) -> Secrets:
        """The cluster's secrets as they are at the start: one, or two while it is replaced."""
        if not self.secret_file:
            return Secrets(self.d_leger_secret.encode())
        return Secrets(*parse(self.d_leger_secret, f"secretFile {self.secret_file}"))

    def ledger(self) -> LedgerConfig:
        """The replicated log's part of the config."""
        return LedgerConfig(
            group=self.d_leger_group or self.broker_name,
            node_id=self.node_id,
            peers=self.peers(),
            directory=Path(self.store_path_root_dir),
            flush="sync" if self.flush_disk_type == "SYNC_FLUSH" else "interval",
            flush_interval_s=self.flush_interval_commit_log / 1000,
            segment_bytes=self.mapped_file_size_commit_log,
            secret=self.d_leger_secret.encode(),
            preferred_leader=self.preferred_leader_id or None,
            services=self.client_addresses(),
            repair=self.repair_damaged_log,
            bind_host=self.bind_address or None,
        )

    def tls(self) -> ServerOptions | None:
        """The settings of encryption; None if nothing is encrypted. Raises ConfigError."""
        given = self.tls_server_cert_path and self.tls_server_trust_cert_path
        by_default = Mode.ENFORCING if given else Mode.DISABLED
        return self.tls_options(Mode(self.tls_peer_mode) if self.tls_peer_mode else by_default)

    def with_settings(self, settings: Mapping[str, str]) -> BrokerConfig:
        """This config with some keys changed at run time. An empty text leaves a key as it is.

        Raises FixedKey for a key that only a restart changes, ConfigError for a bad value.
        """
        check_keys(self, settings, RUNTIME_KEYS)
        config = changed(self, {key: text for key, text in settings.items() if text})
        config.check()
        return config

    def check(self) -> None:
        """Raise ConfigError for values that don't go together, naming the key and the remedy."""
        self._check_directories()
        self._check_addresses()
        self.tls()
        peers, addresses = self.peers(), self.client_addresses()
        for key, members in (("dLegerPeers", peers), ("groupClientAddrs", addresses)):
            _check_member(key, self.node_id, members)
        if set(peers) != set(addresses):
            raise ConfigError(
                f"dLegerPeers names {', '.join(sorted(peers))} and groupClientAddrs names "
                f"{', '.join(sorted(addresses))}: both must name the same members"
            )
        if self.preferred_leader_id and self.preferred_leader_id not in peers:
            raise ConfigError(
                f"preferredLeaderId {self.preferred_leader_id!r} is not in dLegerPeers, which "
                f"names {', '.join(sorted(peers))}"
            )
        own = f"{self.broker_ip1}:{self.listen_port}"
        if self.listen_port and addresses[self.node_id] != own:
            raise ConfigError(
                f"groupClientAddrs says {addresses[self.node_id]} for {self.node_id}, but "
                f"brokerIP1 and listenPort say {own}: make them equal"
            )
        for key, value, least, most in (
            ("brokerPermission", self.broker_permission, 0, PERM_READ_WRITE),
            ("maxMessageSize", self.max_message_size, 1, foundation.MESSAGE_BODY_BYTES_MAX),
            ("defaultTopicQueueNums", self.default_topic_queue_nums, 1, 1024),
            ("registerBrokerHeartbeatMillis", self.register_broker_heartbeat_millis, 100, 30_000),
            ("fileReservedTime", self.file_reserved_time, 0, 1_000_000),
            ("cleanResourceInterval", self.clean_resource_interval, 100, 86_400_000),
            ("diskMaxUsedSpaceRatio", self.disk_max_used_space_ratio, 10, 100),
            ("diskSpaceCleanForciblyRatio", self.disk_space_clean_forcibly_ratio, 10, 100),
            ("diskSpaceWarningLevelRatio", self.disk_space_warning_level_ratio, 10, 100),
            ("commitLogSizeMax", self.commit_log_size_max, 0, 1 << 62),
            ("clientMemoryMax", self.client_memory_max, 0, 1 << 40),
            ("connectionsPerAddressMax", self.connections_per_address_max, 0, 1_000_000),
            ("listenPort", self.listen_port, 0, foundation.PORT_MAX),
            ("transactionTimeOut", self.transaction_time_out, 100, 86_400_000),
            ("transactionCheckInterval", self.transaction_check_interval, 100, 86_400_000),
            ("transactionCheckMax", self.transaction_check_max, 1, 1000),
            ("flushIntervalCommitLog", self.flush_interval_commit_log, 10, 60_000),
        ):
            if not least <= value <= most:
                raise ConfigError(f"{key} {value} is not within {least} to {most}")
        if self.vip_channel_enable and self.vip_port < 1:
            raise ConfigError(
                f"vipChannelEnable needs a listenPort above {VIP_PORT_BELOW}, "
                f"not {self.listen_port}"
            )
        DelayLevels.parse(self.message_delay_level)

    def _check_addresses(self) -> None:
        """Where it listens, who may administrate it, whom it registers with."""
        _check_host("brokerIP1", self.broker_ip1)
        _check_host("bindAddress", self.client_host)
        AdminAddresses(self.admin_addresses)
        self.name_servers()
        check_metrics(self)

    def _check_directories(self) -> None:
        """Copies lie beside the store, not in it, and it not in them."""
        if "\0" in self.store_path_root_dir:
            raise ConfigError("storePathRootDir has a NUL in it")
        if not self.export_dir:
            return
        if "\0" in self.export_dir:
            raise ConfigError("exportDir has a NUL in it")
        store, exports = Path(self.store_path_root_dir).resolve(), Path(self.export_dir).resolve()
        if exports == store or store in exports.parents or exports in store.parents:
            raise ConfigError(
                f"exportDir {exports} and storePathRootDir {store} must lie beside each other"
            )


def _check_member(key: str, node_id: str, members: Mapping[str, object]) -> None:
    if node_id not in members:
        raise ConfigError(
            f"dLegerSelfId {node_id!r} is not in {key}, which names {', '.join(sorted(members))}"
        )


def _members(key: str, text: str) -> dict[str, tuple[str, int]]:
    members = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        node_id, separator, address = part.partition("-")
        if not separator or not node_id or node_id in members:
            raise ConfigError(f"{key} has {part!r}; expected one `n0-host:port` for each member")
        try:
            check_member_id(node_id)
        except BadInput as error:
            raise ConfigError(f"{key}: {error}") from error
        members[node_id] = _address(key, address)
    return members


def check_member_id(node_id: str) -> None:
    """Raise BadInput for an id that no config file could name: `n0-host:port;n1-host:port`."""
    check_node_id(node_id)
    if not _MEMBER_ID.fullmatch(node_id):
        raise BadInput(f"node id {node_id[:80]!r} has a space, -, ; or : in it; expected e.g. n3")


def _address(key: str, text: str) -> tuple[str, int]:
    try:
        return parse_address(text)
    except BadInput as error:
        raise ConfigError(f"{key}: {error}") from error


def _check_host(key: str, host: str) -> None:
    try:
        check_host(host, key)
    except BadInput as error:
        raise ConfigError(str(error)) from error
