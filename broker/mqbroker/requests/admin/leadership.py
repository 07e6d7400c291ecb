"""Changes of the leader and of the members, at an operator's request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from dledger.addresses import parse_address
from dledger.errors import (
    AppendError,
    BadInput,
    ChangePending,
    MembershipError,
    NotLeader,
    TransferFailed,
)
from dledger.net import Connection
from dledger.remoting import headers
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from mqbroker import limits
from mqbroker.config import check_member_id
from mqbroker.refusal import system_error
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.needs import by_leader_to_admin


class LeadershipHandler:
    """Answers when another member leads or the members have changed, or with the reason why not."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @by_leader_to_admin(RequestCode.TRANSFER_LEADER, rights=rights.MEMBER)
    async def transfer(self, request: Command, _: Connection) -> Command:
        """Hand leadership over to the replica that the request names. If the request is repeated
        afterwards, the new leader says that it leads."""
        role, target = self._core.role, decode_header(headers.TransferLeaderHeader, request).node_id
        if target != role.node_id:
            try:
                target = await self._core.log.transfer_leadership(target)
            except NotLeader:
                raise role.not_leader() from None
            except TransferFailed as error:
                raise system_error(str(error)) from error
        return request.reply(
            ext=encode_header(headers.TransferLeaderResponseHeader(leader_id=target))
        )

    @by_leader_to_admin(RequestCode.ADD_MEMBER, rights=rights.MEMBER)
    async def add_member(self, request: Command, _: Connection) -> Command:
        """Add a node as a member. A repeated request changes nothing.

        What could not be dialled, or not be written in a config file, is refused before it is in
        the log: from there nothing takes it away but a removal.
        """
        header, log = decode_header(headers.AddMemberHeader, request), self._core.log
        check_member_id(header.node_id)
        parse_address(header.client_addr)
        for member in log.status.members:
            taken = (member.host, member.port) == (header.host, header.port)
            if member.node_id != header.node_id and (taken or member.service == header.client_addr):
                raise BadInput(
                    f"{member.node_id} is a member at {member.host}:{member.port} already"
                )
        place = header.node_id, header.host, header.port, header.client_addr
        return await self._change(request, lambda: log.add_member(*place))

    @by_leader_to_admin(RequestCode.REMOVE_MEMBER, rights=rights.MEMBER)
    async def remove_member(self, request: Command, _: Connection) -> Command:
        """Remove a member from the group; answered when the change is committed."""
        header, log = decode_header(headers.RemoveMemberHeader, request), self._core.log
        return await self._change(request, lambda: log.remove_member(header.node_id))

    async def _change(self, request: Command, change: Callable[[], Awaitable[None]]) -> Command:
        give_up_at = self._core.clock_s() + limits.MEMBERS_PENDING_S
        while True:
            try:
                await change()
                return request.reply()
            except ChangePending as error:
                if self._core.clock_s() >= give_up_at:
                    raise system_error(str(error)) from error
                await trio.sleep(limits.MEMBERS_POLL_S)
            except (MembershipError, TransferFailed) as error:
                raise system_error(str(error)) from error
            except AppendError as error:
                raise self._core.role.refusal_of(error) from error
