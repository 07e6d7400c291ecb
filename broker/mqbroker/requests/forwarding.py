"""Passes tools' changes that come to a follower on to the leader, and returns the leader's answer.

Topics, groups and settings are entries of the log, which only a leader can append; but a person
gives a tool the address of any broker, and stock tools of 5.x tell every member to delete a topic.
Handlers declare which requests these are (`Needs.FORWARDED`). A request is passed on only once: if
two members each take the other for the leader, the second one refuses. Messages and offsets are not
passed on; clients find the leader by themselves.
"""

from __future__ import annotations

from typing import Final

import trio

from dledger.addresses import parse_address
from dledger.errors import BadInput, RemotingError
from dledger.net import Peer, connect_peer
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command, HeaderEncoding
from dledger.trust.guard import Asker
from dledger.trust.signatures import ACCESS_KEY, BODY_HASH, OWN_SIGNATURE, SIGNATURE, STAMP
from dledger.trust.signing import BROKER_ID, TAG_FIELD, broker_door
from mqbroker import limits
from mqbroker.refusal import Refused, busy
from mqbroker.requests.core import Core
from mqbroker.requests.door import (
    FORWARDED_ADMIN,
    FORWARDED_BY,
    FORWARDED_SOURCE,
    FORWARDED_USER,
    PROVEN,
)

_NOT_PASSED_ON: Final = frozenset(
    {
        *(FORWARDED_BY, FORWARDED_ADMIN, FORWARDED_USER, FORWARDED_SOURCE, PROVEN, TAG_FIELD),
        *(ACCESS_KEY, SIGNATURE, STAMP, BODY_HASH, OWN_SIGNATURE),
    }
)
"""Fields that tell this member who asks; the leader knows by the proof of this member."""


class Forwarding:
    """Passes requests on, each over its own connection, since they are rare."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._room = trio.CapacityLimiter(limits.FORWARDED_MAX)

    async def forward(self, request: Command, asker: Asker, *, is_admin: bool) -> Command:
        """The leader's answer, to what an administrator or a user asked, or anybody. Refused if
        there is no leader, or none that answers."""
        role = self._core.role
        if role.leader_address is None or role.leader_id == role.node_id:
            raise role.not_leader()
        if self._room.available_tokens == 0:
            raise busy(f"{limits.FORWARDED_MAX} requests wait for the leader already")
        async with self._room:
            answer = await self._ask(role.leader_address, request, asker, is_admin)
        return request.reply(answer.code, answer.ext, answer.payload, answer.remark)

    async def _ask(self, address: str, request: Command, asker: Asker, is_admin: bool) -> Command:
        ext = {name: value for name, value in request.ext.items() if name not in _NOT_PASSED_ON}
        ext[FORWARDED_BY] = self._core.role.node_id
        if asker.name and not asker.problem:
            ext |= {FORWARDED_USER: asker.name, FORWARDED_SOURCE: asker.source}
        if is_admin:
            ext |= {FORWARDED_ADMIN: True, FORWARDED_SOURCE: asker.source}
        # Text, so that the leader reads each field as this node did.
        passed_on = Command(request.code, ext, request.payload, encoding=HeaderEncoding.JSON)
        try:
            async with connect_peer(*parse_address(address), tls=self._core.dialler) as leader:
                if is_admin or FORWARDED_USER in ext:
                    passed_on = await self._signed(leader, passed_on)
                return await leader.request(passed_on, limits.FORWARD_S)
        except (RemotingError, BadInput) as error:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"passed on to the leader at {address}, which may or may not have done it: {error}",
            ) from error

    async def _signed(self, leader: Peer, request: Command) -> Command:
        """The request with a proof that a member passes it on; as it is in a group without a
        secret."""
        door = broker_door(*self._core.file_config.names)
        signing = await self._core.signing(leader, door, BROKER_ID, limits.FORWARD_S)
        return request if signing is None else signing.sign(request)
