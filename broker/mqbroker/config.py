"""A broker's config: what its keys (`mqbroker.keys`) mean together, and which values are refused.

A replica belongs to a broker group (`brokerName`); `dLegerPeers` names the members and their ports
for each other, `groupClientAddrs` those for clients. Both spell an address `n0-127.0.0.1:40911`,
as RocketMQ's DLedger does. A group of one may leave both out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from dledger import limits as foundation
from dledger.addresses import check_host, parse_address
from dledger.errors import BadInput, ConfigError
from dledger.ledger.config import LedgerConfig
from dledger.metrics.config import check_keys as check_metrics
from dledger.program.settings import changed, check_keys
from dledger.raft.membership.configuration import check_node_id
from dledger.tls.options import Mode, ServerOptions
from dledger.trust.admin import AdminAddresses
from dledger.trust.rolling import Secrets, parse
from dledger.trust.secret import read_secret
from mqbroker.keys import BOUNDS, RUNTIME_KEYS, BrokerKeys
from mqbroker.leader.waiting.delays import DelayLevels

#: RocketMQ's convention: clients compute the VIP port, it is not registered anywhere.
VIP_PORT_BELOW: Final = 2
PEER_PORT_ABOVE: Final = 30_000
"""The peer port of a group of one that names no peers is its client port plus this."""
_MEMBER_ID: Final = re.compile(r"[^\s;:-]+")


class BrokerConfig(
    BrokerKeys, rename="camel", kw_only=True, forbid_unknown_fields=True, frozen=True
):
    """A broker's settings, frozen. A config never changes: a change at run time makes another one.

    `with_settings` makes it, and `Core.config` holds the present one.
    """

    @property
    def node_id(self) -> str:
        """Name of this replica within the group."""
        return self.d_leger_self_id

    @property
    def names(self) -> tuple[str, str]:
        """The names of the cluster and of the broker group; topics may be named like them."""
        return self.broker_cluster_name, self.broker_name

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
                    f"{PEER_PORT_ABOVE} is not a port: set dLegerPeers to {self.node_id}-host:port"
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
        """A config with the secret that the `secretFile` of this one holds. Raises ConfigError."""
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
        mode, peers = Mode(self.tls_peer_mode) if self.tls_peer_mode else by_default, self.peers()
        host, _ = peers.get(self.d_leger_self_id, ("", 0))
        return self.tls_options(mode, host if len(peers) > 1 else "")

    def with_settings(self, settings: Mapping[str, str]) -> BrokerConfig:
        """A config with some keys changed at run time. An empty text leaves a key as it is.

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
        values = msgspec.to_builtins(self)
        for key, (least, most) in BOUNDS.items():
            if not least <= values[key] <= most:
                raise ConfigError(f"{key} {values[key]} is not within {least} to {most}")
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
