"""The addresses from which tools may change something: the setting `adminAddresses`. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final

from dledger.errors import ConfigError
from dledger.trust.secret import is_loopback

ANY: Final = "*"
LOOPBACK: Final = "loopback"


class AdminAddresses:
    """The setting, parsed: addresses, networks, `loopback`, `*`, separated by commas."""

    def __init__(self, setting: str) -> None:
        """Raise ConfigError for a part that is neither `*`, `loopback`, an address nor a
        network."""
        parts = [part.strip() for part in setting.split(",") if part.strip()]
        self._any = ANY in parts
        self._loopback = LOOPBACK in parts
        try:
            self._networks = [
                ipaddress.ip_network(part, strict=False)
                for part in parts
                if part not in (ANY, LOOPBACK)
            ]
        except ValueError as error:
            raise ConfigError(
                f"adminAddresses has {error}; expected addresses (10.0.0.4), networks "
                "(10.0.0.0/8), loopback or *, separated by commas"
            ) from error

    def __contains__(self, host: object) -> bool:
        if self._any:
            return True
        try:
            address = ipaddress.ip_address(str(host).partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        address = address if mapped is None else mapped
        if self._loopback and is_loopback(str(address)):
            return True
        return any(address in network for network in self._networks)
