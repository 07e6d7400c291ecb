"""A foreign address in a group's configuration, which claims to lead, gets no message.

An administrator of a broker can put an address into the group's configuration. It is a learner for
ever, since it does not know the secret; but members name it to whoever asks who they are.
"""

from __future__ import annotations

import trio
from answers import group_info
from trio.testing import MockClock

from dledger.net import Connection, Handler, connect_peer, serve_remoting
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    AddMemberHeader,
    ProduceResponseHeader,
    encode_header,
)
from mqclient import Message, Producer
from mqlocal import LocalCluster, local_cluster

FOREIGN_PORT = 4000
SENDS = 60


class Foreign(Handler):
    """Says that it leads the group in a late term, and acknowledges whatever it is sent."""

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.asked: list[int] = []

    def __call__(self, request: Command, connection: Connection) -> Command:
        self.asked.append(request.code)
        if request.code == RequestCode.PRODUCE:
            return request.reply(ext=encode_header(ProduceResponseHeader(0, [(0, 0)], 1, False)))
        members = [("n9", f"127.0.0.1:{FOREIGN_PORT}")]
        info = group_info(broker_name=self.broker_name, node_id="n9", term=1 << 31, members=members)
        return request.reply(ext=encode_header(info))


async def add(cluster: LocalCluster, port: int) -> None:
    """Put the address into the configuration, as an administrator may."""
    host, _, leader_port = cluster.address(await cluster.leader()).rpartition(":")
    header = AddMemberHeader("n9", "127.0.0.1", port, f"127.0.0.1:{port}")
    request = Command(RequestCode.ADD_MEMBER, encode_header(header))
    async with connect_peer(host, int(leader_port)) as peer:
        assert (await peer.request(request, 10)).code == 0


async def send(producer: Producer, count: int) -> None:
    for number in range(count):
        await producer.send(Message("T", b"%d" % number))


async def test_no_message_goes_to_an_address_that_no_name_server_has_named(
    autojump_clock: MockClock,
) -> None:
    """Producers search for leaders over two failovers, lose nothing, and never ask the address."""
    async with local_cluster() as cluster, trio.open_nursery() as nursery:
        foreign = Foreign(cluster.groups[0])
        port = await nursery.start(serve_remoting, foreign, "127.0.0.1", FOREIGN_PORT)
        await add(cluster, port)
        async with cluster.producer("P") as producer, cluster.admin() as admin:
            for _ in range(2):
                await send(producer, SENDS // 3)
                gone = await cluster.kill()
                await send(producer, SENDS // 3)
                await cluster.restart(gone)
            assert foreign.asked == []
            shown = {member.node_id: member.role for member in await admin.raft.status()}
            stats = await admin.topics.status("T")
        assert set(foreign.asked) == {RequestCode.GROUP_INFO}  # a tool asks it for its state
        assert shown["n9"] == "learner"
        assert sum(row.max_offset for row in stats.queues) == 4 * (SENDS // 3)
        nursery.cancel_scope.cancel()
