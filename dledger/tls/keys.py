"""The keys of a server's config file about TLS, named as RocketMQ names them."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from dledger.errors import ConfigError
from dledger.tls.options import ClientAuth, Files, Mode, ServerOptions

TLS_SECRET_KEYS: Final = frozenset({"tls.server.keyPassword"})
"""Keys that no tool is shown."""
ModeName = Literal["disabled", "permissive", "enforcing"]


class TlsKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that brokers and name servers have in common, with their defaults."""

    tls_server_mode: ModeName = msgspec.field(name="tls.server.mode", default="disabled")
    """Connections that the port for clients accepts."""
    tls_server_cert_path: str = msgspec.field(name="tls.server.certPath", default="")
    """File with this server's certificate, and those between it and the authority."""
    tls_server_key_path: str = msgspec.field(name="tls.server.keyPath", default="")
    """File with the key of the certificate."""
    tls_server_key_password: str = msgspec.field(name="tls.server.keyPassword", default="")
    """Password of the key; it is never shown."""
    tls_server_trust_cert_path: str = msgspec.field(name="tls.server.trustCertPath", default="")
    """File with the authorities that sign the certificates of clients, members and servers."""
    tls_server_need_client_auth: Literal["none", "optional", "require"] = msgspec.field(
        name="tls.server.need.client.auth", default="none"
    )
    """Whether clients need a certificate of their own."""
    tls_enable: bool = msgspec.field(name="tls.enable", default=False)
    """Whether this server dials the client ports of others by TLS."""
    tls_client_check_names: bool = msgspec.field(name="tls.client.checkNames", default=True)
    """Whether the certificate of a server that is dialled must name the host."""

    def tls_options(self, members: Mode = Mode.DISABLED, host: str = "") -> ServerOptions | None:
        """The TLS options of these keys; None for no TLS at all. `members`: the mode of the port
        for members, and `host` where they dial this one.

        Raises ConfigError for keys that don't go together.
        """
        options = ServerOptions(
            Files(
                self.tls_server_cert_path,
                self.tls_server_key_path,
                self.tls_server_key_password,
                self.tls_server_trust_cert_path,
            ),
            Mode(self.tls_server_mode),
            ClientAuth(self.tls_server_need_client_auth),
            members,
            self.tls_enable,
            self.tls_client_check_names,
            host,
        )
        if options.client_auth is not ClientAuth.NONE and options.mode is not Mode.ENFORCING:
            raise ConfigError(
                f"tls.server.need.client.auth is {options.client_auth.value!r} and tls.server.mode "
                f"{options.mode.value!r}: clients of plain text show no certificate; set "
                f"the mode to "
                '"enforcing", or the other to "none"'
            )
        return options if options.wanted else None
