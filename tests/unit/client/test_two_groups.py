"""Two broker groups, one of them dead: messages that are not bound to it go to the other.

Members and name server are real servers on real sockets, with scripted answers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import trio
from answers import group_info

from dledger.net import Connection, Handler, serve_remoting
from dledger.remoting.bodies import (
    BrokerData,
    ConsumerIdList,
    HeartbeatData,
    QueueData,
    TopicRouteData,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    ProduceHeader,
    ProduceResponseHeader,
    QueryMessageResponseHeader,
    SendMessageResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.message import host_bytes, offset_message_id
from dledger.remoting.record import Record, walk
from mqclient import (
    Admin,
    Consumer,
    Message,
    NoLeader,
    Producer,
    SendFailed,
    SendResult,
    SendUnknown,
    limits,
)

SLOWEST_S = 1.5


@pytest.fixture(autouse=True)
def impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the waits, but for the tests of a kill."""
    if "kill" not in request.node.name:
        for name in ("MOVE_AFTER_S", "UNSURE_AFTER_S", "SUSPECT_AFTER_S", "HEARTBEAT_TIMEOUT_S"):
            monkeypatch.setattr(limits, name, getattr(limits, name) / 10)


class Leader(Handler):
    """The only member of a group: it stores what it gets, unless its `script` answers first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.stored: list[Record] = []
        self.members: set[str] = set()
        self.script: Callable[[Command], Command | None] | None = None
        self.hangs = False
        self.scope = trio.CancelScope()

    def __call__(self, request: Command, connection: Connection) -> Command | None:
        if self.hangs:
            return None
        if self.script is not None and request.code == RequestCode.PRODUCE:
            return self.script(request)
        if request.code == RequestCode.GROUP_INFO:
            return request.reply(0, encode_header(group_info(broker_name=self.name)))
        if request.code == RequestCode.HEART_BEAT:
            self.members.add(decode_body(HeartbeatData, request.payload).client_id)
            return request.reply(0)
        if request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            return request.reply(0, body=encode_body(ConsumerIdList(sorted(self.members))))
        if request.code == RequestCode.PRODUCE:
            return self.store(request)
        if request.code == RequestCode.QUERY_MESSAGE:
            told = encode_header(QueryMessageResponseHeader(0, 0))
            return request.reply(0, told, b"".join(bytes(r._view) for r in self.stored))
        if request.code == RequestCode.SEND_MESSAGE_V2:
            place = offset_message_id(host_bytes("127.0.0.1", 1), 0)
            header = SendMessageResponseHeader(msg_id=place, queue_id=0, queue_offset=0)
            return request.reply(0, encode_header(header))
        return request.reply(ResponseCode.SYSTEM_ERROR, remark="not in this test")

    def store(self, request: Command) -> Command:
        view = memoryview(bytes(request.payload))
        starts = walk(view)
        self.stored += [
            Record(view[start:end])
            for start, end in zip(starts, [*starts[1:], len(view)], strict=True)
        ]
        runs = decode_header(ProduceHeader, request).runs
        header = ProduceResponseHeader(
            position=0, offsets=[(q, 0) for q, _ in runs], store_timestamp=1, duplicate=False
        )
        return request.reply(0, encode_header(header))

    def die(self) -> None:
        """Break the broker's connections; nobody listens there any more."""
        self.scope.cancel()


class NameServer(Handler):
    """Knows one topic, with two queues in each group."""

    def __init__(self, leaders: Sequence[Leader]) -> None:
        self.leaders = leaders

    def __call__(self, request: Command, connection: Connection) -> Command:
        data = TopicRouteData(
            queue_datas=[QueueData(leader.name, 2, 2, 6) for leader in self.leaders],
            broker_datas=[
                BrokerData("c", leader.name, {0: leader.address}) for leader in self.leaders
            ],
        )
        return request.reply(0, body=encode_body(data))


class Cluster:
    """Groups "a" and "b" with their name server."""

    def __init__(self, namesrv: str, a: Leader, b: Leader) -> None:
        self.namesrv, self.a, self.b = namesrv, a, b


@pytest.fixture(name="c")
async def cluster() -> AsyncIterator[Cluster]:
    leaders = [Leader("a"), Leader("b")]

    async def serve(
        leader: Leader, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with leader.scope:
            async with trio.open_nursery() as servers:
                port = await servers.start(serve_remoting, leader, "127.0.0.1", 0)
                task_status.started(port)

    async with trio.open_nursery() as nursery:
        for leader in leaders:
            leader.address = f"127.0.0.1:{await nursery.start(serve, leader)}"
        port = await nursery.start(serve_remoting, NameServer(leaders), "127.0.0.1", 0)
        with trio.fail_after(20):
            yield Cluster(f"127.0.0.1:{port}", *leaders)
        nursery.cancel_scope.cancel()


Send = Callable[[Producer], Awaitable[SendResult]]


async def _one(producer: Producer) -> SendResult:
    return await producer.send(Message("T", b"x"))


async def _alone(producer: Producer) -> SendResult:
    return await producer.send(Message("T", b"x", unique_key="mine"), alone=True)


async def _delayed(producer: Producer) -> SendResult:
    return await producer.send(Message("T", b"x", delay_s=60))


async def _batch(producer: Producer) -> SendResult:
    return (await producer.send_batch([Message("T", b"x"), Message("T", b"y")]))[1]


async def _many(producer: Producer) -> SendResult:
    return (await producer.send_many("T", [b"x", b"y"]))[1]


async def send_quickly(producer: Producer, send: Send = _one) -> SendResult:
    began_s = time.monotonic()
    result = await send(producer)
    assert time.monotonic() - began_s < SLOWEST_S
    return result


async def send_through_a_kill(c: Cluster, producer: Producer) -> list[SendResult | SendUnknown]:
    """Eight tasks send; meanwhile group "a" dies. The outcome of each send."""
    outcomes: list[SendResult | SendUnknown] = []

    async def keep_sending() -> None:
        for _ in range(20):
            try:
                outcomes.append(await send_quickly(producer))
            except SendUnknown as unknown:
                outcomes.append(unknown)
            if len(outcomes) == 40:
                c.a.die()

    async with trio.open_nursery() as senders:
        for _ in range(8):
            senders.start_soon(keep_sending)
    assert c.a.stored
    assert len(outcomes) == 160
    return outcomes


async def test_no_send_fails_when_a_whole_group_is_killed(c: Cluster) -> None:
    """Sends on their way to the dead group have an unknown outcome; no other fails."""
    async with Producer(c.namesrv, timeout_s=1.4) as producer:
        outcomes = await send_through_a_kill(c, producer)
        unknown = [each for each in outcomes if isinstance(each, SendUnknown)]
        assert len(unknown) <= 8
        assert {each.broker_name for each in unknown} <= {"a"}
        for _ in range(4):
            assert (await send_quickly(producer)).broker_name == "b"
        stored = [record.properties for record in (*c.a.stored, *c.b.stored)]
        assert len(stored) == len({bytes(properties) for properties in stored})


async def test_no_send_is_in_doubt_if_a_second_copy_will_do(c: Cluster) -> None:
    """At-least-once sends raise nothing; the other group stores what the dead one may have."""
    async with Producer(c.namesrv, timeout_s=3, at_least_once=True) as producer:
        outcomes = await send_through_a_kill(c, producer)
        assert all(isinstance(each, SendResult) for each in outcomes)


async def test_a_group_that_hangs_leaves_nothing_in_doubt_if_a_second_copy_will_do(
    c: Cluster,
) -> None:
    """At-least-once sends go to the other group when one keeps its connections and is silent."""
    async with Producer(c.namesrv, timeout_s=5, at_least_once=True) as producer:
        for _ in range(4):
            await send_quickly(producer)
        c.a.hangs = True
        for _ in range(3):
            await producer.send(Message("T", b"x"))
        for _ in range(8):
            assert (await send_quickly(producer)).broker_name == "b"


@pytest.mark.parametrize("send", [_one, _alone, _delayed, _batch, _many])
async def test_each_kind_of_send_finds_the_living_group(c: Cluster, send: Send) -> None:
    """A producer that is new to the cluster knows of the dead group, and not that it is dead."""
    c.a.die()
    async with Producer(c.namesrv, timeout_s=3) as producer:
        for _ in range(4):
            assert (await send_quickly(producer, send)).broker_name == "b"
    assert {record.queue_id for record in c.b.stored} <= {0, 1}


async def test_a_group_that_hangs_is_left_as_well(c: Cluster) -> None:
    """Later sends leave a silent group; those that it has keep an unknown outcome."""
    async with Producer(c.namesrv, timeout_s=3) as producer:
        for _ in range(4):
            await send_quickly(producer)
        c.a.hangs = True
        lost = [await producer.send_soon(Message("T", b"lost"), queue_id=0, timeout_s=0.2)]
        with pytest.raises(SendUnknown):
            await lost[0].wait()
        for _ in range(8):
            assert (await send_quickly(producer)).broker_name == "b"


async def test_a_batch_moves_whole(c: Cluster) -> None:
    """A batch goes to one queue of the other group, in its order."""
    c.a.die()
    async with Producer(c.namesrv, timeout_s=3) as producer:
        for _ in range(2):
            await producer.send_batch([Message("T", b"%d" % n) for n in range(5)])
    for batch in (c.b.stored[:5], c.b.stored[5:]):
        assert [bytes(record.body) for record in batch] == [b"%d" % n for n in range(5)]
        assert len({record.queue_id for record in batch}) == 1


async def test_what_its_sender_bound_to_a_group_stays_there(c: Cluster) -> None:
    """A key, a number or a selector names the queue: no other one will do."""
    c.a.die()
    async with Producer(c.namesrv, timeout_s=0.2) as producer:
        with pytest.raises(SendFailed):
            await producer.send(Message("T", b"x"), queue_id=0)
        with pytest.raises(SendFailed):
            await producer.send(Message("T", b"x"), selector=lambda queues, _: queues[0])
        await producer.send(Message("T", b"x"), selector=lambda queues, _: queues[2])


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
        ResponseCode.SYSTEM_BUSY,
    ],
)
async def test_what_one_group_declines_another_may_take(c: Cluster, code: ResponseCode) -> None:
    """A send that one group declines goes to the next; if all decline, it fails in time."""
    async with Producer(c.namesrv, timeout_s=1.5) as producer:
        for decliner in (c.a, c.b):
            decliner.script = lambda request: request.reply(code, remark="not here")
            c.a, c.b = c.b, c.a
            if decliner.name == "a":
                for _ in range(4):
                    assert (await send_quickly(producer)).broker_name == "b"
        with pytest.raises(SendFailed, match="not here|deadline"):
            await producer.send(Message("T", b"x"), timeout_s=0.3)


async def test_a_dead_group_does_not_keep_consumers_from_the_others_queues(c: Cluster) -> None:
    """A consumer gets the living group's queues at once."""
    c.a.die()
    async with Consumer(c.namesrv, "G", {"T": "*"}) as consumer:
        with trio.fail_after(3):
            while len(consumer.queues) < 4:  # noqa: ASYNC110
                await trio.sleep(0.01)


async def test_a_dead_group_does_not_hide_what_another_has(c: Cluster) -> None:
    """A lookup finds the message where it is; "nobody has it" needs all groups."""
    async with Producer(c.namesrv) as producer:
        sent = await producer.send(Message("T", b"x"), selector=lambda queues, _: queues[2])
        c.a.die()
        async with Admin(c.namesrv, timeout_s=0.2) as admin:
            (found,) = await admin.messages.by_unique_key("T", sent.message_id)
            assert found.body == b"x"
            with pytest.raises(NoLeader, match="'a'"):
                await admin.messages.by_unique_key("T", "7F000001AAAA")
