"""No question stops a name server's loop: every code, with as many groups and topics as may be.

Measured as in `test_turns`.
"""

from __future__ import annotations

import gc
import json
import struct
import zlib
from collections.abc import Iterator, Mapping

import pytest
import trio
from dearest import LARGEST_BODY, LONG, asks, hostile_bodies
from metering import Asker, machine_pace

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
from dledger.testing.logs import capture_logs
from mqnamesrv import limits
from mqnamesrv.config import NamesrvConfig
from mqnamesrv.dispatch import Dispatcher
from mqnamesrv.kv_file import KvStore
from mqnamesrv.routes import Registration, RegistrationRefused, RouteTable

Code = RequestCode
TOPICS = limits.TOPICS_PER_GROUP_MAX
BROKER: Mapping[str, ExtValue] = {
    **{"clusterName": "c", "brokerName": "large", "brokerAddr": "large:1", "brokerId": 0},
    **{"haServerAddr": "", "term": 1},
}


def topics(count: int) -> dict[str, TopicConfig]:
    """Very many."""
    return {f"Topic-{number:06}": TopicConfig(f"Topic-{number:06}") for number in range(count)}


def registration(name: str, table: Mapping[str, TopicConfig], number: int) -> Registration:
    """A group's leader registers."""
    version = DataVersion(number, 0, 1)
    return Registration("c", name, 0, f"{name}:1", term=1, topics=table, data_version=version)


def fill(routes: RouteTable) -> None:
    """As many groups as may be, and one with as many topics."""
    routes.register(registration("large", topics(TOPICS), 1), 1, 0.0)
    for number in range(limits.BROKER_GROUPS_MAX - 1):
        table = {"Everywhere": TopicConfig("Everywhere"), f"t{number}": TopicConfig(f"t{number}")}
        routes.register(registration(f"group-{number}", table, 1), number + 2, 0.0)


def registrations() -> Iterator[Command]:
    """As JSON and compressed, as large as may be, and larger."""
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
    yield from bodies(Code.REGISTER_BROKER, BROKER)


def bodies(code: int, ext: Mapping[str, ExtValue]) -> Iterator[Command]:
    """Bodies that are none."""
    for body in hostile_bodies():
        yield Command(code, ext, body)


def settings() -> Iterator[Command]:
    """Large ones."""
    for body in (b"x" * LARGEST_BODY, b"x=\n" * (PROPERTIES_TEXT_BYTES_MAX // 3)):
        yield Command(Code.UPDATE_NAMESRV_CONFIG, {}, body)


def questions() -> Iterator[Command]:
    """What is not shown by its code alone."""
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
    """With ten thousand groups, or a group of very many topics."""
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


def test_the_topics_of_all_groups_have_a_bound_but_for_brokers_that_prove() -> None:
    """A stranger can't fill the list; what is there stays, and may change."""
    routes = RouteTable()
    for number in range(limits.TOPICS_MAX // TOPICS):
        table = {f"{number}-{topic}": config for topic, config in topics(TOPICS).items()}
        routes.register(registration(f"group-{number}", table, 1), number, 0.0)
    rest = limits.TOPICS_MAX % TOPICS
    routes.register(registration("last", topics(rest), 1), 98, 0.0)
    with pytest.raises(RegistrationRefused, match="at most 100000 are taken of brokers that prove"):
        routes.register(registration("more", {"one": TopicConfig("one")}, 1), 99, 0.0)
    routes.register(registration("more", {"Topic-000000": TopicConfig("Topic-000000")}, 1), 99, 0.0)
    routes.register(registration("last", topics(rest), 2), 98, 0.0)
