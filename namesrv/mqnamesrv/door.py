"""Which requests this name server takes from which sender. Pure.

Everybody may read routes. Brokers change them, and how far a broker is trusted depends on its
proof:

- *proven*: a broker that knows the cluster's secret (`dledger/trust/proof.py`) and signs each
request.
- *open*: any broker, if this name server has no secret. Then it listens on loopback only.
- *unsigned*: a broker without a proof, such as RocketMQ's own, if a setting allows it. Its terms
  are ignored, and it can't change a group with proven members.

Tools don't know the secret and can't sign. Their changes are taken from the addresses that a
setting names, by default from this machine only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from dledger.errors import ConfigError, DledgerError, FrameError
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import ProveHeader, ProveResponseHeader, decode_header, encode_header
from dledger.trust.proof import Acceptor, Hello, check_hello
from dledger.trust.secret import is_loopback
from dledger.trust.signing import NAME_SERVER_ID, TAG_FIELD, Verifying, name_server_door, raw_bytes
from mqnamesrv import limits

ANY, LOOPBACK = "*", "loopback"


class NotLetIn(DledgerError):
    """The request was refused, and nothing was done. The message says why and what to do."""


class Trust(Enum):
    """How far a broker's request is trusted."""

    PROVEN = "proven"
    OPEN = "open"
    UNSIGNED = "unsigned"


class AdminAddresses:
    """The addresses from which tools may change something, parsed from the setting."""

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


@dataclass(slots=True)
class _Proving:
    """A connection on which a broker has begun its proof, or finished it."""

    cluster: str
    broker_name: str
    dialler: Hello
    acceptor: Acceptor
    verifying: Verifying | None = None


class Door:
    """Decides which requests are allowed, by the connection, the request and the settings."""

    def __init__(
        self,
        secret: bytes,
        admin_addresses: AdminAddresses,
        nonce: Callable[[], bytes],
        *,
        lets_unsigned_in: bool,
    ) -> None:
        self._secret = secret
        self._admin = admin_addresses
        self._nonce = nonce
        self._lets_unsigned_in = lets_unsigned_in
        self._proving: dict[int, _Proving] = {}

    def forget(self, connection_id: int) -> None:
        """A connection is gone."""
        self._proving.pop(connection_id, None)

    def prove(self, request: Command, connection_id: int) -> Command:
        """Answer a PROVE: first with a nonce; then, if the broker's proof is right, with this end's
        proof.

        Raises NotLetIn, FrameError, HeaderError.
        """
        if not self._secret:
            remark = "this name server has no secret: set its secretFile, or don't sign"
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        header = decode_header(ProveHeader, request)
        if header.proof is None:
            return self._greet(request, header, connection_id)
        proving = self._proving.get(connection_id)
        if proving is None or proving.verifying is not None:
            raise NotLetIn("a proof without a hello before it: begin again on a new connection")
        try:
            proof, session = proving.acceptor.check(proving.dialler, raw_bytes(header.proof))
        except FrameError:
            del self._proving[connection_id]
            raise
        proving.verifying = Verifying(session)
        return request.reply(ext=encode_header(ProveResponseHeader(proof=proof.hex())))

    def _greet(self, request: Command, header: ProveHeader, connection_id: int) -> Command:
        if connection_id in self._proving:
            raise NotLetIn("a second hello: begin again on a new connection")
        if max(len(header.cluster_name), len(header.broker_name)) > limits.NAME_CHARACTERS_MAX:
            raise NotLetIn(f"a name is above {limits.NAME_CHARACTERS_MAX} characters")
        dialler = check_hello(header.node_id, raw_bytes(header.nonce))
        door = name_server_door(header.cluster_name, header.broker_name)
        acceptor = Acceptor(door, NAME_SERVER_ID, self._secret, self._nonce())
        self._proving[connection_id] = _Proving(
            header.cluster_name, header.broker_name, dialler, acceptor
        )
        answer = ProveResponseHeader(nonce=acceptor.hello.nonce.hex())
        return request.reply(ext=encode_header(answer))

    def trust_in(self, request: Command, connection_id: int) -> Trust:
        """How far a broker's request is trusted. Raises NotLetIn, and FrameError for a wrong tag,
        after which nothing on this connection can be trusted."""
        if not self._secret:
            return Trust.UNSIGNED if self._lets_unsigned_in else Trust.OPEN
        proving = self._proving.get(connection_id)
        if proving is not None and proving.verifying is not None:
            proving.verifying.check(request)
            said = request.ext.get("clusterName"), request.ext.get("brokerName")
            if said != (proving.cluster, proving.broker_name):
                raise NotLetIn(
                    f"this connection speaks for {proving.broker_name} of {proving.cluster}, "
                    f"not for {said[1]!r} of {said[0]!r}"
                )
            return Trust.PROVEN
        if TAG_FIELD not in request.ext and self._lets_unsigned_in:
            return Trust.UNSIGNED
        raise NotLetIn(
            "brokers have to prove to this name server that they know the cluster's secret: give "
            "the broker the same secretFile. (RocketMQ's own brokers can't: "
            "allowUnsignedBrokers = true lets those in that don't sign.)"
        )

    def check_admin(self, request: Command, host: str) -> None:
        """Raise NotLetIn for a change by a tool at an address that may make none."""
        if host not in self._admin:
            raise NotLetIn(
                f"request {request.code} changes this name server, and {host} may not: add it to "
                "adminAddresses of the name server, or run the tool where it may"
            )
