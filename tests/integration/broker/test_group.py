"""Broker processes in a group: leaders that are killed, and restarts."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import trio
from clusters import new_cluster

from dledger.errors import DledgerError
from dledger.net import Peer, connect_peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import (
    ProduceResponseHeader,
    decode_header,
)
from dledger.remoting.message import properties_decode
from dledger.remoting.record import Record
from mqbroker.testing.requests import (
    ask,
    heartbeat,
    produce_request,
    pull_request,
    records,
    send_request,
)
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout

TIMEOUT_S = 30.0


async def leader_of(cluster: Cluster, *, but: str | None = None) -> NodeLayout:
    """The node that serves, other than `but`."""
    with trio.fail_after(TIMEOUT_S):
        while True:
            for node in cluster.layout.nodes:
                if node.name == but or cluster.pid(node.name) is None:
                    continue
                try:
                    async with connect_peer("127.0.0.1", node.port, 1.0) as peer:
                        info = await peer.request(Command(RequestCode.GROUP_INFO), 1.0)
                except DledgerError:
                    continue
                if info.ext["role"] == "leader":
                    return node
            await trio.sleep(0.02)


async def produce(peer: Peer, key: str) -> ProduceResponseHeader:
    """Send a batch; where it went."""
    response = await peer.request(batch(key), TIMEOUT_S)
    assert response.code == ResponseCode.SUCCESS, (response.remark, response.ext)
    return decode_header(ProduceResponseHeader, response)


def batch(key: str) -> Command:
    """Eight messages for queue 0."""
    return produce_request(key, runs=((0, 8),))


async def drain(peer: Peer) -> list[tuple[int, int, bytes]]:
    """(queue offset, position, body) of every message of queue 0, in order."""
    rows: list[tuple[int, int, bytes]] = []
    while True:
        request = pull_request(0, len(rows), maxMsgNums=1000, maxMsgBytes=1 << 20)
        response = await peer.request(request, TIMEOUT_S)
        if response.code != ResponseCode.SUCCESS:
            return rows
        rows += [
            (record.queue_offset, record.physical_offset, bytes(record.body))
            for record in records(response)
        ]


async def test_a_new_leader_has_all_that_the_old_one_acknowledged(tmp_path: Path) -> None:
    """A new leader has the messages at their offsets, the dedup window, offsets, topics, groups."""
    with new_cluster(tmp_path).running() as cluster:
        first = await leader_of(cluster)
        async with connect_peer("127.0.0.1", first.port) as peer:
            stored = [await produce(peer, f"b{number}") for number in range(20)]
            key: dict[str, ExtValue] = {"consumerGroup": "C", "topic": "Orders", "queueId": 0}
            await ask(peer, RequestCode.UPDATE_CONSUMER_OFFSET, **key, commitOffset=33)
            before = await drain(peer)
        assert [offset for offset, _, _ in before] == list(range(160))
        cluster.kill(first.name)
        second = await leader_of(cluster, but=first.name)
        async with connect_peer("127.0.0.1", second.port) as peer:
            assert await drain(peer) == before
            again = await produce(peer, "b7")
            assert again.duplicate
            assert (again.position, again.offsets) == (stored[7].position, stored[7].offsets)
            committed = await ask(peer, RequestCode.QUERY_CONSUMER_OFFSET, **key)
            assert committed.ext["offset"] == 33
            more = await produce(peer, "new")
            assert more.offsets == [(0, 160)]


async def test_a_leader_that_was_cut_off_never_answers_with_old_offsets(tmp_path: Path) -> None:
    """A stopped leader refuses the questions that came before it knows of the next leader."""
    with new_cluster(tmp_path).running() as cluster:
        first = await leader_of(cluster)
        queue: dict[str, ExtValue] = {"topic": "Orders", "queueId": 0}
        codes = (RequestCode.GET_MAX_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET)
        key = queue | {"consumerGroup": "C"}
        async with connect_peer("127.0.0.1", first.port) as old:
            await produce(old, "before")
            await ask(old, RequestCode.UPDATE_CONSUMER_OFFSET, **key, commitOffset=1)
            assert [(await ask(old, code, **key)).ext["offset"] for code in codes] == [8, 1]
            os.kill(cluster.pid(first.name), signal.SIGSTOP)
            second = await leader_of(cluster, but=first.name)
            async with connect_peer("127.0.0.1", second.port) as new:
                await produce(new, "after")
                await ask(new, RequestCode.UPDATE_CONSUMER_OFFSET, **key, commitOffset=2)
                answers: list[Command] = []

                async def ask_old(code: RequestCode) -> None:
                    answers.append(await ask(old, code, **key))

                async with trio.open_nursery() as nursery:
                    for code in codes * 20:
                        nursery.start_soon(ask_old, code)
                    await trio.sleep(0.05)
                    os.kill(cluster.pid(first.name), signal.SIGCONT)
                assert {answer.code for answer in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
                assert [(await ask(new, code, **key)).ext["offset"] for code in codes] == [16, 2]


async def test_delayed_messages_arrive_once_though_leaders_die(tmp_path: Path) -> None:
    """Delayed messages come neither early nor twice, though the leader is killed meanwhile."""
    with new_cluster(tmp_path).running() as cluster:
        sent = 0
        leader = await leader_of(cluster)
        for _ in range(2):
            async with connect_peer("127.0.0.1", leader.port) as peer:
                with trio.move_on_after(1.3):  # the first of them are due before the kill
                    while True:
                        body = f"{sent} {time.time_ns() // 1_000_000}".encode()
                        request = send_request(body, e="0", i="DELAY\x011\x02")
                        with trio.CancelScope(shield=True):
                            answer = await peer.request(request, TIMEOUT_S)
                        assert answer.code == ResponseCode.SUCCESS, answer.remark
                        sent += 1
                        await trio.sleep(0.01)
            cluster.kill(leader.name)
            killed, leader = leader, await leader_of(cluster, but=leader.name)
            cluster.start([killed.name])
        async with connect_peer("127.0.0.1", leader.port) as peer:
            rows = await drain(peer)
            for _ in range(int(TIMEOUT_S)):
                if len(rows) >= sent:
                    break
                await trio.sleep(1.0)
                rows = await drain(peer)
            await trio.sleep(0.5)  # a second copy would come now
            assert len(await drain(peer)) == sent
            numbers = [int(body.split()[0]) for _, _, body in rows]
            assert numbers == list(range(sent))
            for _, position, body in rows:
                viewed = await ask(peer, RequestCode.VIEW_MESSAGE_BY_ID, offset=position)
                (record,) = records(viewed)
                assert record.store_timestamp_ms >= int(body.split()[1]) + 1000


async def test_a_message_nobody_can_handle_ends_as_a_dead_letter_over_failovers(
    tmp_path: Path,
) -> None:
    """The new leader finds the message at the position that the old one gave."""

    async def send_back(leader: NodeLayout, position: int) -> None:
        async with connect_peer("127.0.0.1", leader.port) as peer:
            await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
            fields: dict[str, ExtValue] = {"offset": position, "group": "C", "delayLevel": 1}
            code = RequestCode.CONSUMER_SEND_MSG_BACK
            answer = await ask(peer, code, maxReconsumeTimes=1, **fields)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def arrived(leader: NodeLayout, topic: str) -> Record:
        with trio.fail_after(TIMEOUT_S):
            async with connect_peer("127.0.0.1", leader.port) as peer:
                while True:
                    answer = await peer.request(pull_request(0, topic=topic), TIMEOUT_S)
                    if answer.code == ResponseCode.SUCCESS:
                        return records(answer)[0]
                    await trio.sleep(0.05)

    with new_cluster(tmp_path).running() as cluster:
        first = await leader_of(cluster)
        async with connect_peer("127.0.0.1", first.port) as peer:
            stored = await produce(peer, "m")
        await send_back(first, stored.position)
        cluster.kill(first.name)
        second = await leader_of(cluster, but=first.name)
        retried = await arrived(second, "%RETRY%C")
        assert (bytes(retried.body), retried.reconsume_times) == (b"m 0 0", 1)
        await send_back(second, retried.physical_offset)
        dead = await arrived(second, "%DLQ%C")
        assert (bytes(dead.body), dead.reconsume_times) == (b"m 0 0", 2)
        assert properties_decode(dead.properties)["RETRY_TOPIC"] == "Orders"


async def test_messages_are_found_by_key_after_kills_and_restarts(tmp_path: Path) -> None:
    """The index is rebuilt from the log as far as no snapshot claims it, on every replica."""

    async def found(leader: NodeLayout, key: str) -> list[bytes]:
        async with connect_peer("127.0.0.1", leader.port) as peer:
            window: dict[str, ExtValue] = {"beginTimestamp": 0, "endTimestamp": 1 << 62}
            answer = await ask(
                peer, RequestCode.QUERY_MESSAGE, topic="Orders", key=key, maxNum=32, **window
            )
            return [bytes(record.body) for record in records(answer)]

    with new_cluster(tmp_path).running() as cluster:
        first = await leader_of(cluster)
        async with connect_peer("127.0.0.1", first.port) as peer:
            for number in range(300):
                properties = f"KEYS\x01order-{number} all\x02"
                request = send_request(b"%d" % number, e="0", i=properties)
                assert (await peer.request(request, TIMEOUT_S)).code == ResponseCode.SUCCESS
        cluster.stop([node.name for node in cluster.layout.nodes if node.name != first.name][:1])
        cluster.kill(first.name)
        cluster.start([node.name for node in cluster.layout.nodes])
        for _ in range(2):
            leader = await leader_of(cluster)
            assert await found(leader, "order-17") == [b"17"]
            assert await found(leader, "all") == [b"%d" % number for number in range(268, 300)]
            cluster.kill(leader.name)
            await leader_of(cluster, but=leader.name)
            cluster.start([leader.name])


async def test_a_broker_killed_again_and_again_comes_back_with_everything(tmp_path: Path) -> None:
    """Queue files and snapshots of a killed process never disagree with its log."""
    with new_cluster(tmp_path, nodes=1).running() as cluster:
        (node,) = cluster.layout.nodes
        acknowledged = 0
        for round_number in range(5):
            await leader_of(cluster)
            async with connect_peer("127.0.0.1", node.port) as peer:
                rows = await drain(peer)
                assert [offset for offset, _, _ in rows] == list(range(len(rows)))
                assert len(rows) >= acknowledged
                with trio.move_on_after(0.3):
                    for number in range(10_000):
                        response = await peer.request(batch(f"{round_number}-{number}"), 10)
                        stored = decode_header(ProduceResponseHeader, response)
                        acknowledged = stored.offsets[0][1] + 8
            cluster.kill(node.name)
            cluster.start([node.name])


async def test_the_first_send_to_a_topic_is_answered_when_name_servers_know_it(
    tmp_path: Path,
) -> None:
    """A send that makes a topic waits for a name server that is stopped for a moment."""
    with new_cluster(tmp_path, nodes=1).running() as cluster:
        await leader_of(cluster)
        (node,), (namesrv,) = cluster.layout.nodes, cluster.layout.namesrvs
        pid = cluster.pid(namesrv.name)
        assert pid is not None
        async with (
            connect_peer("127.0.0.1", node.port) as broker,
            connect_peer("127.0.0.1", namesrv.port) as lookup,
        ):
            with trio.fail_after(TIMEOUT_S):
                while await found(lookup, "TBW102") != ResponseCode.SUCCESS:  # noqa: ASYNC110
                    await trio.sleep(0.02)
            answered_s: list[float] = []

            async def send() -> None:
                response = await broker.request(send_request(), TIMEOUT_S)
                assert response.code == ResponseCode.SUCCESS, response.remark
                answered_s.append(time.monotonic())

            async with trio.open_nursery() as nursery:
                os.kill(pid, signal.SIGSTOP)
                nursery.start_soon(send)
                await trio.sleep(0.1)
                continued_s = time.monotonic()
                os.kill(pid, signal.SIGCONT)
            assert answered_s[0] > continued_s
            assert await found(lookup, "Orders") == ResponseCode.SUCCESS


async def found(namesrv: Peer, topic: str) -> int:
    """The code of a name server's answer to who looks for a topic."""
    return (await ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)).code


async def test_a_stopped_broker_leaves_its_route_and_ends_well(tmp_path: Path) -> None:
    """A broker on SIGTERM leaves its route, saves its state, and says nothing on stderr."""
    with new_cluster(tmp_path, nodes=1).running() as cluster:
        (node,) = cluster.layout.nodes
        await leader_of(cluster)
        async with connect_peer("127.0.0.1", node.port) as peer:
            await peer.request(batch("a"), 10)
        assert cluster.stop([node.name]) == []
        namesrv = cluster.layout.namesrvs[0]
        async with connect_peer("127.0.0.1", namesrv.port) as peer:
            assert await found(peer, "Orders") == ResponseCode.TOPIC_NOT_EXIST
        log = cluster.log(node.name).read_text()
        assert '"event": "broker stopped"' in log
        assert "Traceback" not in log
        assert (cluster.store(node) / "snapshot.msgpack").exists()
