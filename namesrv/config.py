"""The name server's settings: RocketMQ's names where it has them, read from TOML.

`mqadmin getNamesrvConfig` shows them as properties text. One of them may be changed while the
server runs, until its next start; the others are fixed by then.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dledger.observe import LogFormat, LogLevel

PORT_MAX = 65_535
RUNTIME_KEYS: Final = frozenset({"returnOrderTopicConfigToBroker"})
"""What UPDATE_NAMESRV_CONFIG can change."""


class NamesrvConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Every key of the config file, with its default."""

    #: 0 lets the system choose; the event "name server started" names the port.
    listen_port: int = 9876
    bind_address: str = "127.0.0.1"
    #: Where the key-value config is kept; without it, in memory only.
    kv_config_path: str | None = None
    #: Whether a broker gets ORDER_TOPIC_CONFIG in answer to its registration.
    return_order_topic_config_to_broker: bool = True
    #: Bytes kept for all connections; 0: a quarter of the machine's memory, 512 MiB at most.
    client_memory_max: int = 0
    #: Connections from one address that is not loopback; 0: half of all that there may be.
    connections_per_address_max: int = 0
    log_format: LogFormat = "json"
    log_level: LogLevel = "info"

    def __post_init__(self) -> None:
        if not 0 <= self.listen_port <= PORT_MAX:
            raise ValueError(f"listenPort is {self.listen_port}; it must be 0 to {PORT_MAX}")
        for key, value in (
            ("clientMemoryMax", self.client_memory_max),
            ("connectionsPerAddressMax", self.connections_per_address_max),
        ):
            if value < 0:
                raise ValueError(f"{key} is {value}; it must be 0 (the default) or above")
