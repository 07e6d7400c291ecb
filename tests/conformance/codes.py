"""Asks the servers of a cluster which request codes they know."""

from __future__ import annotations

from typing import Any

from dledger.errors import DledgerError
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, HeaderEncoding
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import Probe
from mqclient.connection.peers import PeerPool

TIMEOUT_S = 3.0
SENT_BY_SERVERS = {
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
}
"""Clients answer these, servers don't."""
OURS = range(9000, 10_000)
"""Codes that no RocketMQ client sends."""


async def probe(cluster: Cluster) -> list[dict[str, Any]]:
    """Each code with its state at a leader, told from a follower's, and at the name server."""
    async with PeerPool() as pool:
        states = Probe(cluster, pool)
        leader = (await states.wait_for_leader(cluster.layout.brokers[0])).node
        group = cluster.layout.group(leader.broker)
        follower = next(node for node in group if node != leader)
        namesrv = cluster.layout.namesrvs[0].address
        found: list[dict[str, Any]] = []
        for code in RequestCode:
            if code in SENT_BY_SERVERS or code.value in OURS:
                continue
            at_follower = await ask(pool, follower.address, code)
            at_leader = await ask(pool, leader.address, code)
            only = at_leader == "answered" and at_follower == "not the leader"
            broker = "leader" if only else at_leader
            state = {"broker": broker, "namesrv": await ask(pool, namesrv, code)}
            found.append({"code": int(code), "name": code.name, **state})
        return found


async def ask(pool: PeerPool, address: str, code: RequestCode) -> str:
    """What a server says to a code without fields."""
    request = Command(code, encoding=HeaderEncoding.JSON)
    try:
        response = await pool.request(address, request, TIMEOUT_S)
    except DledgerError:
        return "no answer"
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        _, _, reason = (response.remark or "").partition(": ")
        return f"no: {reason}" if reason else "unknown"
    if response.code == ResponseCode.SERVICE_NOT_AVAILABLE:
        return "not the leader"
    return "answered"
