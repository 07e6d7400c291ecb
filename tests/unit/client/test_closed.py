"""Public calls on a client that is not open raise ClientClosed at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, get_type_hints

import pytest
import trio

from dledger.remoting.codes import RequestCode
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import host_bytes
from dledger.remoting.record import encode_record
from mqclient import Admin, ClientClosed, Consumer, Message, Producer, SendResult, blocking
from mqclient.admin.session import Part
from mqclient.connection.routing import Route
from mqclient.consuming.columns.batch import Listed
from mqclient.consuming.popping.message import PoppedMessage
from mqclient.consuming.progress import Chunk, QueueProgress
from mqclient.errors import SendFailed, SendUnknown
from mqclient.models import ReceivedMessage
from mqclient.signatures import accepts

#: Nobody listens on port 1.
NOBODY = "127.0.0.1:1"
QUEUE = MessageQueue("T", "b", 0)
ROUTE = Route("T", (QUEUE,), (QUEUE,), (QUEUE,), ("b",))
RECORD = memoryview(
    encode_record(
        topic=b"T",
        queue_id=0,
        body=b"",
        properties=b"CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01a\x02",
        born_timestamp_ms=1,
        born_host=host_bytes("127.0.0.1", 1),
    )
)
RECEIVED = ReceivedMessage(RECORD, "b")
POPPED = PoppedMessage(RECORD, "b", pop_time_ms=1, invisible_s=1, since_s=1, asked_s=1)
#: Values for parameters without a default: of each the first that its type takes.
VALUES: list[Any] = [
    *("T", 0, b"", True, Message("T", b""), RECEIVED, POPPED, QUEUE, [], lambda _: None, "PULL"),
    *("first", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, Producer(NOBODY, name="n")),
    *(blocking.Producer(NOBODY, name="n"), [("n0", "h:1")]),
    SendResult("id", "T", "b", 0, 0, 0, recall_handle="djEgVCBiIDAgaw=="),
]
NAMED: dict[str, Any] = {
    **{"message_id": "7F00000100002A9F0000000000000000", "count": 1},
    **{"resource": "Topic:T", "action": "Pub", "resources": ["Topic:T"], "actions": ["Pub"]},
}
#: Members that say what they know without anybody's help.
OPEN_TO_ALL = {
    *("check_open", "client_id", "pending", "group", "portal", "call", "requests"),
    *("stay_behind", "open", "close", "left_out", "unasked"),
}


def calls(face: object, skipped: set[str] = OPEN_TO_ALL) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every public method and property of a face, and of its parts, with arguments."""
    for name, part in vars(face).items():
        if isinstance(part, Part | blocking.AdminPart):
            yield from ((f"{name}.{call}", make) for call, make in calls(part))
    for name in dir(type(face)):
        if (name.startswith("_") and name not in ("__anext__", "__next__")) or name in skipped:
            continue
        if isinstance(inspect.getattr_static(face, name), property):
            yield name, lambda name=name: getattr(face, name)
            continue
        method = getattr(face, name)
        hints = get_type_hints(inspect.unwrap(method))
        values = {
            each.name: next(
                value
                for value in (NAMED.get(each.name), *VALUES)
                if value is not None and accepts(hints[each.name], value)
            )
            for each in inspect.signature(method).parameters.values()
            if each.default is each.empty
            and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        }
        yield name, lambda method=method, values=values: method(**values)


async def entered(call: Callable[[], Any]) -> None:
    """Make a call, whatever kind it is."""
    result = call()
    if inspect.isawaitable(result):
        await result
    elif isinstance(result, AbstractAsyncContextManager):
        await result.__aenter__()
    elif isinstance(result, AbstractContextManager):
        result.__enter__()


async def expect_closed(face: object) -> None:
    """Each call of a face fails, at once, with ClientClosed itself."""
    for name, call in calls(face):
        with trio.fail_after(1):
            try:
                await entered(call)
            except ClientClosed:
                continue
        pytest.fail(f"{name} of {face!r} was served")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Producer(NOBODY, "P", checker=lambda _: None),  # type: ignore[arg-type, return-value]
        lambda: Consumer(NOBODY, "C", subscriptions={"T": "*"}),
        lambda: Admin(NOBODY),
    ],
)
async def test_each_call_of_what_is_not_open_says_so_at_once(
    make: Callable[[], Producer | Consumer | Admin],
) -> None:
    """An asynchronous client's calls raise ClientClosed before its block and after it."""
    with trio.fail_after(20):
        face = make()
        await expect_closed(face)
        async with face:
            pass
        await expect_closed(face)
        with pytest.raises(ClientClosed, match="make a new one"):
            async with face:
                pass
    assert len(list(calls(face))) >= 6


@pytest.mark.parametrize(
    "make",
    [
        lambda: blocking.Producer(NOBODY, "P", checker=lambda _: None),  # type: ignore[arg-type, return-value]
        lambda: blocking.Consumer(NOBODY, "C", subscriptions={"T": "*"}),
        lambda: blocking.Admin(NOBODY),
    ],
)
def test_each_blocking_call_of_what_is_not_open_says_so_at_once(
    make: Callable[[], blocking.Producer | blocking.Consumer | blocking.Admin],
) -> None:
    """A blocking client's calls raise ClientClosed before its block and after it."""
    face = make()
    trio.run(expect_closed, face)
    with face:
        pass
    trio.run(expect_closed, face)
    with pytest.raises(ClientClosed, match="make a new one"), face:
        pass
    assert len(list(calls(face))) >= 6


async def test_whoever_waits_for_a_send_is_told_when_its_producer_fails() -> None:
    """A block left by an exception sends nothing more; what was not sent has definitely failed."""
    producer = Producer(NOBODY)
    await producer.__aenter__()
    producer._outbox._topics._publish_to("T", ROUTE)
    pending = producer.send_nowait(Message("T", b""))
    await producer.__aexit__(KeyError, KeyError(), None)
    with trio.fail_after(1), pytest.raises(SendFailed, match="closed"):
        await pending.wait()
    assert producer.pending == 0


async def test_what_is_on_the_wire_when_its_producer_fails_is_of_unknown_outcome() -> None:
    """A message on the wire when its producer fails has an unknown outcome."""
    producer = Producer(NOBODY)
    await producer.__aenter__()
    producer._outbox._topics._publish_to("T", ROUTE)
    pending = producer.send_nowait(Message("T", b""))
    pending.batch.delivery.send(0.0, "a broker")
    await producer.__aexit__(KeyError, KeyError(), None)
    with trio.fail_after(1), pytest.raises(SendUnknown, match="closed"):
        await pending.wait()


def give_one_message(consumer: Consumer) -> None:
    """Give a consumer one message, as if a queue had been read."""
    assignment = consumer._assigned()
    progress = QueueProgress(RECEIVED.queue)
    progress.start(RECEIVED.queue_offset)
    progress.accept(0, Chunk(Listed([RECEIVED]), 1), RECEIVED.queue_offset + 1)
    assignment.fetchers[RECEIVED.queue] = assignment._fetcher(RECEIVED.queue)
    assignment.fetchers[RECEIVED.queue].progress = progress


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_handlers_exception_reaches_the_caller_as_it_is(concurrency: int) -> None:
    """A handler's exception is raised as itself, not within an ExceptionGroup."""

    def handler(message: ReceivedMessage) -> None:
        raise ValueError("the handler's")

    with trio.fail_after(5):
        async with Consumer(NOBODY, "C", subscriptions={"T": "*"}) as consumer:
            give_one_message(consumer)
            with pytest.raises(ValueError, match="the handler's"):
                await consumer.run(handler, concurrency, on_error="raise")


def test_a_blocking_handlers_exception_reaches_the_caller_as_it_is() -> None:
    """A blocking handler's exception is raised as itself, from one thread or several."""

    def handler(message: ReceivedMessage) -> None:
        raise ValueError("the handler's")

    for concurrency in (1, 2):
        with blocking.Consumer(NOBODY, "C", subscriptions={"T": "*"}) as consumer:
            consumer.portal.call(give_one_message, consumer._client)
            for _ in range(2):  # it is not lost: the next run begins with it
                with pytest.raises(ValueError, match="the handler's"):
                    consumer.run(handler, concurrency, on_error="raise")
