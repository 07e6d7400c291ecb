"""Asks the broker group that decides a producer's batches: what is decided, and to fence an epoch.

That group may be this one, which is asked without a connection. Another one is looked up at the
name servers, and its members are asked until its leader answers. It is seldom asked, so each time
over a connection of its own, signed with the cluster's secret if there is one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from dledger.addresses import parse_address
from dledger.errors import BadInput, RemotingError
from dledger.net import connect_peer
from dledger.remoting import headers
from dledger.remoting.bodies import ClusterInfo, decode_body
from dledger.remoting.bodies.staged import decode_places
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.trust.proof import Door
from dledger.trust.signing import BROKER_ID, NAME_SERVER_ID, broker_door, name_server_door
from mqbroker import limits
from mqbroker.leader.staged import HomeAnswer
from mqbroker.refusal import Refused
from mqbroker.requests.core import Core
from mqbroker.requests.sending.once import OnceHandler


class Homes:
    """Speaks with the groups that decide."""

    def __init__(self, core: Core, once: OnceHandler) -> None:
        self._core = core
        self._once = once

    async def decision(self, name: str, home: str) -> HomeAnswer:
        """The decision under a name. Raises RemotingError, Refused or BadInput."""
        command = Command(RequestCode.DECISION_OF, encode_header(headers.DecisionOfHeader(name)))
        if home == self._core.config.broker_name:
            answer = self._once.decided(command)
        else:
            answer = await self._ask(home, command)
        header = decode_header(headers.DecisionOfResponseHeader, answer)
        if not header.is_kept:
            return HomeAnswer(header.epoch, header.batch, None)
        own = decode_places(answer.payload).get(self._core.config.broker_name, ())
        return HomeAnswer(header.epoch, header.batch, [offset for offset, _ in own])

    async def fence(self, name: str, home: str) -> None:
        """Fence all instances so far: they decide nothing any more. Raises as `decision`."""
        instance = f"drops-{uuid.uuid4().hex}"
        if home == self._core.config.broker_name:
            await self._once.take_over(name, instance)
            return
        header = headers.RegisterProducerHeader(name, instance)
        await self._ask(home, Command(RequestCode.REGISTER_PRODUCER, encode_header(header)))

    async def _ask(self, home: str, command: Command) -> Command:
        """The answer of the group's leader."""
        reason = f"no name server knows the broker group {home!r}"
        config = self._core.config
        door = broker_door(config.broker_cluster_name, home)
        for address in await self._members(home):
            try:
                place = parse_address(address)
                answer = await self._request(*place, door, BROKER_ID, home, command)
            except RemotingError as error:
                reason = str(error)
                continue
            if answer.code == ResponseCode.SUCCESS:
                return answer
            reason = f"{address} answered with code {answer.code}: {answer.remark}"
        raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, reason)

    async def _members(self, home: str) -> Iterable[str]:
        config = self._core.config
        command = Command(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        door, of = name_server_door(*config.names), config.broker_name
        for host, port in config.name_servers():
            try:
                answer = await self._request(host, port, door, NAME_SERVER_ID, of, command)
                table = decode_body(ClusterInfo, answer.payload).broker_addr_table
            except (RemotingError, BadInput):
                continue
            if home in table:
                return table[home].broker_addrs.values()
        return ()

    async def _request(
        self, host: str, port: int, door: Door, server_id: str, of: str, command: Command
    ) -> Command:
        timeout_s, dialler = limits.HOME_TIMEOUT_S, self._core.dialler
        async with connect_peer(host, port, timeout_s, tls=dialler) as peer:
            signing = await self._core.signing(peer, door, server_id, timeout_s, of)
            signed = command if signing is None else signing.sign(command)
            return await peer.request(signed, timeout_s)
