"""Turns of a name server's loop: every code, with as many groups and topics as may be.

Measured as in `test_turns`.
"""

from __future__ import annotations

import gc
import json
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import trio
from dearest import LARGEST_BODY, LONG, asks, hostile_bodies
from metering import TRIES, Asker, machine_pace

from dledger.limits import LOOP_STALL_S, PROPERTIES_TEXT_BYTES_MAX
from dledger.net import Faults
from dledger.remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    encode_body,
)
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, ExtValue
from dledger.slices import drained
from dledger.testing.logs import capture_logs
from dledger.trust.guard import Mode
from dledger.trust.policies import Entry
from dledger.trust.signatures import Key
from dledger.trust.users import User, Users
from dledger.trust.wrapping import Wrapping
from mqnamesrv import limits
from mqnamesrv.config import NamesrvConfig
from mqnamesrv.requests.dispatch import Dispatcher
from mqnamesrv.routing.groups import Registration, RegistrationRefused
from mqnamesrv.routing.routes import RouteTable
from mqnamesrv.saved.kv_file import KvStore

Code = RequestCode
TOPICS = limits.TOPICS_PER_GROUP_MAX
BROKER: Mapping[str, ExtValue] = {
    **{"clusterName": "c", "brokerName": "large", "brokerAddr": "large:1", "brokerId": 0},
    **{"haServerAddr": "", "term": 1},
}


def topics(count: int) -> dict[str, TopicConfig]:
    return {f"Topic-{number:06}": TopicConfig(f"Topic-{number:06}") for number in range(count)}


def registration(name: str, table: Mapping[str, TopicConfig], number: int) -> Registration:
    """A registration of a group's leader."""
    version = DataVersion(number, 0, 1)
    return Registration("c", name, 0, f"{name}:1", term=1, topics=table, data_version=version)


def fill(routes: RouteTable) -> None:
    """Register as many groups as may be, and one with as many topics."""
    routes.register(registration("large", topics(TOPICS), 1), 1, 0.0)
    for number in range(limits.BROKER_GROUPS_MAX - 1):
        table = {"Everywhere": TopicConfig("Everywhere"), f"t{number}": TopicConfig(f"t{number}")}
        routes.register(registration(f"group-{number}", table, 1), number + 2, 0.0)


def registrations() -> Iterator[Command]:
    """Registrations as JSON and compressed, as large as may be, and larger."""
    for count in (TOPICS - 1, TOPICS + 1):
        wrapper = TopicConfigWrapper(topics(count), DataVersion(count, 0, 1))
        body = encode_body(RegisterBrokerBody(wrapper))
        yield Command(Code.REGISTER_BROKER, BROKER, body)
        texts = [f"Topic-{number:06} 8 8 6 SINGLE_TAG".encode() for number in range(count)]
        version = json.dumps({"counter": count}).encode()
        pieces = [version, *texts]
        packed = [struct.pack(">i", len(piece)) + piece for piece in pieces]
        packed.insert(1, struct.pack(">i", count))
        ext = {**BROKER, "compressed": True}
        yield Command(Code.REGISTER_BROKER, ext, zlib.compress(b"".join(packed)))
    for content in (bytes(60 << 20), b"0123456789," * 2_000_000):
        bomb = struct.pack(">i", len(content)) + content
        yield Command(Code.REGISTER_BROKER, {**BROKER, "compressed": True}, zlib.compress(bomb, 1))
    for body in very_many():
        yield Command(Code.REGISTER_BROKER, BROKER, body)
    yield from bodies(Code.REGISTER_BROKER, BROKER)


def very_many() -> Iterator[bytes]:
    """JSON with as many topics, settings or filter servers as a body has room for."""
    begin, end = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{', b"}}}"
    most = (LARGEST_BODY - 200) // len(b'"000000":{"topicName":""},')
    for count in (most, 4 * TOPICS - 10):
        yield begin + b",".join(b'"%06x":{"topicName":""}' % each for each in range(count)) + end
    count = (LARGEST_BODY - 200) // len(b'"000000":"",')
    settings = b",".join(b'"%06x":""' % number for number in range(count))
    yield begin + b'"T":{"topicName":"T","attributes":{' + settings + b"}}" + end
    yield b'{"filterServerList":[' + b",".join([b'""'] * (LARGEST_BODY // 3 - 20)) + b"]}"
    yield b'{"topicConfigSerializeWrapper":{' + b'"x":{},' * (LARGEST_BODY // 7 - 20) + end


def bodies(code: int, ext: Mapping[str, ExtValue]) -> Iterator[Command]:
    for body in hostile_bodies():
        yield Command(code, ext, body)


def settings() -> Iterator[Command]:
    for body in (b"x" * LARGEST_BODY, b"x=\n" * (PROPERTIES_TEXT_BYTES_MAX // 3)):
        yield Command(Code.UPDATE_NAMESRV_CONFIG, {}, body)


def questions() -> Iterator[Command]:
    """Requests that need more than their code."""
    everywhere: Mapping[str, ExtValue] = {"topic": "Everywhere", "acceptStandardJsonOnly": True}
    yield from asks(Code.GET_ROUTEINFO_BY_TOPIC, everywhere, {"topic": "Everywhere"})()
    known: list[ExtValue] = [f"group-{number}" for number in range(10_000)]
    yield Command(Code.GET_ROUTEINFO_BY_TOPIC, {**everywhere, "known": known})
    group = {"clusterName": "c", "brokerName": "large"}
    yield from asks(Code.GET_BROKER_MEMBER_GROUP, group)()
    yield from asks(Code.GET_TOPICS_BY_CLUSTER, {"cluster": "c"})()
    yield from asks(Code.BROKER_HEARTBEAT, BROKER)()
    yield from bodies(Code.QUERY_DATA_VERSION, BROKER)
    yield from bodies(Code.PROVE, {})
    for code in (Code.WIPE_WRITE_PERM_OF_BROKER, Code.ADD_WRITE_PERM_OF_BROKER):
        yield from asks(code, {"brokerName": "large"})()
    for number in range(3):
        entry = {"namespace": "ORDER_TOPIC_CONFIG", "key": f"k{number}", "value": "b:1"}
        yield from asks(Code.PUT_KV_CONFIG, entry)()
    entry = {"namespace": "ORDER_TOPIC_CONFIG", "key": "k0"}
    for code in (Code.GET_KV_CONFIG, Code.DELETE_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE):
        yield from asks(code, entry)()
    yield from registrations()
    yield from settings()
    yield from asks(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "Everywhere"})()
    yield from asks(Code.UNREGISTER_BROKER, {**BROKER, "brokerAddr": LONG}, BROKER)()


async def test_no_code_makes_a_turn_of_a_name_servers_loop_long() -> None:
    """A turn stays short with ten thousand groups, or a group of very many topics."""
    config, pace, slow = NamesrvConfig(), machine_pace(), list[str]()
    dispatcher = Dispatcher(config, KvStore(None), lambda: 0.0, config.door(lambda: b"n" * 32))
    fill(dispatcher.routes)
    gc.collect()
    gc.freeze()
    asked = [*questions()]
    by_themselves = set(dispatcher.table) - {each.code for each in asked}
    asked[:0] = [Command(code) for code in sorted(by_themselves)]
    faults = Faults()
    with capture_logs():
        async with trio.open_nursery() as nursery:
            client = Asker(dispatcher, faults, nursery)
            async for _, request, taken_s in client.longest_turns_s(asked.__iter__, pace):
                if taken_s > LOOP_STALL_S:
                    slow.append(f"{request.code} {taken_s:.3f} s {str(request.ext)[:80]}")
            client.close()
            nursery.cancel_scope.cancel()
    assert faults.count == 0, faults.last
    assert not slow, "\n".join(slow)


SECRET = "the secret of this name server"  # noqa: S105
READER = User("reader", Wrapping(SECRET.encode()).wrap("reader", "password"))
SEEN = Entry("Custom", "Topic:Topic-0", ("Sub",), (), "Allow")


def narrow(prefix: str) -> Entry:
    """An entry for other addresses, so that the next one has to be looked at."""
    return Entry("Custom", f"Topic:{prefix}*", ("Sub",), ("10.0.0.1",) * 16, "Allow")


async def test_lists_that_rights_cut_make_no_turn_long(tmp_path: Path) -> None:
    """A list of all topics stays cheap for a user whose entries mostly don't decide."""
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    config, pace, faults = NamesrvConfig(secret_file=str(path)), machine_pace(), Faults()
    dispatcher = Dispatcher(config, KvStore(None), lambda: 0.0, config.door(lambda: b"n" * 32))
    some = topics(limits.TOPICS_MAX)
    for number in range(0, limits.TOPICS_MAX, TOPICS):
        table = dict(islice(some.items(), number, number + TOPICS))
        dispatcher.routes.register(registration(f"b{number}", table, 1), number, 0.0)
    entries = [SEEN, *(narrow(prefix) for prefix in ("", "Topic", "Topic-0", "Topic-00"))]
    users = Users()
    users.restore([READER._replace(entries=tuple(entries))])
    dispatcher.users._users["b0"] = users
    dispatcher.users.guard.mode = Mode.ENFORCE

    def asked() -> Iterator[Command]:
        request = Command(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        Key("password").sign_as_stock(request, "reader")
        yield request

    with capture_logs():
        async with trio.open_nursery() as nursery:
            client = Asker(dispatcher, faults, nursery)
            async for _, request, taken_s in client.longest_turns_s(asked, pace):
                assert taken_s < LOOP_STALL_S / 2, request
            client.close()
            nursery.cancel_scope.cancel()
    assert faults.count == 0, faults.last


@pytest.mark.parametrize(("groups", "each"), [(25, TOPICS), (limits.BROKER_GROUPS_MAX, 1)])
def test_groups_that_leave_at_once_make_no_turn_long(groups: int, each: int) -> None:
    """Groups of one connection, large ones or very many, leave in short turns."""
    took_s = [leave(groups, each)]
    while min(took_s) >= LOOP_STALL_S and len(took_s) < TRIES:
        took_s.append(leave(groups, each))  # the machine may be at fault
    assert min(took_s) < LOOP_STALL_S


def leave(groups: int, each: int) -> float:
    """The longest turn while `groups` groups leave that have `topics` topics each."""
    config = NamesrvConfig()
    dispatcher = Dispatcher(config, KvStore(None), lambda: 0.0, config.door(lambda: b"n" * 32))
    table = topics(each)
    for number in range(groups):
        dispatcher.routes.register(registration(f"group-{number}", table, 1), 7, 0.0)
    pace = machine_pace()
    with capture_logs() as logs:
        began_s = time.thread_time()
        dispatcher.disconnected(_Gone())  # type: ignore[arg-type]
        took_s = (time.thread_time() - began_s) / pace
    assert dispatcher.routes.topics.rows == 0
    assert dispatcher.routes.topics.away.rows <= limits.ABSENT_ROWS_MAX
    assert len(logs) <= limits.DEPARTURES_LOGGED_MAX + 1
    return took_s


class _Gone:
    """A connection that has ended."""

    id = 7


def register(routes: RouteTable, new: Registration, connection_id: int) -> None:
    drained(routes.check_names(new))
    routes.register(new, connection_id, 0.0)


def test_the_topics_of_all_groups_have_a_bound_but_for_brokers_that_prove() -> None:
    """A stranger can't fill the list; what is there stays, and may change."""
    routes = RouteTable()
    for number in range(limits.TOPICS_MAX // TOPICS):
        table = {f"{number}-{topic}": config for topic, config in topics(TOPICS).items()}
        register(routes, registration(f"group-{number}", table, 1), number)
    rest = limits.TOPICS_MAX % TOPICS
    register(routes, registration("last", topics(rest), 1), 98)
    more = registration("more", {"one": TopicConfig("one")}, 1)
    with pytest.raises(RegistrationRefused, match="at most 100000 are taken of brokers that prove"):
        register(routes, more, 99)
    register(routes, replace(more, proven=True), 97)
    register(routes, registration("again", {"Topic-000000": TopicConfig("Topic-000000")}, 1), 99)
    register(routes, registration("last", topics(rest), 2), 98)
