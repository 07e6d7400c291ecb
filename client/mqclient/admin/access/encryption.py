"""How a server's port is encrypted, and which end refuses what."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dledger.addresses import parse_address
from dledger.errors import BadInput, RemotingError
from dledger.net.peer import Dialler, connect, connect_peer
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, HeaderEncoding
from dledger.remoting.headers import GetRouteinfoByTopicHeader, encode_header
from dledger.remoting.message import DEFAULT_TOPIC
from dledger.tls.channel import Channel
from dledger.tls.clients import ClientContexts
from dledger.tls.dates import first_validity
from dledger.tls.options import AskedTls, Tls

TAKEN = "taken"
TLS_ALONE = "refused: the port takes TLS alone"


@dataclass(frozen=True, slots=True)
class TlsReport:
    """The result of a check. `plain` and `tls` are "taken", or the reason why not. `refused_by` is
    the end that refused TLS: "this end" or "the server"; empty if neither did. The other fields are
    about the server's certificate."""

    address: str
    plain: str
    tls: str
    refused_by: str = ""
    version: str = ""
    names: tuple[str, ...] = ()
    valid_until: str = ""


async def check_tls(host: str, port: int, tls: AskedTls, timeout_s: float) -> TlsReport:
    """Connect by plain text and by TLS, and ask a question that every server answers.

    Raises ConnectFailed if the port can't be reached, ConfigError for files of ours.
    """
    dialler = ClientContexts.of(tls)
    assert dialler is not None, "checked for something"
    (await connect(host, port, timeout_s)).close()
    plain = await _answered(host, port, timeout_s, None)
    report = TlsReport(f"{host}:{port}", plain, await _answered(host, port, timeout_s, dialler))
    if report.tls == TAKEN:
        if plain != TAKEN:
            # The reason is for a client that does not use TLS.
            report = replace(report, plain=TLS_ALONE)
        return await _with_certificate(report, host, port, timeout_s, dialler)
    for lenient in _lenient(tls):
        dialler = ClientContexts.of(lenient)
        assert dialler is not None, "it is a Tls"
        if await _answered(host, port, timeout_s, dialler) == TAKEN:
            report = replace(report, refused_by="this end")
            return await _with_certificate(report, host, port, timeout_s, dialler)
    return replace(report, refused_by="the server")


async def certificate_end(address: str, timeout_s: float) -> float:
    """When a server's certificate ends, in Unix seconds, whoever signed it. Raises DledgerError."""
    host, port = parse_address(address)
    channel = await connect(host, port, timeout_s, ClientContexts.of(Tls(verify=False)))
    assert isinstance(channel, Channel), "by TLS"
    try:
        validity = first_validity(ssl.DER_cert_to_PEM_cert(channel.raw_certificate))
    finally:
        channel.close()
    if validity is None:
        raise BadInput(f"the certificate of {address} can't be read")
    return validity.ends_s


def _lenient(tls: AskedTls) -> tuple[Tls, Tls]:
    """TLS with our certificate, that accepts a server's certificate for any host; and then any
    certificate at all. Python tells the names of a certificate that was verified alone."""
    given = tls if isinstance(tls, Tls) else Tls(ca=tls if isinstance(tls, str | Path) else None)
    named = replace(given, check_names=False, context=None)
    return named, replace(named, ca=None, verify=False)


async def _answered(host: str, port: int, timeout_s: float, tls: Dialler | None) -> str:
    """Whether a question is answered; a server that refuses a client's certificate says so only
    then."""
    question = Command(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        encode_header(GetRouteinfoByTopicHeader(DEFAULT_TOPIC)),
        encoding=HeaderEncoding.JSON,
    )
    try:
        async with connect_peer(host, port, timeout_s, tls=tls) as peer:
            await peer.request(question, timeout_s)
    except RemotingError as error:
        return str(error).removeprefix(f"{host}:{port}: ")
    return TAKEN


async def _with_certificate(
    report: TlsReport, host: str, port: int, timeout_s: float, tls: Dialler
) -> TlsReport:
    channel = await connect(host, port, timeout_s, tls)
    assert isinstance(channel, Channel), "by TLS"
    try:
        validity = first_validity(ssl.DER_cert_to_PEM_cert(channel.raw_certificate))
        return replace(
            report,
            version=channel.version,
            names=channel.names,
            valid_until=""
            if validity is None
            else datetime.fromtimestamp(validity.ends_s, UTC).isoformat(sep=" "),
        )
    finally:
        channel.close()
