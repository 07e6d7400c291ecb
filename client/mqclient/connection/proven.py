"""Requests that a broker takes only from whoever knows the cluster's secret, or is near.

A broker refuses them to an address that its `adminAddresses` does not list, and has done nothing
then. So they are asked as usual first. If that is refused and this session was given the secret,
both ends prove to each other that they know it, on a connection for this one request, which is
signed. A server at that address that does not know the secret learns nothing.
"""

from __future__ import annotations

from copy import copy

from dledger.addresses import parse_address
from dledger.errors import BadInput
from dledger.net import connect_peer
from dledger.net.peer import Dialler
from dledger.net.proving import Prover
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GroupInfoHeader,
    GroupInfoResponseHeader,
    decode_header,
    encode_header,
)
from dledger.trust.rolling import Secrets
from dledger.trust.signing import BROKER_ID, broker_door

TOOL_ID = "tool"


async def asked_with_proof(
    address: str, command: Command, secret: Secrets, timeout_s: float, tls: Dialler | None = None
) -> Command | None:
    """A broker's answer to a request with a proof; None if that server is no broker of ours, or has
    no secret. Raises RemotingError, also if it has another secret."""
    request = copy(command)
    host, port = parse_address(address)
    async with connect_peer(host, port, timeout_s, tls=tls) as peer:
        who = Command(RequestCode.GROUP_INFO, encode_header(GroupInfoHeader()))
        answer = await peer.request(who, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            return None
        try:
            info = decode_header(GroupInfoResponseHeader, answer)
        except BadInput:
            return None
        prover = Prover(secret, info.cluster, info.broker_name, TOOL_ID)
        door = broker_door(info.cluster, info.broker_name)
        signing = await prover.prove(peer, door, BROKER_ID, timeout_s)
        return None if signing is None else await peer.request(signing.sign(request), timeout_s)
