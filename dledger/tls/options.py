"""Options of one end of an encrypted connection: its files, and its demands. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dledger.errors import ConfigError

if TYPE_CHECKING:
    import ssl


class Names(NamedTuple):
    """The names of the four settings where they are set, for errors."""

    certificate: str
    key: str
    password: str
    authorities: str


SERVER_NAMES: Final = Names(
    "tls.server.certPath",
    "tls.server.keyPath",
    "tls.server.keyPassword",
    "tls.server.trustCertPath",
)
"""The settings' names in a server's config file."""
CLIENT_NAMES: Final = Names("cert", "key", "key_password", "ca")
"""The settings' names in `Tls`."""


class TlsFailed(OSError):
    """The two ends could not begin TLS; the text gives the reason."""


class Mode(Enum):
    """The connections that a port accepts, in RocketMQ's words."""

    DISABLED = "disabled"
    """No TLS."""
    PERMISSIVE = "permissive"
    """TLS and plain text: the first byte tells which."""
    ENFORCING = "enforcing"
    """TLS alone."""


class ClientAuth(Enum):
    """Whether clients need a certificate of their own, in RocketMQ's words."""

    NONE = "none"
    OPTIONAL = "optional"
    """A certificate that a client shows must be valid."""
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of an end's own certificate, and of the authorities that it trusts; "" for none."""

    certificate: str = ""
    key: str = ""
    password: str = ""
    authorities: str = ""
    names: Names = SERVER_NAMES

    def __repr__(self) -> str:
        return f"<Files {self.certificate!r}, {self.key!r}, {self.authorities!r}>"

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that may change."""
        return tuple(path for _, path in self.named)

    @property
    def named(self) -> tuple[tuple[str, Path], ...]:
        """The files that may change, each with the setting that names it."""
        names = self.names
        settings = (
            (names.certificate, self.certificate),
            (names.key, self.key),
            (names.authorities, self.authorities),
        )
        return tuple((name, Path(path)) for name, path in settings if path)


@dataclass(frozen=True, slots=True)
class Tls:
    """Options of a client's TLS connections: `Producer(namesrv, tls=Tls(ca="ca.pem"))`.

    `ca` is a file with the authorities that may have signed a server's certificate; the default is
    the system's authorities. `cert` and `key` are this client's own certificate, for servers that
    demand one; the key may be in the same file. `check_names` says whether a server's certificate
    must name the host that was dialled. `verify=False` accepts any certificate: an attacker can
    then stand between client and server. `context` is an SSL context of the application, in place
    of all these.
    """

    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None
    key_password: str | None = None
    check_names: bool = True
    verify: bool = True
    context: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Tls(ca={self.ca!r}, cert={self.cert!r}, key={self.key!r})"

    def files(self) -> Files:
        """The files of these options. Raises ConfigError for a key without a certificate."""
        if self.key is not None and self.cert is None:
            raise ConfigError(f"key={str(self.key)!r} is given without cert=, its certificate")
        cert = "" if self.cert is None else str(self.cert)
        return Files(
            cert,
            cert if self.key is None else str(self.key),
            self.key_password or "",
            "" if self.ca is None else str(self.ca),
            CLIENT_NAMES,
        )


SYSTEM: Final = "system"
"""A name for the system's authorities, in place of a file where options are texts."""


def tls_named(authorities: str, cert: str | Path | None, key: str | Path | None) -> Tls:
    """The TLS options of a client, from names of files; `authorities` may be `SYSTEM`."""
    return Tls(ca=None if authorities == SYSTEM else authorities, cert=cert, key=key)


AskedTls: TypeAlias = Tls | str | Path | bool | None
"""How an application asks for TLS: files by name, the authorities' file alone, or True for the
authorities of the system."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The TLS options in a server's config.

    `mode` is that of the port for clients, `members` that of the port for other members; a member
    dials by TLS unless it is disabled. `dials`: whether other servers' client ports are dialled so.
    `host`: where other members dial this one; "" if there are none.
    """

    files: Files
    mode: Mode = Mode.DISABLED
    client_auth: ClientAuth = ClientAuth.NONE
    members: Mode = Mode.DISABLED
    dials: bool = False
    check_names: bool = True
    host: str = ""

    @property
    def wanted(self) -> bool:
        """Whether anything of it needs files."""
        return self.dials or any(mode is not Mode.DISABLED for mode in (self.mode, self.members))
