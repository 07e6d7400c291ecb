"""The name server's settings: RocketMQ's names where it has them, read from TOML.

`mqadmin getNamesrvConfig` shows them as properties text. One of them can be changed while the
server runs, until its next start; the others need a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from dledger.limits import PORT_MAX
from dledger.metrics.config import check_keys as check_metrics
from dledger.metrics.limits import PORT
from dledger.program.logs import LogFormat, LogLevel
from dledger.tls.keys import TlsKeys
from dledger.trust.admin import LOOPBACK, AdminAddresses
from dledger.trust.rolling import Secrets
from dledger.trust.secret import read_secrets, require_secret
from mqnamesrv.door import Door

RUNTIME_KEYS: Final = frozenset({"authorizationMode", "returnOrderTopicConfigToBroker"})
"""Keys that UPDATE_NAMESRV_CONFIG can change."""


class NamesrvConfig(TlsKeys, frozen=True, kw_only=True, rename="camel"):
    """Every key of the config file, with its default."""

    listen_port: int = 9876
    """Port; 0 lets the system choose, and the event "name server started" names it."""
    bind_address: str = "127.0.0.1"
    """Address to listen on."""
    kv_config_path: str | None = None
    """File of the key-value config; without it, that config is in memory only."""
    audit_log_dir: str = ""
    """Folder of the audit log; without it, there is none."""
    return_order_topic_config_to_broker: bool = True
    """Whether a broker gets ORDER_TOPIC_CONFIG in answer to its registration."""
    secret_file: str = ""
    """File with the cluster's secret; needed unless the server is on loopback."""
    allow_unsigned_brokers: bool = False
    """Whether brokers that can't prove the secret (RocketMQ's own) may register, without terms."""
    admin_addresses: str = LOOPBACK
    """Addresses from which tools may change something."""
    authorization_mode: Literal["off", "observe", "enforce"] = "off"
    """Whether users and their rights count; they are those of the broker groups."""
    client_memory_max: int = 0
    """Bytes kept for all connections; 0: a quarter of the memory, 512 MiB at most."""
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
    log_format: LogFormat = "json"
    """Form of the log on stderr."""
    log_level: LogLevel = "info"
    """Least level of the lines that are logged."""

    def __post_init__(self) -> None:
        if not 0 <= self.listen_port <= PORT_MAX:
            raise ValueError(f"listenPort is {self.listen_port}; it must be 0 to {PORT_MAX}")
        self.tls_options()
        AdminAddresses(self.admin_addresses)
        check_metrics(self)
        for key, value in (
            ("clientMemoryMax", self.client_memory_max),
            ("connectionsPerAddressMax", self.connections_per_address_max),
        ):
            if value < 0:
                raise ValueError(f"{key} is {value}; it must be 0 (the default) or above")

    def door(self, nonce: Callable[[], bytes]) -> Door:
        """Make the rules for requests; reads the secret. Raises ConfigError.

        A server that other machines can reach needs a secret, or the setting that it needs none.
        """
        secrets = Secrets(*(read_secrets(Path(self.secret_file)) if self.secret_file else ()))
        if not self.allow_unsigned_brokers:
            require_secret("the name server", self.bind_address, secrets.first)
        return Door(
            secrets,
            AdminAddresses(self.admin_addresses),
            nonce,
            lets_unsigned_in=self.allow_unsigned_brokers,
        )
