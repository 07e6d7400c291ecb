"""Lying servers: our client keeps its deadlines and its memory, and raises its own errors.

The servers are in memory and answer at once, or never, under virtual time: whatever they say, every
public call ends, with a proper value or an error of the client's.
"""

from __future__ import annotations

import resource
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from operator import attrgetter
from unittest.mock import patch

import pytest
import trio
from answers import group_info
from anyio.abc import TaskGroup
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from dledger.errors import BadInput, ConnectionLost, DledgerError, RemotingError, RequestTimeout
from dledger.net import Peer
from dledger.net.peer import OnResponse
from dledger.remoting.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.headers import encode_header
from dledger.remoting.message import host_bytes, properties_encode
from dledger.remoting.record import encode_record
from dledger.testing.virtual import VirtualWorld
from dledger.world import in_world
from mqclient import Admin, Consumer, Message, Producer, limits
from mqclient.compression import inflate
from mqclient.connection import session
from mqclient.connection.answers import checked_offset, consumers_in, route_in
from mqclient.connection.routing import RouteTable
from mqclient.consuming.fetching import QueueFetcher

TIMEOUT_S = 1.0
SLACK_S = 10.0
"""Time for a call that asks several servers, one after the other."""
BROKER = "10.0.0.1:10911"
WAY_S = 0.001
"""Time of a request there and back; without it time would stand still while a client retries."""

NUMBERS = st.sampled_from(
    [0, 1, -1, 7, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, 2**63, -(2**63), 2**64, 2**70]
)
TEXTS = st.sampled_from(
    [
        *("", "x", "0", "-1", "null", "true", "9" * 400, "1e999", "NaN", ":", "{}", "a:²"),
        *("10.0.0.1:99999", "[[0,0]]", "[[0,-1]]", "[1", "\x00", "ü" * 500, "\u2028", "leader"),
        BROKER,
    ]
)
VALUES: st.SearchStrategy[ExtValue] = st.one_of(NUMBERS, TEXTS, st.booleans())
FIELDS = st.sampled_from(
    [
        *("nextBeginOffset", "minOffset", "maxOffset", "offset", "queueOffset", "queueId", "msgId"),
        *("position", "offsets", "duplicate", "storeTimestamp", "brokerName", "cluster", "nodeId"),
        *("role", "term", "leaderId", "leaderAddr", "members", "learners", "lastIndex", "fenced"),
        *("commitIndex", "appliedIndex", "endPosition", "counted", "retryAfterMillis", "outcome"),
        *("value", "suggestWhichBrokerId", "transactionId", "recallHandle", "version", "timestamp"),
    ]
)
CODES = st.one_of(st.sampled_from([int(code) for code in ResponseCode]), NUMBERS)


def route(read: int = 4, write: int = 4, address: str = BROKER, perm: int = 6) -> bytes:
    """The body of a route."""
    return encode_body(
        TopicRouteData([BrokerData("c", "b", {0: address})], [QueueData("b", read, write, perm)])
    )


def record(body: bytes = b"x", offset: int = 0, sys_flag: int = 0) -> bytes:
    """A record as a broker would answer it."""
    raw = encode_record(
        topic=b"T",
        queue_id=0,
        body=body,
        properties=properties_encode({"UNIQ_KEY": "k"}),
        born_timestamp_ms=1,
        born_host=host_bytes("127.0.0.1", 1),
        queue_offset=offset,
        sys_flag=sys_flag,
    )
    return bytes(raw)


def info(**changed: object) -> dict[str, ExtValue]:
    """A member's answer that it leads."""
    header = group_info(
        broker_name="b", leader_id="n0", leader_addr=BROKER, members=[("n0", BROKER)]
    )
    return encode_header(header) | changed  # type: ignore[operator]


PROPER: dict[int, Callable[[], tuple[int, dict[str, ExtValue], bytes]]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda: (0, {}, route()),
    RequestCode.GROUP_INFO: lambda: (0, info(), b""),
    RequestCode.GET_BROKER_CLUSTER_INFO: lambda: (
        0,
        {},
        b'{"brokerAddrTable":{"b":{"cluster":"c","brokerName":"b","brokerAddrs":{"0":"%s"}}},'
        b'"clusterAddrTable":{"c":["b"]}}' % BROKER.encode(),
    ),
}

BODIES = st.one_of(
    st.sampled_from([b"", b"{}", b"[]", b"null", b"7", b'"', b'{"a":' * 500, b"[" * 100_000]),
    st.builds(route, NUMBERS, NUMBERS, TEXTS, NUMBERS),
    st.builds(
        lambda name, number: f'{{"{name}":{number}}}'.encode(),
        st.sampled_from(
            ["consumerIdList", "topicList", "brokerAddrTable", "offsetTable", "table", "queueDatas"]
        ),
        st.sampled_from(["1", "[1]", "[null]", '{"a":1}', "[[]]", '{"0":{}}', "1e400", '"x"']),
    ),
    st.builds(record, st.binary(max_size=20), st.just(5), st.sampled_from([0, 1, 0x101, 0x10, -1])),
    st.binary(max_size=200),
)

Spec = tuple[str, int, dict[str, ExtValue], bytes]
ANSWERS: st.SearchStrategy[Spec] = st.one_of(
    st.tuples(
        st.sampled_from(["answer"] * 6 + ["silence", "break"]),
        CODES,
        st.dictionaries(FIELDS, VALUES, max_size=6),
        BODIES,
    ),
    st.just(("proper", 0, {}, b"")),
)


class HostilePeer:
    """A server that is reached at once, and answers each request by what was drawn for its code."""

    def __init__(
        self, plan: dict[int, Iterator[Spec]], others: Iterator[Spec], tasks: TaskGroup
    ) -> None:
        self.closed = False
        #: Whether it is RocketMQ's is asked, therefore, when it breaks.
        self.has_answered = False
        self.encoding: HeaderEncoding | None = None
        self._nursery = tasks
        self._plan = plan
        self._others = others

    def _said(self, command: Command) -> Command | RemotingError | None:
        kind, code, ext, body = next(self._plan.get(command.code, self._others))
        proper = PROPER.get(command.code)
        if kind == "proper" and proper is not None:
            code, ext, body = proper()
        if kind == "break":
            return ConnectionLost("it broke, as told")
        return None if kind == "silence" else command.reply(code, dict(ext), body)

    async def request(self, command: Command, timeout_s: float) -> Command:
        await trio.sleep(WAY_S)
        said = self._said(command)
        if said is None:
            await trio.sleep(timeout_s)
            raise RequestTimeout("silent, as told")
        if isinstance(said, RemotingError):
            raise said
        return said

    def request_nowait(self, command: Command, on_response: OnResponse) -> int:
        said = self._said(command)

        async def later() -> None:
            await trio.sleep(WAY_S)
            if said is not None:
                on_response(said)

        self._nursery.start_soon(later)
        return 1

    def send_oneway(self, command: Command) -> None:
        """Drop the command: nobody answers it."""

    def close(self, reason: str = "") -> None:
        self.closed = True


Call = Callable[[], Awaitable[object]]


async def send() -> object:
    async with Producer("ns:1", "P", timeout_s=TIMEOUT_S) as producer:
        return await producer.send(Message("T", b"x"))


async def send_delayed() -> object:
    async with Producer("ns:1", "P", timeout_s=TIMEOUT_S) as producer:
        return await producer.send(Message("T", b"x", delay_s=1.0))


async def consume() -> object:
    async with Consumer("ns:1", "C", {"T": "*"}) as consumer:
        for _ in range(3):
            for message in await consumer.poll(timeout_s=TIMEOUT_S):
                assert message.queue_offset is not None
        return await consumer.commit(timeout_s=TIMEOUT_S)


def ask(name: str, *given: object) -> Call:
    """A call of the administration: "part.call"."""

    async def call() -> object:
        async with Admin("ns:1", timeout_s=TIMEOUT_S) as admin:
            return await attrgetter(name)(admin)(*given)

    call.__name__ = name
    return call


CALLS: list[Call] = [
    send,
    send_delayed,
    consume,
    ask("brokers.list"),
    ask("brokers.status"),
    ask("clients.consumers", "C"),
    ask("clients.producers", "P", "T"),
    ask("groups.progress", "C"),
    ask("groups.list"),
    ask("groups.config", "C"),
    ask("groups.delete", "C"),
    ask("raft.status"),
    ask("messages.by_id", "7F00000100002A9F0000000000000000"),
    ask("messages.by_key", "T", "k"),
    ask("messages.by_unique_key", "T", "k"),
    ask("settings.namesrv_config"),
    ask("settings.broker_config"),
    ask("settings.kv_config", "n", "k"),
    ask("statistics.traffic"),
    ask("groups.of_topic", "T"),
    ask("topics.list"),
    ask("topics.route", "T"),
    ask("topics.status", "T"),
    ask("topics.delete", "T"),
]


@contextmanager
def hostile(plan: dict[int, list[Spec]], others: list[Spec]) -> Iterator[None]:
    """Make every server one that gives these answers."""
    answers = {code: cycle(specs) for code, specs in plan.items()}

    async def opened(tasks: TaskGroup, *_: object, **__: object) -> HostilePeer:
        return HostilePeer(answers, cycle(others), tasks)

    with patch.object(Peer, "open", opened):
        yield


def run(call: Call) -> object:
    """The result or error of a call in virtual time; it must end."""

    async def main() -> object:
        with in_world(VirtualWorld(clock)), trio.fail_after(SLACK_S):
            return await call()

    clock = MockClock(autojump_threshold=0)
    began_s = time.perf_counter()
    try:
        return trio.run(main, clock=clock)
    except DledgerError as error:
        return error
    finally:
        assert time.perf_counter() - began_s < SLACK_S


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@given(data=st.data())
@settings(max_examples=8)
def test_every_call_ends_whatever_servers_say(call: Call, data: st.DataObject) -> None:
    """A call ends within its deadline, with a proper value or an error of the client's own."""
    codes = (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GROUP_INFO,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
    )
    specs = st.lists(ANSWERS, min_size=1, max_size=3)
    plan = {int(code): data.draw(specs, label=code.name) for code in codes}
    for code in data.draw(st.sets(st.sampled_from(sorted(PROPER)))):
        plan[code] = [("proper", 0, {}, b"")]
    with hostile(plan, data.draw(specs, label="others")):
        run(call)


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 2**40, -1, 65_537])
@pytest.mark.parametrize("call", [send, consume, ask("topics.route", "T")])
def test_a_route_of_two_thousand_million_queues_costs_nothing(call: Call, count: int) -> None:
    """A route with absurd numbers of queues takes no memory, and the deadline is kept."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer: Spec = ("answer", 0, {}, route(count, count))
    with hostile({int(RequestCode.GET_ROUTEINFO_BY_TOPIC): [answer]}, [answer]):
        said = run(call)
    assert isinstance(said, DledgerError) or said == {}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100 << 10


def reply(body: bytes) -> Command:
    """An answer that says success."""
    return Command(0).reply(0, body=body)


def test_the_bounds_of_answers_are_what_real_ones_keep_within() -> None:
    """Answers at the bounds are taken, one more is refused, and so are offsets of no queue."""
    route_in(reply(route(limits.QUEUES_PER_TOPIC_MAX, 0)))
    with pytest.raises(BadInput, match="65537 queues to read"):
        route_in(reply(route(limits.QUEUES_PER_TOPIC_MAX + 1, 0)))
    ids = b'"a",' * limits.CONSUMERS_PER_GROUP_MAX
    consumers_in(reply(b'{"consumerIdList":[' + ids[:-1] + b"]}"))
    with pytest.raises(BadInput, match="consumers of one group"):
        consumers_in(reply(b'{"consumerIdList":[' + ids + b'"a"]}'))
    for offset in (-1, 2**63, 2**70, 10**300):
        with pytest.raises(BadInput):
            checked_offset(offset, "an offset")


def test_what_a_table_of_routes_keeps_is_bounded() -> None:
    """Tables of routes are bounded, whatever groups, members and addresses servers name."""
    table = RouteTable()
    for number in range(300):
        told = {0: "x", 1: "a:99999", 2: f"h{number}:1", 3: "a:²", 4: "b:0", 5: "c:1" + "0" * 9}
        table.learn_members(TopicRouteData([BrokerData("c", "b", told)]))
        table.redirect("b", f"h{number}:1", "nonsense")
    assert len(table.members("b")) == limits.MEMBERS_MAX
    assert table.leader("b") is None
    many = [BrokerData("c", f"b{number}", {}) for number in range(limits.GROUPS_MAX + 1)]
    with pytest.raises(BadInput, match="broker groups"):
        table.learn_members(TopicRouteData(many))


@pytest.mark.parametrize("size", [4 << 20, (4 << 20) + 1, 128 << 20])
def test_a_bomb_ends_at_a_messages_bound(size: int) -> None:
    """A body is inflated to 4 MiB; one byte more is refused, and never in memory."""
    deflater = zlib.compressobj(9)
    chunk = bytes(1 << 20)
    packed = b"".join(deflater.compress(chunk[: size - at]) for at in range(0, size, len(chunk)))
    packed += deflater.flush()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if size <= limits.INFLATED_BODY_BYTES_MAX:
        assert len(inflate(packed, 0x301, "it")) == size
    else:
        with pytest.raises(BadInput, match="inflates to more than 4194304 bytes"):
            inflate(packed, 0x301, "it")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 40 << 10


def test_a_broker_that_never_holds_a_pull_is_not_asked_all_the_time() -> None:
    """A broker that answers pulls at once, with nothing, is asked 100 times a second at most."""
    pulls = 0
    offsets: dict[str, ExtValue] = {
        "suggestWhichBrokerId": 0,
        "nextBeginOffset": 0,
        "minOffset": 0,
        "maxOffset": 0,
    }
    nothing: Spec = ("answer", int(ResponseCode.PULL_NOT_FOUND), offsets, b"")
    once = QueueFetcher._pull_once

    async def counted(fetcher: QueueFetcher) -> None:
        nonlocal pulls
        pulls += 1
        await once(fetcher)

    async def consumer() -> object:
        async with Consumer("ns:1", "C", {"T": "*"}) as consumer:
            return await consumer.poll(timeout_s=5.0)

    plan = {int(code): [("proper", 0, {}, b"")] for code in PROPER}
    plan[int(RequestCode.PULL_MESSAGE)] = [nothing]
    plan[int(RequestCode.QUERY_CONSUMER_OFFSET)] = [("answer", 0, {"offset": 0}, b"")]
    members = b'{"consumerIdList":["me"]}'
    plan[int(RequestCode.GET_CONSUMER_LIST_BY_GROUP)] = [("answer", 0, {}, members)]
    with (
        hostile(plan, [("answer", 0, {}, b"")]),
        patch.object(QueueFetcher, "_pull_once", counted),
        patch.object(session, "make_client_id", lambda host: "me"),
    ):
        assert run(consumer) == []
    assert 4 <= pulls <= 4 * 101 * SLACK_S
