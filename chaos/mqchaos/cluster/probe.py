"""A cluster's answers about itself over the wire: who serves, who leads, who has caught up.

The harness asks as any client could, with GROUP_INFO to every node and the name servers' cluster
list; it never looks into a server's memory or files while it runs. Every wait has a deadline and
ends, if in vain, with an error that says what each node answered and quotes a log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import trio

from dledger.errors import DledgerError
from dledger.remoting.bodies import ClusterInfo, decode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GroupInfoResponseHeader,
    TransferLeaderHeader,
    decode_header,
    encode_header,
)
from mqchaos import limits
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.processes import ClusterError, log_tail
from mqclient.connection.peers import PeerPool


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as it was found: its process, and its own answer if it gave one."""

    node: NodeLayout
    pid: int | None
    info: GroupInfoResponseHeader | None

    def __str__(self) -> str:
        """The state in one line, for an error."""
        if self.info is None:
            return f"{self.node.name}: {'no answer' if self.pid else 'not running'}"
        return f"{self.node.name}: {self.info.role} of term {self.info.term}"

    @property
    def leads(self) -> bool:
        """Whether it serves as its group's leader."""
        return self.info is not None and self.info.role == "leader"


class Probe:
    """Asks the servers of one cluster. Keeps its connections, so that asking is cheap."""

    def __init__(self, cluster: Cluster, pool: PeerPool) -> None:
        self._cluster = cluster
        self._pool = pool
        self.away: set[str] = set()
        """Servers that are down on purpose: a wait goes on without them."""

    async def node(self, node: NodeLayout) -> NodeState:
        """Ask one node; a dead or silent one has no info."""
        pid = self._cluster.pid(node.name)
        if pid is None:
            return NodeState(node, None, None)
        request = Command(RequestCode.GROUP_INFO)
        try:
            answer = await self._pool.request(node.address, request, limits.PROBE_TIMEOUT_S)
            info = decode_header(GroupInfoResponseHeader, answer)
        except DledgerError:
            return NodeState(node, pid, None)
        return NodeState(node, pid, info if answer.code == ResponseCode.SUCCESS else None)

    async def group(self, broker: str) -> list[NodeState]:
        """Ask all nodes of a group at once; in the group's order."""
        states: dict[str, NodeState] = {}

        async def ask(node: NodeLayout) -> None:
            states[node.node] = await self.node(node)

        nodes = self._cluster.layout.group(broker)
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(ask, node)
        return [states[node.node] for node in nodes]

    async def leader(self, broker: str) -> NodeState | None:
        """The leader of the highest term among those that claim to serve."""
        return leader_of(await self.group(broker))

    async def routed(self, namesrv: str, broker: str) -> str | None:
        """The leader's address that a name server ("host:port") gives for a group, if any."""
        info = await self._cluster_info(namesrv)
        table = {} if info is None else info.broker_addr_table
        return table[broker].broker_addrs.get(0) if broker in table else None

    async def known_groups(self, namesrv: str) -> int | None:
        """How many broker groups a name server knows; None if it does not answer."""
        info = await self._cluster_info(namesrv)
        return None if info is None else len(info.broker_addr_table)

    async def _cluster_info(self, namesrv: str) -> ClusterInfo | None:
        request = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
        try:
            answer = await self._pool.request(namesrv, request, limits.PROBE_TIMEOUT_S)
            return decode_body(ClusterInfo, answer.payload)
        except DledgerError:
            return None

    async def wait_until_serving(self, timeout_s: float = limits.START_TIMEOUT_S) -> None:
        """Wait until every group has a leader that every name server routes to."""
        for broker in self._cluster.layout.brokers:
            await self._wait(broker, self._serves, timeout_s, "serve and be routed to")

    async def wait_until_answering(self, timeout_s: float = limits.START_TIMEOUT_S) -> None:
        """Wait until every node that has a process answers."""

        async def answering(broker: str) -> bool:
            states = await self.group(broker)
            return all(state.info is not None or state.pid is None for state in states)

        for broker in self._cluster.layout.brokers:
            await self._wait(broker, answering, timeout_s, "answer")

    async def wait_for_leader(
        self, broker: str, timeout_s: float = limits.LEADER_TIMEOUT_S
    ) -> NodeState:
        """Wait until the group has a leader; returns it."""
        await self._wait(broker, self._has_leader, timeout_s, "have a leader")
        leader = await self.leader(broker)
        return leader or await self.wait_for_leader(broker, timeout_s)

    async def wait_until_level(
        self, broker: str, timeout_s: float = limits.CATCH_UP_TIMEOUT_S
    ) -> None:
        """Wait until every node has applied what the leader's log holds now, and is counted."""
        leader = await self.wait_for_leader(broker, timeout_s)
        wanted = leader.info.last_index if leader.info else 0

        async def level(_: str) -> bool:
            infos = [state.info for state in await self.group(broker)]
            return all(
                info is not None and info.counted and info.applied_index >= wanted for info in infos
            )

        what = f"have applied all {wanted} entries and be counted"
        await self._wait(broker, level, timeout_s, what, may_be_down=0)

    async def _has_leader(self, broker: str) -> bool:
        return await self.leader(broker) is not None

    async def _serves(self, broker: str) -> bool:
        leader = await self.leader(broker)
        if leader is None:
            return False
        for server in self._cluster.layout.namesrvs:
            address = self._cluster.layout.client_address(leader.node)
            if await self.routed(server.address, broker) != address:
                return False
        return True

    async def _wait(
        self,
        broker: str,
        holds: Callable[[str], Awaitable[bool]],
        timeout_s: float,
        what: str,
        may_be_down: int | None = None,
    ) -> None:
        """`may_be_down`: how many nodes may be without a process; by default a minority."""
        with trio.move_on_after(timeout_s):
            while not await holds(broker):
                self._refuse_if_dead(broker, may_be_down)
                await trio.sleep(limits.PROBE_INTERVAL_S)
            return
        states = await self.group(broker)
        worst = next((s for s in states if s.info is None), states[0])
        answers = "; ".join(str(state) for state in states)
        raise ClusterError(
            f"{broker} did not {what} within {timeout_s:.0f} s ({answers}).\n"
            f"{log_tail(self._cluster.log(worst.node.name))}"
        )

    def _refuse_if_dead(self, broker: str, may_be_down: int | None) -> None:
        """Too few processes, and the wait is in vain: say so at once."""
        nodes = self._cluster.layout.group(broker)
        dead = [node for node in nodes if self._ended(node.name)]
        others = [name for name in self._cluster.names if not name.startswith("broker-")]
        names = [name for name in others if self._ended(name)]
        if len(dead) > ((len(nodes) - 1) // 2 if may_be_down is None else may_be_down):
            names += [node.name for node in dead]
        if set(names) == set(self._cluster.names):
            raise ClusterError(
                f"no server of {self._cluster.directory} runs: "
                f"mqcluster up --dir {self._cluster.directory} starts them"
            )
        if names:
            raise ClusterError(
                f"{', '.join(names)} ended by itself.\n{log_tail(self._cluster.log(names[0]))}"
            )

    def _ended(self, name: str) -> bool:
        """Whether a server has no process, and nobody took it away on purpose."""
        return name not in self.away and self._cluster.pid(name) is None


def leader_of(states: Sequence[NodeState]) -> NodeState | None:
    """The leader: of several nodes that claim to lead, the one of the highest term."""
    claims = [(state.info.term, state) for state in states if state.info and state.leads]
    return max(claims, key=lambda claim: claim[0])[1] if claims else None


async def transfer_leader(pool: PeerPool, address: str, target: str | None = None) -> Command:
    """The answer of the leader there, which is to hand over, to the node `target` or to any."""
    header = TransferLeaderHeader(node_id=target)
    request = Command(RequestCode.TRANSFER_LEADER, ext=encode_header(header))
    return await pool.request(address, request, limits.EFFECT_S)


async def serving(cluster: Cluster) -> None:
    """Wait until a leader serves in every group, and is routed to. Raises ClusterError."""
    async with cluster.pool() as pool:
        await Probe(cluster, pool).wait_until_serving()
