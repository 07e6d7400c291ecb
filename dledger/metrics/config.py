"""The keys of a server's config that are about figures: RocketMQ's names where it has them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from dledger.addresses import check_host
from dledger.errors import BadInput, ConfigError
from dledger.limits import PORT_MAX
from dledger.trust.secret import HOW_TO_MAKE_ONE, is_loopback, read_secret


class Keys(Protocol):
    """The part of a config that is about the port for figures."""

    @property
    def metrics_exporter_type(self) -> str:
        """How figures are served: "PROM" by a port, "DISABLE" not at all."""

    @property
    def metrics_prom_exporter_host(self) -> str:
        """Address on which the port for figures listens."""

    @property
    def metrics_prom_exporter_port(self) -> int:
        """The port for figures; 0 lets the system choose."""

    @property
    def metrics_token_file(self) -> str:
        """A file with a token that whoever asks must show."""


class Port(NamedTuple):
    """Where figures are served, and the token that they take."""

    host: str
    port: int
    token: str


def check_keys(keys: Keys) -> None:
    """Raise ConfigError for values that can't be."""
    if not 0 <= keys.metrics_prom_exporter_port <= PORT_MAX:
        raise ConfigError(
            f"metricsPromExporterPort {keys.metrics_prom_exporter_port} is not within 0 to "
            f"{PORT_MAX}"
        )
    try:
        check_host(keys.metrics_prom_exporter_host, "metricsPromExporterHost")
    except BadInput as error:
        raise ConfigError(str(error)) from error


def port_of(keys: Keys, *, has_users: bool) -> Port | None:
    """Where figures are served; None if they are not. Reads the token. Raises ConfigError.

    `has_users`: whether the cluster has a secret, without which it has no users.
    """
    if keys.metrics_exporter_type == "DISABLE":
        return None
    token = read_secret(Path(keys.metrics_token_file)) if keys.metrics_token_file else ""
    host = keys.metrics_prom_exporter_host
    if not token and not has_users and not is_loopback(host):
        raise ConfigError(
            f"metricsPromExporterHost {host} can be reached from other machines, and nobody could "
            "prove who asks: there are neither users, which take a secretFile, nor a "
            f"metricsTokenFile. Make a token as a secret is made: {HOW_TO_MAKE_ONE}"
        )
    return Port(host, keys.metrics_prom_exporter_port, token)
