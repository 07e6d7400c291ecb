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
    log_format: LogFormat = "json"
    log_level: LogLevel = "info"

    def __post_init__(self) -> None:
        if not 0 <= self.listen_port <= PORT_MAX:
            raise ValueError(f"listenPort is {self.listen_port}; it must be 0 to {PORT_MAX}")
