"""Adds nodes to a broker group and removes them, while it serves."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from dledger.addresses import parse_address
from dledger.remoting.bodies import BrokerData
from dledger.remoting.headers import AddMemberHeader, GroupInfoResponseHeader, RemoveMemberHeader
from dledger.world import steady_s
from mqclient import limits
from mqclient.admin.raft import ask_members, leader_among
from mqclient.admin.results import MemberChange
from mqclient.admin.session import Part
from mqclient.arguments import check_seconds
from mqclient.errors import ClientError


class NotYetDone(ClientError):
    """A change of the members has begun, and goes on by itself; the message says how far it is."""

    definite = False


class Members(Part):
    """Part `admin.members`: adds and removes members of broker groups. A repeated call goes on with
    the change."""

    async def add(
        self,
        broker: str,
        node_id: str,
        peer_address: str,
        client_address: str,
        *,
        within_s: float = limits.CATCH_UP_S,
        on_progress: Callable[[str], None] = lambda line: None,
    ) -> MemberChange:
        """Add a running node, with its "host:port" for members and for clients.

        It copies the log as a learner, and becomes a voter when it has caught up; then this
        returns. Raises Refused with the leader's reason, NotYetDone if that takes longer than
        `within_s`.
        """
        check_seconds("within_s", within_s)
        (group,) = await self._session.broker_groups(broker=broker)
        host, port = parse_address(peer_address)
        parse_address(client_address)
        header = AddMemberHeader(node_id=node_id, host=host, port=port, client_addr=client_address)
        await self._requests.ask_leader(group, header)
        return await self._wait(
            group,
            node_id,
            lambda info: node_id in dict(info.members) and node_id not in info.learners,
            within_s,
            on_progress,
        )

    async def remove(
        self, broker: str, node_id: str, *, within_s: float = limits.CATCH_UP_S
    ) -> MemberChange:
        """Remove a node, running or not; returns when the leader no longer counts it.

        A leader hands over first. Raises Refused with the leader's reason, NotYetDone.
        """
        check_seconds("within_s", within_s)
        (group,) = await self._session.broker_groups(broker=broker)
        header = RemoveMemberHeader(node_id=node_id)
        await self._requests.ask_leader(group, header)
        return await self._wait(
            group, node_id, lambda info: node_id not in dict(info.members), within_s
        )

    async def _wait(
        self,
        group: BrokerData,
        node_id: str,
        is_done: Callable[[GroupInfoResponseHeader], bool],
        within_s: float,
        on_progress: Callable[[str], None] = lambda line: None,
    ) -> MemberChange:
        since_s, said = steady_s(), "no leader has answered yet"
        with anyio.move_on_after(within_s):
            while True:
                infos = (await ask_members(self._requests, group)).values()
                leader = leader_among(infos)
                if leader is not None and is_done(leader):
                    members = tuple(sorted(member for member, _ in leader.members))
                    waited_s = steady_s() - since_s
                    return MemberChange(group.broker_name, node_id, members, waited_s)
                held = {info.node_id: info.last_index for info in infos if info is not None}
                if leader is not None and node_id in held:
                    said = f"{node_id} lacks {max(0, leader.last_index - held[node_id])} entries"
                elif leader is not None:
                    said = f"{node_id} does not answer: is it running?"
                on_progress(said)
                await anyio.sleep(limits.FIND_BACKOFF_MAX_S)
        raise NotYetDone(
            f"the change of {node_id} was begun, but is not done after {within_s:g} s: {said}. It "
            "goes on by itself; raftStatus shows it, and the same command waits for it again"
        )
