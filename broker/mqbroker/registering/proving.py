"""A broker's proof to a name server, on the connection on which it then registers."""

from __future__ import annotations

import os

from dledger.errors import ConnectFailed, FrameError
from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import ProveHeader, ProveResponseHeader, decode_header, encode_header
from dledger.trust.proof import NONCE_BYTES, Dialler, check_hello
from dledger.trust.signing import NAME_SERVER_ID, Signing, name_server_door, raw_bytes
from mqbroker.config import BrokerConfig


async def prove(peer: Peer, config: BrokerConfig, timeout_s: float) -> Signing | None:
    """Prove, let the name server prove, and get what signs the requests that follow.

    None without a secret, here or there: RocketMQ's own name servers have none. Raises
    ConnectFailed if the two have different ones, RemotingError.
    """
    secret = config.ledger().secret
    if not secret:
        return None
    door = name_server_door(config.broker_cluster_name, config.broker_name)
    dialler = Dialler(door, config.node_id, secret, os.urandom(NONCE_BYTES))
    answer = await _say(peer, config, timeout_s, nonce=dialler.hello.nonce)
    if answer is None:
        return None
    acceptor = check_hello(NAME_SERVER_ID, raw_bytes(answer.nonce))
    proof = dialler.prove(acceptor, NAME_SERVER_ID)
    answer = await _say(peer, config, timeout_s, proof=proof)
    try:
        return Signing(dialler.check(raw_bytes(answer.proof) if answer else None))
    except FrameError as error:
        raise ConnectFailed(
            f"{peer.address}: this name server does not know the cluster's secret: {error}"
        ) from error


async def _say(
    peer: Peer, config: BrokerConfig, timeout_s: float, nonce: bytes = b"", proof: bytes = b""
) -> ProveResponseHeader | None:
    """One of the two requests; None if the name server does not know their code."""
    header = ProveHeader(
        cluster_name=config.broker_cluster_name,
        broker_name=config.broker_name,
        node_id=config.node_id,
        nonce=nonce.hex() or None,
        proof=proof.hex() or None,
    )
    request = Command(RequestCode.PROVE, encode_header(header))
    response = await peer.request(request, timeout_s)
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return None
    if response.code != ResponseCode.SUCCESS:
        raise ConnectFailed(
            f"{peer.address}: the name server refused this broker's proof that it knows the "
            f"cluster's secret: {response.remark}"
        )
    return decode_header(ProveResponseHeader, response)
