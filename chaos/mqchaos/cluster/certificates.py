"""The certificates of a cluster with TLS: an authority, one for each server, one for clients."""

from __future__ import annotations

from pathlib import Path

from dledger.limits import FOLDER_MODE
from dledger.program.extras import require
from dledger.tls.options import Tls
from mqchaos.cluster.layout import AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY, TLS_FOLDER, Layout


def make(directory: Path, name: str) -> None:
    """Make the authority of a new cluster, and the certificate of its clients. ConfigError."""
    require("a cluster with certificates of its own", "tls")
    from dledger.tls.authority import Authority  # noqa: PLC0415 - an extra of its own

    folder = directory / TLS_FOLDER
    folder.mkdir(FOLDER_MODE, parents=True)
    authority = Authority.make(name)
    authority.pair.write(directory / AUTHORITY, directory / AUTHORITY_KEY)
    authority.sign("clients").write(folder / CERTIFICATE, folder / KEY)


def sign(directory: Path, layout: Layout, name: str) -> None:
    """Make a certificate of a server, in its folder."""
    from dledger.tls.authority import Authority  # noqa: PLC0415 - an extra of its own

    authority = Authority.read(directory / AUTHORITY, directory / AUTHORITY_KEY)
    folder = directory / name
    authority.sign(name, layout.hosts(name)).write(folder / CERTIFICATE, folder / KEY)


def of_clients(directory: Path) -> Tls:
    """How clients reach the servers."""
    folder = directory / TLS_FOLDER
    return Tls(ca=directory / AUTHORITY, cert=folder / CERTIFICATE, key=folder / KEY)


def of_task(encrypted_by: str) -> Tls | None:
    """How a worker reaches the servers; None for plain text."""
    return of_clients(Path(encrypted_by)) if encrypted_by else None
