"""The members of a broker group: the state of each, and transfers of leadership."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import anyio
import msgspec

from dledger.errors import BadInput, RemotingError
from dledger.remoting.bodies import BrokerData
from dledger.remoting.headers import (
    GroupInfoHeader,
    GroupInfoResponseHeader,
    TransferLeaderHeader,
    TransferLeaderResponseHeader,
    decode_header,
)
from dledger.world import steady_s
from mqclient import limits
from mqclient.admin.requests import AdminRequests
from mqclient.admin.results import LeaderTransfer, RaftMember
from mqclient.admin.session import Part, run_for_each
from mqclient.errors import NoLeader

Answers = dict[str, GroupInfoResponseHeader | None]


class Raft(Part):
    """Part `admin.raft`: shows the members of broker groups, and transfers leadership."""

    async def status(
        self, cluster: str | None = None, broker: str | None = None
    ) -> tuple[RaftMember, ...]:
        """Every member of the groups, even those that are not registered."""
        groups = await run_for_each(
            self._group_status, await self._session.broker_groups(cluster, broker)
        )
        return tuple(member for group in groups for member in group)

    async def transfer_leader(self, broker: str, node_id: str | None = None) -> LeaderTransfer:
        """Hand leadership to a member, by default the one that holds most of the log; returns when
        it serves.

        Raises Refused with the leader's reason, NoLeader if the new one does not serve in time.
        """
        (group,) = await self._session.broker_groups(broker=broker)
        header = TransferLeaderHeader(node_id=node_id)
        answer = await self._requests.ask_leader(group, header)
        leader_id = decode_header(TransferLeaderResponseHeader, answer).leader_id
        since_s = steady_s()
        with anyio.move_on_after(self._session.timeout_s):
            while True:
                for address, info in (await ask_members(self._requests, group)).items():
                    if info is not None and (info.node_id, info.role) == (leader_id, "leader"):
                        waited_s = steady_s() - since_s
                        return LeaderTransfer(group.broker_name, leader_id, address, waited_s)
                await anyio.sleep(limits.FIND_BACKOFF_MAX_S)
        asked = tuple(group.broker_addrs.values())
        raise NoLeader(group.broker_name, asked, self._session.timeout_s)

    async def _group_status(self, group: BrokerData) -> Sequence[RaftMember]:
        return members_of(
            group.cluster, group.broker_name, await ask_members(self._requests, group)
        )


async def ask_members(requests: AdminRequests, group: BrokerData) -> Answers:
    """Address -> answer, of all registered members and those that they name."""

    async def ask(address: str) -> tuple[str, GroupInfoResponseHeader | None]:
        try:
            answer = await requests.ask(address, GroupInfoHeader())
        except (RemotingError, BadInput):  # an address that is none can't be asked either
            return address, None
        return address, None if answer.code else decode_header(GroupInfoResponseHeader, answer)

    registered = set(group.broker_addrs.values())
    answers = dict(await run_for_each(ask, sorted(registered)))
    named = {
        address for info in answers.values() if info is not None for _, address in info.members
    }
    others = dict(await run_for_each(ask, sorted(named - registered)))
    return answers | {address: _without_claim(info) for address, info in others.items()}


def _without_claim(info: GroupInfoResponseHeader | None) -> GroupInfoResponseHeader | None:
    """The answer of a node that has not registered, without its claim to lead."""
    if info is None or info.role != "leader":
        return info
    return msgspec.structs.replace(info, role="candidate")


def members_of(cluster: str, broker_name: str, answers: Answers) -> list[RaftMember]:
    """A row for each member, by node id. The leader of the highest term tells the log's end."""
    infos = [info for info in answers.values() if info is not None]
    leader = leader_among(infos)
    node_ids = {address: node_id for info in infos for node_id, address in info.members}
    preferred = {info.preferred_leader_id for info in infos}
    problems = dict(leader.unreached) if leader is not None else {}
    rows = []
    for address, info in answers.items():
        node_id = info.node_id if info is not None else node_ids.get(address, "")
        if info is None:
            problem = problems.get(node_id)
            rows.append(
                RaftMember(cluster, broker_name, node_id, address, "unreachable", problem=problem)
            )
            continue
        rows.append(
            RaftMember(
                cluster=cluster,
                broker_name=broker_name,
                node_id=node_id,
                address=address,
                role=_role_of(info, leader),
                term=info.term,
                leader_id=info.leader_id,
                last_index=info.last_index,
                commit_index=info.commit_index,
                applied_index=info.applied_index,
                lag_entries=None if leader is None else max(0, leader.last_index - info.last_index),
                counted=info.counted,
                preferred=node_id in preferred,
                fenced=info.fenced,
                set_aside=info.set_aside,
                set_aside_last=info.set_aside_last,
                faults=info.faults,
                problem=problems.get(node_id),
            )
        )
    shown = {row.node_id for row in rows}
    rows += [  # members whose addresses are none, or another's
        RaftMember(
            cluster, broker_name, node_id, address, "unreachable", problem=problems.get(node_id)
        )
        for node_id, address in (leader.members if leader is not None else ())
        if node_id not in shown
    ]
    return sorted(rows, key=lambda row: row.node_id)


def leader_among(infos: Iterable[GroupInfoResponseHeader | None]) -> GroupInfoResponseHeader | None:
    """The member that says it leads in the highest term."""
    leaders = [info for info in infos if info is not None and info.role == "leader"]
    return max(leaders, key=lambda info: info.term, default=None)


def _role_of(info: GroupInfoResponseHeader, leader: GroupInfoResponseHeader | None) -> str:
    """A node's role as it says itself; but the leader says whether it is a member."""
    if leader is None:
        return info.role
    if info.node_id not in dict(leader.members):
        return "removed"
    return "learner" if info.node_id in leader.learners else info.role
