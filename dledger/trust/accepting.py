"""The proofs of others, on the connections of one server: of brokers at a name server, of members
and tools at a broker. Pure.

PROVE comes twice on a connection: a hello, answered with this end's nonce; then the other end's
proof, answered with this end's. From then on the connection speaks for the cluster and the broker
group that it has proven, in each request that carries the next tag (`signing`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dledger.errors import DledgerError, FrameError
from dledger.limits import PROVEN_NAME_CHARACTERS_MAX
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import ProveHeader, ProveResponseHeader, decode_header, encode_header
from dledger.trust.proof import Acceptor, Door, Hello, check_hello
from dledger.trust.rolling import Secrets
from dledger.trust.signing import Verifying, raw_bytes


class NotLetIn(DledgerError):
    """The request was refused, and nothing was done. The message says why and what to do."""


@dataclass(slots=True)
class _Proving:
    """A connection on which the other end has begun its proof, or finished it."""

    cluster: str
    broker_name: str
    dialler: Hello
    acceptor: Acceptor
    verifying: Verifying | None = None


class Proofs:
    """The state of all connections. `door` makes the door of a cluster's broker group; `server_id`
    is this end's name to whoever proves."""

    def __init__(
        self,
        secret: bytes | Secrets,
        server_id: str,
        door: Callable[[str, str], Door],
        nonce: Callable[[], bytes],
    ) -> None:
        self._secrets = Secrets.of(secret)
        self._server_id = server_id
        self._door = door
        self._nonce = nonce
        self._proving: dict[int, _Proving] = {}

    def forget(self, connection_id: int) -> None:
        """Forget the proof that a lost connection has begun."""
        self._proving.pop(connection_id, None)

    def prove(self, request: Command, connection_id: int) -> Command:
        """Answer a PROVE: first with a nonce; then, if the other end's proof is right, with this
        end's. Raises NotLetIn, FrameError, HeaderError.
        """
        if not self._secrets:
            remark = f"this {self._server_id} has no secret: set its secretFile, or don't sign"
            return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
        header = decode_header(ProveHeader, request)
        if header.proof is None:
            return self._hello(request, header, connection_id)
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

    def _hello(self, request: Command, header: ProveHeader, connection_id: int) -> Command:
        if connection_id in self._proving:
            raise NotLetIn("a second hello: begin again on a new connection")
        if max(len(header.cluster_name), len(header.broker_name)) > PROVEN_NAME_CHARACTERS_MAX:
            raise NotLetIn(f"a name is above {PROVEN_NAME_CHARACTERS_MAX} characters")
        dialler = check_hello(header.node_id, raw_bytes(header.nonce))
        door = self._door(header.cluster_name, header.broker_name)
        acceptor = Acceptor(door, self._server_id, self._secrets, self._nonce())
        self._proving[connection_id] = _Proving(
            header.cluster_name, header.broker_name, dialler, acceptor
        )
        answer = ProveResponseHeader(nonce=acceptor.hello.nonce.hex())
        return request.reply(ext=encode_header(answer))

    def check(self, request: Command, connection_id: int) -> tuple[str, str] | None:
        """The cluster and the broker group that a signed request speaks for; None if nothing was
        proven on its connection. Raises FrameError for a wrong tag, after which nothing on this
        connection can be trusted."""
        proving = self._proving.get(connection_id)
        if proving is None or proving.verifying is None:
            return None
        proving.verifying.check(request)
        return proving.cluster, proving.broker_name
