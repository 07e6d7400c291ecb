"""The certificates of a cluster with TLS: an authority, one for each server, one for clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from dledger.files import replace
from dledger.limits import FOLDER_MODE
from dledger.program.extras import require
from dledger.tls.options import Tls
from mqchaos.cluster.layout import AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY, TLS_FOLDER, Layout

if TYPE_CHECKING:
    from dledger.tls.authority import Authority

_END: Final = b"-----END CERTIFICATE-----\n"


def make(directory: Path, name: str) -> None:
    """Make the authority of a new cluster, and the certificate of its clients. ConfigError."""
    require("a cluster with certificates of its own", "tls")
    from dledger.tls.authority import Authority  # noqa: PLC0415 - an extra of its own

    folder = directory / TLS_FOLDER
    folder.mkdir(FOLDER_MODE, parents=True)
    authority = Authority.make(name)
    authority.pair.write(directory / AUTHORITY, directory / AUTHORITY_KEY)
    sign_clients(directory)


def overlap(directory: Path) -> None:
    """Make another authority, which signs from now on, and is trusted beside the present one."""
    from dledger.tls.authority import Authority  # noqa: PLC0415 - an extra of its own

    present = authorities(directory)[0]
    made = Authority.make("another authority of this cluster").pair
    replace(directory / AUTHORITY_KEY, made.key)
    trust(directory, made.certificate, present)


def authorities(directory: Path) -> list[bytes]:
    """The certificates of those that are trusted, the one that signs first."""
    text = (directory / AUTHORITY).read_bytes()
    return [part + _END for part in text.split(_END)[:-1]]


def trust(directory: Path, *some: bytes) -> None:
    """Trust these authorities, and no others."""
    replace(directory / AUTHORITY, b"".join(some))


def sign_clients(directory: Path) -> None:
    """Make the certificate of clients."""
    folder = directory / TLS_FOLDER
    _authority(directory).sign("clients").write(folder / CERTIFICATE, folder / KEY)


def sign(directory: Path, layout: Layout, name: str) -> None:
    """Make a certificate of a server, in its folder."""
    folder = directory / name
    _authority(directory).sign(name, layout.hosts(name)).write(folder / CERTIFICATE, folder / KEY)


def of_clients(directory: Path) -> Tls:
    """How clients reach the servers."""
    folder = directory / TLS_FOLDER
    return Tls(ca=directory / AUTHORITY, cert=folder / CERTIFICATE, key=folder / KEY)


def _authority(directory: Path) -> Authority:
    from dledger.tls.authority import Authority  # noqa: PLC0415 - an extra of its own

    return Authority.read(directory / AUTHORITY, directory / AUTHORITY_KEY)
