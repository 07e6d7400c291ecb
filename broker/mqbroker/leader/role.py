"""The role of this replica: whether it leads its group, and who does. Pure.

A replica serves from the moment it leads and has applied its own no-op: it then knows everything
that any earlier leader acknowledged. Followers refuse with SERVICE_NOT_AVAILABLE, which makes stock
producers try elsewhere; for our client the ext field `leaderAddr` says where.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dledger.errors import AppendError, Busy, NotConfirmed, NotLeader, TooLarge
from dledger.remoting.codes import ResponseCode
from dledger.remoting.unavailable import LEADER_ADDR, OUTCOME, OUTCOME_UNKNOWN, RETRY_AFTER_MILLIS
from mqbroker.refusal import NotApplied, Refused, illegal_message, system_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dledger.ledger.config import MemberStatus
    from dledger.remoting.command import ExtValue


class Role:
    """The role of this replica in its group, and the present leader. `addresses`: node id ->
    "host:port" of its port for clients."""

    def __init__(self, node_id: str, addresses: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.addresses = dict(addresses)
        # A member's number does not depend on the other members: n3 is always 3.
        digits = re.search(r"\d{1,6}$", node_id)
        self._number = int(digits[0]) if digits else sorted(addresses).index(node_id)
        self.serving = False
        self.term = 0
        self.leader_id: str | None = None
        #: How often another leader, or a leader's next term, was followed; or this replica led.
        self.leader_changes = 0
        self._last: tuple[str, int] | None = None

    @property
    def leader_address(self) -> str | None:
        """ "host:port" of the leader's port for clients, if known."""
        return self.addresses.get(self.leader_id) if self.leader_id is not None else None

    @property
    def broker_id(self) -> int:
        """The id to register with name servers: 0 for the leader, else the node's number + 1."""
        return 0 if self.serving else self._number + 1

    def take_members(self, members: Iterable[MemberStatus]) -> None:
        """Take the members of the group, if the log has them. This node is always known."""
        named = {member.node_id: member.service for member in members if member.service}
        if named:
            self.addresses = {self.node_id: self.addresses[self.node_id], **named}

    def leading(self, term: int) -> None:
        """Note that this replica serves from now on."""
        self._count(self.node_id, term)
        self.serving, self.term, self.leader_id = True, term, self.node_id

    def following(self, leader: str | None, term: int) -> None:
        """Another replica leads, or none as yet."""
        self._count(leader, term)
        self.serving, self.term, self.leader_id = False, term, leader

    def _count(self, leader: str | None, term: int) -> None:
        if leader is not None and (leader, term) != self._last:
            self._last = (leader, term)
            self.leader_changes += 1

    def check_serving(self) -> None:
        """Refuse unless this replica serves."""
        if not self.serving:
            raise self.not_leader()

    def not_leader(self) -> Refused:
        """The refusal of a replica that does not serve."""
        address = self.leader_address if self.leader_id != self.node_id else None
        if address is None:
            return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader; none is known")
        # If a stock tool asks a follower by its address, it shows only the remark.
        remark = f"not the leader: ask {address}"
        return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, remark, {LEADER_ADDR: address})

    def refusal_of(self, error: AppendError | NotConfirmed) -> Refused:
        """The answer to a request whose append failed, or whose read was not confirmed.

        All transient failures are SERVICE_NOT_AVAILABLE, which stock producers retry elsewhere
        (older ones do not retry SYSTEM_BUSY). The ext field `outcome` says "unknown" if the append
        may still be committed; `retryAfterMillis` is a hint.
        """
        if isinstance(error, NotLeader):
            return self.not_leader()
        if isinstance(error, TooLarge):
            return illegal_message(str(error))
        if isinstance(error, NotApplied):
            return system_error(str(error))
        ext: dict[str, ExtValue] = {}
        if isinstance(error, Busy):
            ext[RETRY_AFTER_MILLIS] = str(max(1, round(error.retry_after_s * 1000)))
        if not error.definite:
            ext[OUTCOME] = OUTCOME_UNKNOWN
        return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error), ext)
