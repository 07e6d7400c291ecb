"""New certificates of a new authority, and a new secret, while all servers run and clients send.

Both go as an operator does it (docs/how-to/secure.md): the old and the new are valid together for a
time. A fault begins that time; its heal waits until each server has the new one, and takes the old
one away. Between the two servers may die, and find the files as they are then when they come back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio

from dledger.addresses import parse_address
from dledger.errors import DledgerError
from dledger.files import replace
from dledger.limits import SECRET_LOOK_S, TLS_LOOK_S
from dledger.net import connect_peer
from dledger.net.proving import Prover
from dledger.tls.options import Tls
from dledger.trust.rolling import Secrets
from dledger.trust.secret import read_secrets
from dledger.trust.signing import (
    BROKER_ID,
    NAME_SERVER_ID,
    broker_door,
    name_server_door,
)
from mqchaos.cluster import certificates
from mqchaos.cluster.cluster import Cluster, new_secret
from mqchaos.cluster.layout import CLUSTER_NAME, NodeLayout
from mqchaos.cluster.processes import ClusterError
from mqchaos.faults.kinds import RENEW_CERTIFICATES, RENEW_SECRET
from mqchaos.faults.obstacles import OfMany
from mqchaos.faults.targets import Server, Victims
from mqchaos.limits import POLL_S, PROBE_TIMEOUT_S, RENEWED_TIMEOUT_S
from mqclient.connection.encrypted import dialler

_TAKEN_OVER: Final = "certificates taken over"
_HARNESS: Final = "harness"


class RenewCertificates(OfMany):
    """A new authority, and of it a new certificate for each server and for clients."""

    kind = RENEW_CERTIFICATES

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """The obstacle: servers without certificates, or a victim that does not serve."""
        if not cluster.layout.tls:
            return "the servers of this cluster have no certificates; --tls gives them some"
        return super().why_not(cluster, victims)

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Make all trust both authorities; then replace certificates, without waiting."""
        await _told(cluster, partial(certificates.overlap, cluster.directory))
        await trio.sleep(TLS_LOOK_S)  # clients look no sooner
        for server in cluster.layout.servers:
            certificates.sign(cluster.directory, cluster.layout, server.name)
        certificates.sign_clients(cluster.directory)

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Check that two authorities are trusted, the old one and the new one."""
        return len(certificates.authorities(cluster.directory)) > 1

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Once each server shows its new certificate, trust the new authority alone."""
        new = certificates.authorities(cluster.directory)[0]
        only = cluster.directory / f"{_HARNESS}.pem"
        replace(only, new)
        for server in _running(cluster):
            await _until(partial(_shows, server, only), f"{server.name} shows its new certificate")
        await trio.sleep(TLS_LOOK_S)
        await _told(cluster, partial(certificates.trust, cluster.directory, new))


class RenewSecret(OfMany):
    """A new secret of the cluster, beside the old one for a time."""

    kind = RENEW_SECRET

    def why_not(self, cluster: Cluster, victims: Victims) -> str | None:
        """While they serve, and there is a secret."""
        if cluster.secret_file is None:
            return "this cluster has no secret"
        return super().why_not(cluster, victims)

    async def inject(self, cluster: Cluster, victims: Victims) -> None:
        """Make both secrets valid everywhere; then put the new one first, without waiting."""
        (old,), new = read_secrets(_file_of(cluster)), new_secret()
        await _write(cluster, old, new)
        await _have(cluster, (old, new))
        await _write(cluster, new, old)

    async def took_effect(self, cluster: Cluster, victims: Victims) -> bool:
        """Two secrets are valid at each of these."""
        both = read_secrets(_file_of(cluster))
        return len(both) > 1 and all([len(await _has(cluster, v, both)) > 1 for v in victims])

    async def heal(self, cluster: Cluster, victims: Victims) -> None:
        """Once each server signs with the new one, take the old one away."""
        both = read_secrets(_file_of(cluster))
        await _have(cluster, both)
        await trio.sleep(SECRET_LOOK_S)  # tools look no sooner
        await _write(cluster, both[0])
        for server in _running(cluster):
            done = partial(_has_only, cluster, server, both)
            await _until(done, f"{server.name} has the new secret alone")


RENEWING_FAULTS: Final = (RenewCertificates(), RenewSecret())


def _running(cluster: Cluster) -> list[Server]:
    return [server for server in cluster.layout.servers if cluster.serves(server.name)]


async def _told(cluster: Cluster, change: Callable[[], None]) -> None:
    """Change files of certificates, and wait until each server that runs on has taken them over.
    One that is started meanwhile reads them as they are."""

    def taken(name: str) -> int:
        return cluster.log(name).read_text(errors="replace").count(_TAKEN_OVER)

    before = {each.name: (cluster.pid(each.name), taken(each.name)) for each in _running(cluster)}
    change()
    for name, (pid, times) in before.items():

        async def done(name: str = name, pid: int | None = pid, times: int = times) -> bool:
            return cluster.pid(name) != pid or taken(name) > times

        await _until(done, f"{name} has taken over {_TAKEN_OVER.partition(' ')[0]}")


async def _shows(server: Server, only: Path) -> bool:
    """Whether a server's certificate is of the authority in a file."""
    host, port = parse_address(server.address)
    try:
        async with connect_peer(host, port, PROBE_TIMEOUT_S, tls=dialler(Tls(ca=only))):
            return True
    except DledgerError:
        return False


def _file_of(cluster: Cluster) -> Path:
    file = cluster.secret_file
    assert file is not None, "`why_not` has looked"
    return file


async def _write(cluster: Cluster, *secrets: bytes) -> None:
    replace(_file_of(cluster), b"\n\n".join(secrets) + b"\n")


async def _have(cluster: Cluster, secrets: tuple[bytes, ...]) -> None:
    """Wait until each server that runs has these, in this order."""

    for server in _running(cluster):

        async def done(server: Server = server) -> bool:
            return await _has(cluster, server, secrets) == secrets

        await _until(done, f"{server.name} has the secrets in the file")


async def _has_only(cluster: Cluster, server: Server, both: tuple[bytes, ...]) -> bool:
    return await _has(cluster, server, both) == both[:1]


async def _has(cluster: Cluster, server: Server, offered: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Which of these a server has, its first one first; none if it does not say."""
    broker = server.broker if isinstance(server, NodeLayout) else cluster.layout.brokers[0]
    names = CLUSTER_NAME, broker
    if isinstance(server, NodeLayout):
        door, server_id = broker_door(*names), BROKER_ID
    else:
        door, server_id = name_server_door(*names), NAME_SERVER_ID
    prover = Prover(Secrets(*offered), *names, _HARNESS)
    host, port = parse_address(server.address)
    try:
        tls = dialler(cluster.tls)
        async with connect_peer(host, port, PROBE_TIMEOUT_S, tls=tls) as peer:
            return await prover.shared(peer, door, server_id, PROBE_TIMEOUT_S) or ()
    except DledgerError:
        return ()


async def _until(done: Callable[[], Awaitable[bool]], what: str) -> None:
    """Raises ClusterError if it is not done in time."""
    with trio.move_on_after(RENEWED_TIMEOUT_S):
        while not await done():  # noqa: ASYNC110 - another process's
            await trio.sleep(POLL_S)
        return
    raise ClusterError(f"not within {RENEWED_TIMEOUT_S:.0f} s: {what}")
