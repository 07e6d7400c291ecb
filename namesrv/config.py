"""The name server's settings: RocketMQ's names where it has them, read from TOML.

`mqadmin getNamesrvConfig` shows them as properties text. One of them may be changed while the
server runs, until its next start; the others are fixed by then.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dledger.errors import BadInput, DledgerError
from dledger.observe import LogFormat, LogLevel
from dledger.remoting.command import Buffer

PORT_MAX = 65_535
_BOOLEANS = {"true": True, "false": False}


class NotUpdatable(DledgerError):
    """The key exists, but its value is fixed while the server runs."""


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

    def properties(self) -> str:
        """The settings as Java properties text."""
        fields = msgspec.to_builtins(self)
        return "".join(f"{key}={_text(value)}\n" for key, value in sorted(fields.items()))

    def updated(self, changes: Mapping[str, str]) -> NamesrvConfig:
        """The settings after a change at run time.

        NotUpdatable for a key that only a restart changes, BadInput for an unknown key or value.
        """
        config = self
        for key, value in changes.items():
            if key == "returnOrderTopicConfigToBroker":
                if value not in _BOOLEANS:
                    raise BadInput(f"{key} is {value!r}; it must be true or false")
                config = msgspec.structs.replace(
                    config, return_order_topic_config_to_broker=_BOOLEANS[value]
                )
            elif key in msgspec.to_builtins(self):
                raise NotUpdatable(f"{key} can't change while the name server runs: restart it")
            else:
                raise BadInput(f"the name server has no config key {key!r}")
        return config


def parse_properties(data: Buffer) -> dict[str, str]:
    """Java properties text, `key=value` lines; blank lines and comments are skipped."""
    try:
        lines = [line.strip() for line in str(data, "utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise BadInput(f"the properties text is no UTF-8: {error}") from error
    pairs = {}
    for line in lines:
        if not line or line[0] in "#!":
            continue
        key, separator, value = line.partition("=")
        if not separator:
            raise BadInput(f"the properties line {line[:80]!r} has no '='")
        pairs[key.strip()] = value.strip()
    return pairs


def _text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
