"""Names of `mqclient`, and the errors of programs that use other clients' names."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
from trio.testing import MockClock

import mqclient
from dledger import errors as foundation
from dledger.errors import BadInput, DledgerError
from mqclient import Message, Producer, RecallTooLate, blocking, errors, habits
from mqclient.connection.identity import UniqueKeys
from mqclient.producing.encoding import Encoder
from mqlocal import local_cluster


def errors_told() -> set[str]:
    """The errors that the docstrings of public calls name."""
    kinds = [getattr(mqclient, name) for name in mqclient.__all__]
    kinds += [type(part) for part in vars(mqclient.Admin()).values()]
    calls = [
        call
        for kind in kinds
        for name, call in [(kind.__name__, kind), *inspect.getmembers(kind, callable)]
        if inspect.isclass(kind) and not name.startswith("_")
    ]
    words = {word for call in calls for word in re.findall(r"\w+", inspect.getdoc(call) or "")}
    known = {**vars(foundation), **vars(errors)}
    return {word for word in words if inspect.isclass(known.get(word)) and is_error(known[word])}


def is_error(kind: type) -> bool:
    """Whether an error is one of this project's."""
    return issubclass(kind, DledgerError)


def test_every_error_of_a_call_has_a_name_here() -> None:
    """Errors of all calls can be imported from here."""
    own = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and is_error(kind)}
    told = errors_told()
    assert {"BadInput", "RemotingError", "SendUnknown", "NoRoute"} <= told
    assert own | told <= set(mqclient.__all__)
    assert [getattr(mqclient, name).__name__ for name in mqclient.__all__] == mqclient.__all__


LAZY = ("dledger", "dledger.net", "mqclient", "mqclient.blocking", "mqlocal")


@pytest.mark.parametrize("package", LAZY)
def test_a_package_lists_its_names(package: str) -> None:
    """A package lists its lazy names before any is loaded, so interpreters complete them."""
    shown = f"import {package} as found; print(*dir(found))"
    names = subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True).stdout
    module = import_module(package)
    assert set(module.__all__) <= set(names.decode().split())
    with pytest.raises(AttributeError, match=f"'{package}' has no attribute 'Nobody'"):
        _ = module.Nobody


@pytest.mark.parametrize("face", [mqclient, blocking])
def test_parameters_of_other_clients_are_told_what_they_are_here(face: Any) -> None:
    """Parameters of other clients' calls are refused with their name here; others are Python's."""
    for kind in (face.Producer, face.Consumer):
        for name, here in habits.GIVEN_ELSEWHERE.items():
            with pytest.raises(TypeError, match=f"{name} is {here}"):
                kind(**{name: "x"})
            assert here.partition(",")[0] in {
                *inspect.signature(face.Producer).parameters,
                *inspect.signature(face.Consumer).parameters,
            }
        with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'$"):
            kind(nothing=5)


async def test_a_message_is_read_by_the_names_that_are_here(autojump_clock: MockClock) -> None:
    """A message has its send's key; another client's name for a field gets its name here."""
    names = ("position", "nothing")
    async with local_cluster(replicas=1) as cluster:
        async with cluster.producer("P") as producer:
            pending = await producer.send_soon(Message("T", b"1"), key="customer")
            assert (await pending).topic == "T"
            await producer.send(Message("T", b"2"))
        async with cluster.consumer("G", {"T": "*"}) as consumer:
            got = [await anext(consumer) for _ in range(2)]
            with pytest.raises(AttributeError, match=r"'position': lag\(\) says"):
                getattr(consumer, names[0])
        assert {each.body: each.key for each in got} == {b"1": "customer", b"2": ""}
        for name, here in [("offset", "queue_offset"), ("headers", "properties")]:
            with pytest.raises(AttributeError, match=f"no attribute '{name}': {here}$"):
                getattr(got[0], name)
        with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
            getattr(got[0], names[1])


@pytest.mark.parametrize("face", [mqclient, blocking])
def test_a_program_that_forgets_its_group_shares_none(face: object) -> None:
    """Two of them would take each other's messages, or answer for each other's transactions."""
    with pytest.raises(BadInput, match="group is missing"):
        face.Consumer(subscriptions={"T": "*"})  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="group is missing"):
        face.PopConsumer(subscriptions={"T": "*"})  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="a checker without a group"):
        face.Producer(checker=print)  # type: ignore[attr-defined]
    face.Producer()  # type: ignore[attr-defined]
    face.Consumer(subscriptions={"T": "*"}, assign="all", offsets=None)  # type: ignore[attr-defined]


async def test_a_message_is_taken_back_by_its_topic_and_handle(autojump_clock: MockClock) -> None:
    """A message is recalled by topic and handle, by a program that has kept them as text."""
    async with local_cluster(replicas=1) as cluster:
        async with Producer(cluster.namesrv_addr) as producer:
            sent = await producer.send(Message("T", b"", delay_s=60))
        async with Producer(cluster.namesrv_addr) as producer:
            for topic, handle, what in (
                ("T", None, "give the SendResult"),
                (sent, sent.recall_handle, "give the SendResult"),
                ("U", sent.recall_handle, "a message to 'T', not to 'U'"),
                ("T", "nothing", "not a valid recall handle"),
            ):
                with pytest.raises(BadInput, match=what):
                    await producer.recall(topic, handle)
            await producer.recall("T", sent.recall_handle)
            with pytest.raises(RecallTooLate):
                await producer.recall(sent)


async def test_many_sends_say_how_they_are(autojump_clock: MockClock) -> None:
    """Many sends have a short repr, however many results there are."""
    async with local_cluster(replicas=1) as cluster, Producer(cluster.namesrv_addr) as producer:
        sent = await producer.send_many("T", [b"x"] * 3)
        assert repr(sent) == "<SentMany 3 messages, 0 failed, 0 not settled>"


@pytest.mark.parametrize(
    ("keys", "kept"),
    [
        ("a", "a"),
        ("a b", "a b"),
        (["a", "b"], "a b"),
        (("a",), "a"),
        ([], ""),
        (["ä", "x-1"], "ä x-1"),
    ],
)
async def test_keys_are_text_or_several(
    keys: str | list[str], kept: str, autojump_clock: MockClock
) -> None:
    """Keys are a text or several texts, and each finds the message."""
    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P") as producer,
        cluster.consumer("C", {"T": "*"}) as consumer,
        cluster.admin() as admin,
    ):
        await producer.send(Message("T", b"", keys=keys))
        (message,) = await consumer.poll(timeout_s=20)
        assert message.keys == kept
        for key in kept.split():
            assert len(await admin.messages.by_key("T", key)) == 1


@pytest.mark.parametrize("keys", [5, b"a", ["a", 5], ["a b"], [""], {"a"}, [None]])
def test_keys_of_other_kinds_are_refused(keys: object) -> None:
    """Keys of other types are refused, and never stored as their repr."""
    encoder = Encoder(UniqueKeys("10.1.2.3"), "10.1.2.3")
    with pytest.raises(BadInput, match="keys="):
        encoder.encode(Message("T", b"", keys=keys), 0)  # type: ignore[arg-type]
