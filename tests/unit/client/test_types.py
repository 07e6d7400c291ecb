"""Public calls refuse an argument of another type than their signature's, by its name.

The calls, and what they can't be given, are found by their signatures, so a new one is tried as
well. A call that is refused sends, takes and finishes nothing.
"""

from __future__ import annotations

import inspect
import ssl
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import mqclient
from dledger.errors import BadInput
from mqclient import (
    Admin,
    ConsistentHash,
    MachineRooms,
    Message,
    NearbyRooms,
    PopConsumer,
    Producer,
    Sql,
    Tls,
    blocking,
    run_until_signal,
)
from mqclient.connection.identity import UniqueKeys
from mqclient.producing.encoding import Encoder
from mqclient.signatures import accepts
from tests.unit.client.test_closed import NOBODY
from tests.unit.client.test_numbers import Call, World, world

__all__ = ["world"]

SAMPLES: list[Any] = [
    *(None, True, 5, 2.5, "text", b"bytes", ["list"], [5], [b"b"], [None], ("tuple",)),
    *({"key": "value"}, {"key": 5}, {5: "*"}, {1}, object(), print, Message("T", b""), str),
]
OPEN_TO_ALL = {"check_open", "stay_behind"}
PARTS = {
    name: type(part)
    for name, part in vars(Admin("127.0.0.1:1")).items()
    if type(part).__module__.startswith("mqclient.admin.") and not name.startswith("_")
}
CLIENTS = {"producer": Producer, "consumer": mqclient.Consumer, "pops": PopConsumer}
FACES = [
    *(mqclient.Producer, mqclient.Consumer, mqclient.PopConsumer, mqclient.Admin),
    *(blocking.Producer, blocking.Consumer, blocking.PopConsumer, blocking.Admin),
    *(mqclient.BulkWriter, mqclient.RangeReader, blocking.BulkWriter, blocking.RangeReader),
]


def wrong_values(
    call: Callable[..., object], also: dict[str, Any] | None = None
) -> Iterator[tuple[str, Any]]:
    """The parameters of a call, each with every sample that its annotation doesn't have."""
    while hasattr(call, "__wrapped__"):
        call = call.__wrapped__
    hints = typing.get_type_hints(call, localns=also)
    for name in inspect.signature(call).parameters:
        if name in hints:
            for value in SAMPLES:
                if not accepts(hints[name], value):
                    yield name, value


def expect_refusals(call: Callable[[str, Any], object], values: Iterable[tuple[str, Any]]) -> None:
    """Each value of a parameter is refused with the parameter's name."""
    taken = []
    for name, value in values:
        try:
            call(name, value)
        except BadInput as error:
            if name not in str(error):
                taken.append(f"{name}={value!r}: {error}")
        except Exception as error:
            taken.append(f"{name}={value!r}: {error!r}")
        else:
            taken.append(f"{name}={value!r}")
    assert taken == [], "\n".join(taken)


def test_the_signatures_say_what_is_wrong() -> None:
    """Wrong values are made from signatures, some of them as users have given them."""
    wrong = [(name, repr(value)) for name, value in wrong_values(mqclient.Consumer.__init__)]
    for each in (("subscriptions", "['list']"), ("ordered", "'text'"), ("ordered", "5")):
        assert each in wrong
    assert ("subscriptions", "{'key': 'value'}") not in wrong
    assert ("handler", "5") in [(n, repr(v)) for n, v in wrong_values(mqclient.Consumer.run)]
    assert ("key", "5") in [(n, repr(v)) for n, v in wrong_values(Producer.send)]


@pytest.mark.parametrize("face", FACES)
def test_no_client_is_made_with(face: type) -> None:
    """A constructor refuses wrong types before any connection."""
    good = {"group": "G", "subscriptions": {"T": "*"}}
    wanted = inspect.signature(face).parameters
    given_ = {each: good[each] for each in good if each in wanted}
    expect_refusals(lambda name, value: face(**given_ | {name: value}), wrong_values(face.__init__))


MADE = {Sql: {"expression": "a = 1"}, Tls: {}, MachineRooms: {"rooms": ["a"]}, ConsistentHash: {}}
MADE[NearbyRooms] = dict.fromkeys(("room_of_queue", "room_of_member"), str)


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_no_client_is_told_by(kind: type) -> None:
    """Classes that an application passes to clients refuse wrong types."""

    def make(name: str, value: object) -> None:
        made = kind(**MADE[kind] | {name: value})
        if kind is Tls:
            Producer(NOBODY, tls=made)

    expect_refusals(make, wrong_values(kind.__init__, {"ssl": ssl}))


@pytest.mark.parametrize("wait", [run_until_signal, blocking.run_until_signal])
def test_nothing_runs_until_a_signal_with(wait: Callable[..., Any]) -> None:
    """A wrong argument is refused at the call, not when the signal comes."""

    def waits(name: str, value: object) -> None:
        several = (value,) if name == "clients" else ()
        named = {} if several else {name: value}
        done = wait(*(() if name == "run" else (print,)), *several, **named)
        if inspect.iscoroutine(done):
            done.send(None)

    expect_refusals(waits, wrong_values(wait))


def test_nothing_that_is_public_is_left_out() -> None:
    """Every public callable is tested here, but for classes that applications only receive."""
    given_out = {"Bounds", "Columns", "Decision", "Gap", "MessageQueue", "OnceTransaction"}
    given_out |= {"PendingSend", "Piece", "PoppedMessage", "ReadMany", "Rebalance", "MessageBatch"}
    given_out |= {"ReceivedMessage", "Reply", "SendResult", "SentMany", "TopicBounds"}
    given_out |= {"Transaction", "Metrics", "AdminPart", "Face"}
    looked_at = {each.__name__ for each in [*FACES, *MADE]} | {"Message", "run_until_signal"}
    public = {
        name
        for module in (mqclient, blocking)
        for name in module.__all__
        if callable(each := getattr(module, name))
        and not (isinstance(each, type) and issubclass(each, BaseException))
        and typing.get_origin(each) is None
    }
    assert public - given_out - looked_at == set()


def calls() -> Iterator[tuple[Call, Any]]:
    """Calls with a parameter, and a value that it must refuse."""
    for owner, kind in (CLIENTS | PARTS).items():
        for name, function in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and name not in OPEN_TO_ALL:
                for parameter, value in wrong_values(function):
                    yield Call(owner, name, parameter), value


async def test_no_call_takes_what_it_does_not_name(world: World) -> None:
    """Asynchronous calls, which the blocking ones call, refuse wrong types by name."""
    taken = []
    for call, value in calls():
        said = "taken"
        try:
            with trio.fail_after(600):
                await world.make(call, value)
        except BadInput as error:
            said = "" if call.parameter.removesuffix("s") in str(error) else repr(error)
        except (Exception, BaseExceptionGroup) as error:
            said = repr(error)
        if said:
            taken.append(f"{'.'.join(call)}={value!r}: {said}")
    assert taken == [], "\n".join(taken)
    producer = world.owners["producer"]
    assert isinstance(producer, Producer)
    assert producer.pending == 0


@pytest.mark.parametrize("face", [blocking.Producer, blocking.Consumer, blocking.PopConsumer])
def test_no_blocking_call_takes_what_it_does_not_name(face: type) -> None:
    """Blocking calls that asynchronous clients lack refuse wrong types by name."""
    made = face(NOBODY, "G") if face is blocking.Producer else face(NOBODY, "G", {"T": "*"})
    good: dict[str, object] = {"handler": print, "queue": mqclient.MessageQueue("T", "b", 0)}
    good |= {"offset": 0, "producer": blocking.Producer(NOBODY), "message": Message("T", b"")}
    taken = []
    own = [
        (name, call)
        for name, call in inspect.getmembers(face, inspect.isfunction)
        if not name.startswith("_") and call.__module__.startswith("mqclient.blocking.")
    ]
    for name, call in own:
        if name in ("call", "within", "stay_behind"):
            continue
        for parameter, value in wrong_values(call):
            wanted = [
                each.name
                for each in inspect.signature(call).parameters.values()
                if each.default is each.empty
                and each.name not in ("self", parameter)
                and each.kind is not each.VAR_POSITIONAL
            ]
            several = inspect.signature(call).parameters[parameter].kind.name == "VAR_POSITIONAL"
            named = {each: good[each] for each in wanted}
            try:
                bound = getattr(made, name)
                bound(value) if several else bound(**named, **{parameter: value})
            except BadInput as error:
                if parameter.removesuffix("s") in str(error):
                    continue
                taken.append(f"{name}.{parameter}={value!r}: {error}")
            except Exception as error:
                taken.append(f"{name}.{parameter}={value!r}: {error!r}")
            else:
                taken.append(f"{name}.{parameter}={value!r}")
    assert taken == [], "\n".join(taken)


@given(st.sampled_from([int, str, str | None, list[int], dict[str, int]]), st.data())
def test_a_value_of_a_type_is_of_it(hint: Any, data: st.DataObject) -> None:
    """A value of the right type is never refused."""
    assert accepts(hint, data.draw(st.from_type(hint)))


def test_no_message_is_sent_with() -> None:
    """A message's fields refuse wrong types, in every way of sending."""
    encoder = Encoder(UniqueKeys("10.1.2.3"), "10.1.2.3")

    def encode(name: str, value: object) -> None:
        encoder.encode(Message(**{"topic": "T", "body": b"", name: value}), 0)

    expect_refusals(encode, wrong_values(Message.__init__))
