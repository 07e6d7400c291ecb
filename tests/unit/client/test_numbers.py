"""Calls of a client refuse a number that makes no sense, by the parameter's name.

The calls are found by their signatures, so a new one is tried as well.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import product
from typing import Any, NamedTuple

import pytest
import trio
from trio.testing import MockClock

from dledger.errors import BadInput
from dledger.remoting.codes import RequestCode
from mqclient import Admin, Consumer, Decision, Message, MessageQueue, PopConsumer, Producer
from mqlocal import local_cluster

NUMBERS = {"int", "float", "int | None", "float | None"}
NO_NUMBERS: list[Any] = ["3", b"3", [3], {}, object(), math.nan]
CLIENTS = {"producer": Producer, "consumer": Consumer, "pops": PopConsumer}
PARTS = {
    name: type(part)
    for name, part in inspect.getmembers(Admin("127.0.0.1:1"))
    if type(part).__module__.startswith("mqclient.admin.") and not name.startswith("_")
}


class Call(NamedTuple):
    """A method, and its parameter that gets a wrong number."""

    owner: str
    method: str
    parameter: str


def calls() -> Iterator[Call]:
    """Calls with a number among their parameters."""
    for owner, kind in (CLIENTS | PARTS).items():
        for name, function in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                for each in inspect.signature(function).parameters.values():
                    if each.annotation in NUMBERS:
                        yield Call(owner, name, each.name)


class World(NamedTuple):
    """Clients that are connected, and arguments that are as they should be."""

    owners: dict[str, object]
    arguments: dict[str, object]

    async def make(self, call: Call, value: object) -> None:
        """The call, with this value and else with good ones."""
        bound = getattr(self.owners[call.owner], call.method)
        given: dict[str, object] = {call.parameter: value}
        several: list[object] = []
        for each in inspect.signature(bound).parameters.values():
            argument = self.arguments.get(f"{call.owner}.{each.name}")
            argument = argument or self.arguments.get(each.name)
            if each.kind is each.VAR_POSITIONAL:
                several = [given.pop(each.name, argument)]
            elif each.name != call.parameter and each.default is each.empty:
                assert argument is not None, f"this test has no {each.name} for {call}"
                given[each.name] = argument
        done = bound(*several, **given)
        if isinstance(done, AbstractAsyncContextManager):
            async with done:
                pass
        elif inspect.isawaitable(done):
            await done


async def _nothing(message: object) -> None:
    """Handle a message by doing nothing."""


async def _commit(message: object) -> Decision:
    """Commit each transaction at once."""
    return Decision.COMMIT


@pytest.fixture
async def world(autojump_clock: MockClock) -> AsyncIterator[World]:
    """A message was read, and one was popped."""
    async with (
        local_cluster(replicas=1) as cluster,
        Producer(cluster.namesrv_addr, "P", checker=_commit) as producer,
        Producer(cluster.namesrv_addr, "N", name="n") as named,
        Consumer(cluster.namesrv_addr, "C", {"T": "*"}, auto_commit=False) as consumer,
        PopConsumer(cluster.namesrv_addr, "D", {"T": "*"}) as pops,
        Admin(cluster.namesrv_addr) as admin,
    ):
        sent = await producer.send(Message("T", b"x"))
        (read,) = await consumer.poll(timeout_s=20)
        (popped,) = await pops.poll(timeout_s=20)
        owners = {"producer": producer, "consumer": consumer, "pops": pops}
        arguments: dict[str, object] = {
            **{"producer.message": Message("T", b"x"), "producer.messages": [Message("T", b"x")]},
            **{"message": read, "request": read, "pops.message": popped, "pops.messages": popped},
            **{"sent": sent, "producer": named, "handler": _nothing},
            **{"bodies": [b"x"], "body": b"x"},
            **{"queue": MessageQueue("T", "broker-a", 0), "queue_id": 0, "offset": 0, "count": 1},
            **{"topic": "T", "group": "C", "broker": "broker-a", "broker_name": "broker-a"},
            **{"node_id": "n0", "server": "127.0.0.1:1", "key": "k", "mode": "POP", "to": "copies"},
            **{"start": "first", "timestamp_ms": 1, "cluster": "DefaultCluster", "namespace": "n"},
            **{"users.name": "u", "password": "p", "user": "u", "resource": "Topic:T"},
            **{"resources": ["Topic:T"], "actions": ["Pub"], "action": "Pub"},
            **{"value": "v", "message_id": "m", "unique_key": "u", "writable": True},
            **{"code": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE},
            **{"peer_address": "127.0.0.1:1", "client_address": "127.0.0.1:2"},
        }
        yield World(owners | {name: getattr(admin, name) for name in PARTS}, arguments)


async def test_no_call_takes_a_number_that_is_none(world: World) -> None:
    """Text from a config file, a list, or NaN is refused by each call with the name."""
    taken = []
    for call, value in product(calls(), NO_NUMBERS):
        try:
            with trio.fail_after(600):
                await world.make(call, value)
        except BadInput:
            continue
        except (Exception, BaseExceptionGroup) as error:
            taken.append(f"{'.'.join(call)}={value!r}: {error!r}")
        else:
            taken.append(f"{'.'.join(call)}={value!r}")
    assert taken == []
