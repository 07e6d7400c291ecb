"""TRANSFER_LEADER (9003): the leader hands its group to another member."""

from __future__ import annotations

from broker.refusal import Refused
from broker.requests.core import Core
from dledger.errors import NotLeader, TransferFailed
from dledger.net import Connection
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    TransferLeaderHeader,
    TransferLeaderResponseHeader,
    decode_header,
    encode_header,
)


class LeadershipHandler:
    """Answers when another member leads, or with the reason why none does."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def transfer(self, request: Command, _: Connection) -> Command:
        """TRANSFER_LEADER. Asked again after it is done, the new leader says so."""
        role, target = self._core.role, decode_header(TransferLeaderHeader, request).node_id
        if target != role.node_id:
            try:
                target = await self._core.log.transfer_leadership(target)
            except NotLeader:
                raise role.not_leader() from None
            except TransferFailed as error:
                raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return request.reply(ext=encode_header(TransferLeaderResponseHeader(leader_id=target)))
