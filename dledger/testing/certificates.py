"""Certificates of an authority that a test has made, as files."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from dledger.tls.authority import Authority, Pair
from dledger.tls.options import ClientAuth, Files, Mode, ServerOptions, Tls
from dledger.tls.servers import ServerContexts

LOOPBACK = ("127.0.0.1", "localhost")


@cache
def authority(name: str = "the authority") -> Authority:
    """An authority; the same one for the same name."""
    return Authority.make(name)


@cache
def pair(by: str = "the authority", hosts: tuple[str, ...] = LOOPBACK, days: float = 30) -> Pair:
    """A pair that an authority has signed; with negative days it ended so long ago."""
    began = datetime.now(UTC) - timedelta(days=max(1.0, 1 - 2 * days))
    lasts = days if days > 0 else -days
    return authority(by).sign("a server", hosts, valid_from=began, days=lasts)


def ca_file(folder: Path, *names: str) -> str:
    """A file with the certificates of authorities."""
    path = folder / "ca.pem"
    path.write_bytes(b"".join(authority(name).pair.certificate for name in names))
    return str(path)


def files(folder: Path, given: Pair | None = None, *trusted: str) -> Files:
    """Key, certificate and authorities of a server as PEM files in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (given or pair()).write(folder / "cert.pem", folder / "key.pem")
    return Files(
        str(folder / "cert.pem"),
        str(folder / "key.pem"),
        "",
        ca_file(folder, *(trusted or ("the authority",))),
    )


def contexts(
    folder: Path,
    mode: Mode = Mode.ENFORCING,
    client_auth: ClientAuth = ClientAuth.NONE,
    given: Pair | None = None,
) -> ServerContexts:
    """TLS contexts of a server whose files are written to `folder`."""
    return ServerContexts(ServerOptions(files(folder, given), mode, client_auth))


def client(folder: Path, given: Pair | None = None, by: str = "the authority") -> Tls:
    """How a client trusts an authority, with a certificate of its own if one is given."""
    folder.mkdir(parents=True, exist_ok=True)
    if given is not None:
        given.write(folder / "own.pem", folder / "own.key")
    return Tls(
        ca=ca_file(folder, by),
        cert=None if given is None else folder / "own.pem",
        key=None if given is None else folder / "own.key",
    )


def stranger() -> ssl.SSLContext:
    """Contexts with which a stranger dials."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
