"""Heartbeats: every replica of every broker group in use knows this client.

So a new leader knows the members of a group before it leads. A broker keeps a member until the
connection ends, or nothing was heard of it for two minutes. So over a connection that has taken a
heartbeat the same one is sent again only every `limits.HEARTBEAT_REPEAT_S`. Each second it is sent
to those that lack it: over new connections, where it has changed, where it was declined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import anyio

from dledger.errors import RemotingError
from dledger.net import Peer
from dledger.observe import get_logger
from dledger.remoting.bodies import HeartbeatData, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.world import steady_s, world
from mqclient import limits
from mqclient.connection.lifetime import together
from mqclient.connection.peers import PeerPool
from mqclient.connection.routing import RouteTable

log = get_logger(__name__)


class _Taken(NamedTuple):
    """The heartbeat that a broker took last, over which connection, and when."""

    heartbeat: HeartbeatData
    peer: Peer
    at_s: float


class Heartbeats:
    """The heartbeats of one client that each broker has taken."""

    def __init__(self, pool: PeerPool, routes: RouteTable) -> None:
        self._pool = pool
        self._routes = routes
        self._taken: dict[str, _Taken] = {}

    async def tell(self, heartbeat: HeartbeatData) -> list[Command]:
        """Tell every known broker; ends when all answered or were too slow.

        The answers of those that decline it.
        """
        return await self._tell(heartbeat, self._addresses())

    async def keep_telling(self, heartbeat: Callable[[], HeartbeatData]) -> None:
        """Tell every known broker, until cancelled: each second, those that lack a heartbeat."""
        while True:
            now = heartbeat()
            addresses = self._addresses()
            self._taken = {each: self._taken[each] for each in addresses if each in self._taken}
            await self._tell(now, {each for each in addresses if self._lacks(each, now)})
            await anyio.sleep(world().seldom_s(limits.HEARTBEAT_S))

    def _addresses(self) -> set[str]:
        return {
            address
            for broker_name in self._routes.broker_names()
            for address in self._routes.members(broker_name)
        }

    def _lacks(self, address: str, heartbeat: HeartbeatData) -> bool:
        taken = self._taken.get(address)
        return (
            taken is None
            or taken.peer is not self._pool.connected(address)
            or taken.heartbeat != heartbeat
            or steady_s() - taken.at_s >= world().seldom_s(limits.HEARTBEAT_REPEAT_S)
        )

    async def _tell(self, heartbeat: HeartbeatData, addresses: set[str]) -> list[Command]:
        if not addresses:
            return []
        body = encode_body(heartbeat)
        declined: list[Command] = []

        async def tell(address: str) -> None:
            self._taken.pop(address, None)
            try:
                peer = await self._pool.connect(address, limits.HEARTBEAT_TIMEOUT_S)
                command = Command(RequestCode.HEART_BEAT, {}, body)
                answer = await self._pool.request(address, command, limits.HEARTBEAT_TIMEOUT_S)
            except RemotingError as error:
                log.debug("broker not reached", address=address, reason=str(error))
                return
            if answer.code == ResponseCode.SUCCESS:
                self._taken[address] = _Taken(heartbeat, peer, steady_s())
                return
            declined.append(answer)
            log.warning("broker declined", address=address, code=answer.code, reason=answer.remark)

        async with together() as tasks:
            for address in addresses:
                tasks.start_soon(tell, address)
        return declined
