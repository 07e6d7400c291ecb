"""Request codes that servers know: as handlers declare them, and as a cluster answers."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dledger.errors import DledgerError
from dledger.net.serving import Right
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, HeaderEncoding
from dledger.trust.proof import NONCE_BYTES
from mqbroker.requests.needs import Needs
from mqbroker.requests.unsupported import REASONS
from mqbroker.testing import memory_broker
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.probe import Probe
from mqclient.connection.peers import PeerPool
from mqnamesrv.config import NamesrvConfig
from mqnamesrv.requests.dispatch import NOT_SERVED, Dispatcher
from mqnamesrv.saved.kv_file import KvStore

TIMEOUT_S = 3.0
ADMIN = f", {Right.ADMIN.value}"
STOCK = [code for code in RequestCode if code.value not in range(9000, 10_000)]
"""RequestCode without our own codes, which no RocketMQ client sends."""


async def declared() -> dict[RequestCode, tuple[str, str]]:
    """Declarations of a broker and a name server for each stock code; "" without one."""
    with tempfile.TemporaryDirectory() as directory:
        async with memory_broker(Path(directory)) as broker:
            at_broker = dict(broker.broker.handler.table)
    config = NamesrvConfig()
    door = config.door(lambda: bytes(NONCE_BYTES))
    at_namesrv = Dispatcher(config, KvStore(None), lambda: 0.0, door).table

    def said(code: RequestCode) -> tuple[str, str]:
        broker, namesrv = at_broker.get(code), at_namesrv.get(code)
        refusal = f"no: {NOT_SERVED[code]}" if code in NOT_SERVED else ""
        return (
            _shown(broker.needs.value, broker.right) if broker else f"no: {REASONS[code]}",
            _shown("answered", namesrv.right) if namesrv else refusal,
        )

    return {code: said(code) for code in STOCK}


def _shown(answered: str, right: Right) -> str:
    return f"{answered}{ADMIN if right is Right.ADMIN else ''}"


def answers(said: str) -> tuple[str, str]:
    """Answers of a leader and of a follower to a code with this declaration."""
    if said.startswith("no: ") or not said:
        return said, said
    only_leaders = said.removesuffix(ADMIN) in (Needs.LEADER.value, Needs.CONFIRMED.value)
    return "answered", "not the leader" if only_leaders else "answered"


async def probe(cluster: Cluster) -> dict[RequestCode, tuple[str, str, str]]:
    """Answers of a leader, a follower and the name server to each code."""
    async with PeerPool() as pool:
        states = Probe(cluster, pool)
        leader = (await states.wait_for_leader(cluster.layout.brokers[0])).node
        group = cluster.layout.group(leader.broker)
        follower = next(node for node in group if node != leader)
        namesrv = cluster.layout.namesrvs[0].address
        return {
            code: (
                await ask(pool, leader.address, code),
                await ask(pool, follower.address, code),
                await ask(pool, namesrv, code),
            )
            for code in STOCK
        }


async def ask(pool: PeerPool, address: str, code: RequestCode) -> str:
    """A server's answer to a code without fields."""
    request = Command(code, encoding=HeaderEncoding.JSON)
    try:
        response = await pool.request(address, request, TIMEOUT_S)
    except DledgerError:
        return "no answer"
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        _, _, reason = (response.remark or "").partition(": ")
        return f"no: {reason}" if reason else ""
    if response.code == ResponseCode.SERVICE_NOT_AVAILABLE:
        return "not the leader"
    return "answered"
