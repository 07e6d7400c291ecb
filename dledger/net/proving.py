"""A proof to a server, on the connection that is then used: both ends know the cluster's secret."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dledger.errors import ConnectFailed, FrameError
from dledger.net.peer import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import ProveHeader, ProveResponseHeader, decode_header, encode_header
from dledger.trust.proof import NONCE_BYTES, Dialler, Door, Session, check_hello
from dledger.trust.rolling import Secrets
from dledger.trust.signing import Signing, raw_bytes


@dataclass(frozen=True, slots=True)
class Prover:
    """The identity that this end proves: its cluster, its broker group, and its own name."""

    secret: bytes | Secrets
    cluster: str
    broker_name: str
    node_id: str

    async def prove(
        self, peer: Peer, door: Door, server_id: str, timeout_s: float
    ) -> Signing | None:
        """Prove, let the server prove, and get what signs the requests that follow.

        None if the server has no secret: RocketMQ's own have none. Raises ConnectFailed if the two
        have different ones, RemotingError.
        """
        dialler = self._dialler(door)
        session = await self._agreed(dialler, peer, server_id, timeout_s)
        return None if session is None else Signing(session)

    async def shared(
        self, peer: Peer, door: Door, server_id: str, timeout_s: float
    ) -> tuple[bytes, ...] | None:
        """The secrets that both ends have, the server's first one first; None if the server has
        none at all. Raises as `prove`."""
        dialler = self._dialler(door)
        await self._agreed(dialler, peer, server_id, timeout_s)
        return dialler.shared or None

    def _dialler(self, door: Door) -> Dialler:
        return Dialler(door, self.node_id, self.secret, os.urandom(NONCE_BYTES))

    async def _agreed(
        self, dialler: Dialler, peer: Peer, server_id: str, timeout_s: float
    ) -> Session | None:
        answer = await self._say(peer, server_id, timeout_s, nonce=dialler.hello.nonce)
        if answer is None:
            return None
        acceptor = check_hello(server_id, raw_bytes(answer.nonce))
        proof = dialler.prove(acceptor, server_id)
        answer = await self._say(peer, server_id, timeout_s, proof=proof)
        try:
            return dialler.check(raw_bytes(answer.proof) if answer else None)
        except FrameError as error:
            raise ConnectFailed(
                f"{peer.address}: this {server_id} does not know the cluster's secret: {error}"
            ) from error

    async def _say(
        self, peer: Peer, server_id: str, timeout_s: float, nonce: bytes = b"", proof: bytes = b""
    ) -> ProveResponseHeader | None:
        """Send one of the two requests; None if the server does not know their code."""
        header = ProveHeader(
            cluster_name=self.cluster,
            broker_name=self.broker_name,
            node_id=self.node_id,
            nonce=nonce.hex() or None,
            proof=proof.hex() or None,
        )
        request = Command(RequestCode.PROVE, encode_header(header))
        response = await peer.request(request, timeout_s)
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise ConnectFailed(
                f"{peer.address}: the {server_id} refused this end's proof that it knows the "
                f"cluster's secret: {response.remark}"
            )
        return decode_header(ProveResponseHeader, response)
