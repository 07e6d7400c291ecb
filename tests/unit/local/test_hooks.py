"""Hooks around sends and handlers are called in their order, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from json import JSONDecodeError
from queue import SimpleQueue
from threading import Thread
from typing import Any

import msgspec
import pydantic
import pytest
import trio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mqclient import (
    BadInput,
    BadMessage,
    Decision,
    Message,
    NoReply,
    PopConsumer,
    ReceivedMessage,
    Undecodable,
    blocking,
)
from mqclient.contrib.codecs import JSON, Codec, msgspec_codec, pydantic_codec
from mqclient.contrib.opentelemetry import trace_handlers, trace_sends
from mqclient.hooks import Handle, Send
from mqlocal import LocalCluster, local_cluster_in_thread

PATIENCE_S = 60.0
CONSUMERS = pytest.mark.parametrize("kind", ["pull", "pop"])


def consumer_of(cluster: LocalCluster, kind: str, **given: Any) -> Any:
    if kind == "pull":
        return cluster.consumer("G", {"T": "*"}, **given)
    return PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}, **given)


def stamping(name: str, said: list[str]) -> Any:
    async def interceptor(message: Message, send: Send) -> Any:
        said.append(f"{name} begins")
        before = dict(message.properties or {})
        sent = await send(replace(message, properties=before | {name: str(len(before))}))
        said.append(f"{name} ends")
        return sent

    return interceptor


async def commits(_message: ReceivedMessage) -> Decision:
    return Decision.COMMIT


async def test_interceptors_are_called_around_each_send_in_their_order(
    mq_cluster: LocalCluster,
) -> None:
    """Interceptors are called once for each message, however it is sent, and may change it."""
    said: list[str] = []
    given = {"interceptors": [stamping("outer", said), stamping("inner", said)]}
    async with (
        mq_cluster.producer("P", checker=commits, **given) as producer,
        mq_cluster.consumer("G", {"T": "*"}) as consumer,
    ):
        sent = await producer.send(Message("T", b"sent"))
        pending = await producer.send_soon(Message("T", b"soon"))
        await pending.wait()
        async with producer.transaction(Message("T", b"half")) as transaction:
            pass
        await producer.send_large(Message("T", bytes(5 << 20)))
        with pytest.raises(NoReply):
            await producer.request(Message("T", b"asked"), timeout_s=1)
        found: list[ReceivedMessage] = []
        while len(found) < 5:
            found += await consumer.poll(timeout_s=60)
    around = ["outer begins", "inner begins", "inner ends", "outer ends"]
    assert said == around * 4 + around[:2]
    assert {message.message_id for message in found} >= {
        sent.message_id,
        transaction.sent.message_id,
    }
    assert [(m.properties["outer"], int(m.properties["inner"]) > 0) for m in found] == [
        (each.properties["outer"], True) for each in found
    ]


async def test_an_interceptors_error_is_the_sends_and_nothing_is_sent(
    mq_cluster: LocalCluster,
) -> None:
    """An interceptor's error is the send's; an answer that it rejects causes no second send."""

    async def refuse(message: Message, send: Send) -> Any:
        raise LookupError("not today")

    async with (
        mq_cluster.producer("P", checker=commits, interceptors=[refuse]) as producer,
        mq_cluster.producer("P") as plain,
        mq_cluster.consumer("G", {"T": "*"}) as consumer,
    ):
        await plain.send(Message("T", b"first"))
        for call in (producer.send, producer.send_soon):
            with pytest.raises(LookupError, match="not today"):
                await call(Message("T", b"x"))
        with pytest.raises(LookupError, match="not today"):
            async with producer.transaction(Message("T", b"x")):
                pass
        await plain.send(Message("T", b"last"))
        bodies = [(await anext(consumer)).body for _ in range(2)]
    assert sorted(bodies) == [b"first", b"last"]


async def test_calls_that_await_nothing_refuse_interceptors(mq_cluster: LocalCluster) -> None:
    """Calls that await nothing would leave out interceptors, and refuse them."""
    async with mq_cluster.producer("P", interceptors=[stamping("a", [])]) as producer:
        await producer.prepare("T")
        for call in (producer.send_nowait, producer.send_oneway):
            with pytest.raises(BadInput, match=f"{call.__name__} awaits nothing"):
                call(Message("T", b"x"))
        with pytest.raises(BadInput, match="send_batch awaits nothing"):
            await producer.send_batch([Message("T", b"x")])
        with pytest.raises(BadInput, match="send_many awaits nothing"):
            await producer.send_many("T", [b"x"])


@pytest.mark.parametrize("given", [{"interceptors": [5]}, {"encode": 5}])
async def test_what_can_not_be_called_is_refused(
    mq_cluster: LocalCluster, given: dict[str, Any]
) -> None:
    """A hook that can't be called is refused when the client is made."""
    with pytest.raises(BadInput, match=next(iter(given))):
        mq_cluster.producer("P", **given)


@CONSUMERS
async def test_interceptors_are_called_around_each_handler(
    mq_cluster: LocalCluster, kind: str
) -> None:
    """An interceptor that raises counts as a handler that raises: the message comes again."""
    said: list[tuple[str, bytes, str]] = []

    async def outer(messages: Sequence[ReceivedMessage], handle: Handle) -> None:
        (message,) = messages
        said.append(("outer", message.body, "begins"))
        await handle()
        said.append(("outer", message.body, "ends"))

    async def inner(messages: Sequence[ReceivedMessage], handle: Handle) -> None:
        await handle()
        if len(said) < 4:
            raise LookupError("once")

    def handler(message: ReceivedMessage) -> None:
        said.append(("handler", message.body, ""))

    given = {"interceptors": [outer, inner], "retry_delays_s": [1.0]}
    async with (
        mq_cluster.producer("P") as producer,
        consumer_of(mq_cluster, kind, **given) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handler)
        await producer.send(Message("T", b"x"))
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    assert said == [
        ("outer", b"x", "begins"),
        ("handler", b"x", ""),
        ("outer", b"x", "begins"),
        ("handler", b"x", ""),
        ("outer", b"x", "ends"),
    ]


class Order(msgspec.Struct):
    """A value of a msgspec class."""

    number: int


class Bill(pydantic.BaseModel):
    """A value of a pydantic class."""

    number: int


CODECS = [
    pytest.param(JSON, {"number": 1}, id="json"),
    pytest.param(msgspec_codec(Order), Order(1), id="msgspec"),
    pytest.param(pydantic_codec(Bill), Bill(number=1), id="pydantic"),
]


@CONSUMERS
@pytest.mark.parametrize(("codec", "value"), CODECS)
async def test_values_are_sent_and_received(
    mq_cluster: LocalCluster, kind: str, codec: Codec, value: object
) -> None:
    """Values are sent by every call that takes a message, and read by polls and handlers."""
    found: list[object] = []
    async with (
        mq_cluster.producer("P", encode=codec.encode) as producer,
        consumer_of(mq_cluster, kind, decode=codec.decode) as consumer,
    ):
        await producer.send(Message("T", value=value))
        await (await producer.send_soon(Message("T", value=value))).wait()
        await producer.send_batch([Message("T", value=value)])
        await producer.send_large(Message("T", value=value))
        producer.send_nowait(Message("T", value=value))
        await producer.flush()
        while len(found) < 2:
            for message in await consumer.poll(1, timeout_s=60):
                found.append(message.value)
                if kind == "pop":
                    await consumer.ack(message)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, lambda message: found.append(message.value))
            await trio.sleep(30)
            nursery.cancel_scope.cancel()
    assert found[:5] == [value] * 5


@CONSUMERS
async def test_a_body_that_can_not_be_decoded_is_a_handlers_failure(
    mq_cluster: LocalCluster, kind: str
) -> None:
    """The handler is not called; the message comes again, and is a dead letter in the end."""
    failures: list[tuple[type[Exception], bytes, int]] = []
    called: list[object] = []

    async def told(error: Exception, message: ReceivedMessage, attempt: int) -> None:
        failures.append((type(error), message.body, attempt))

    given = {"decode": msgspec_codec(Order).decode, "retry_delays_s": [1.0]}
    async with (
        mq_cluster.producer("P") as producer,
        consumer_of(mq_cluster, kind, **given) as consumer,
        mq_cluster.consumer("D", {"%DLQ%G": "*"}) as dead,
        trio.open_nursery() as nursery,
    ):
        await producer.send(Message("T", b"no order"))

        async def run() -> None:
            await consumer.run(called.append, on_error=told, max_reconsume_times=2)

        nursery.start_soon(run)
        (letter,) = await dead.poll(timeout_s=120)
        nursery.cancel_scope.cancel()
    assert letter.body == b"no order"
    assert failures == [(Undecodable, b"no order", attempt) for attempt in (1, 2, 3)]
    assert called == []


async def test_a_value_that_can_not_be_sent_is_refused_at_the_call(
    mq_cluster: LocalCluster,
) -> None:
    """A value without a codec, beside a body, or of a wrong type is refused at the call."""
    async with (
        mq_cluster.producer("P", encode=JSON.encode) as producer,
        mq_cluster.producer("P") as plain,
        mq_cluster.consumer("G", {"T": "*"}) as consumer,
    ):
        with pytest.raises(BadMessage, match="`encode`"):
            await plain.send(Message("T", value=1))
        with pytest.raises(BadMessage, match="`encode`"):
            await plain.send_soon(Message("T", value=1))
        with pytest.raises(BadMessage, match="both a body and a value"):
            await producer.send(Message("T", b"x", value=1))
        with pytest.raises(BadMessage, match="can't be encoded: TypeError"):
            await producer.send(Message("T", value=object()))
        await plain.send(Message("T", b"1"))
        with pytest.raises(BadInput, match="without `decode`"):
            _ = (await anext(consumer)).value


@pytest.mark.parametrize("said", ["raise", "suspend", "nonsense", None])
async def test_a_function_says_what_becomes_of_a_message(
    mq_cluster: LocalCluster, said: str | None
) -> None:
    """`on_error` decides about a message; a wrong word, or its own error, means the default."""
    tries: list[int] = []

    def handler(message: ReceivedMessage) -> None:
        tries.append(message.handled_again)
        raise LookupError("never")

    def on_error(error: Exception, message: ReceivedMessage, attempt: int) -> str | None:
        assert (type(error), message.body, attempt) == (LookupError, b"x", len(tries))
        if said is None and attempt > 1:
            raise RuntimeError("on_error fails itself")
        return said

    async with (
        mq_cluster.producer("P") as producer,
        mq_cluster.consumer("G", {"T": "*"}, retry_delays_s=[20.0]) as consumer,
    ):
        await producer.send(Message("T", b"x"))
        with trio.move_on_after(50):
            if said == "raise":
                with pytest.raises(LookupError, match="never"):
                    await consumer.run(handler, on_error=on_error)
                assert len(tries) == 1
                return
            await consumer.run(handler, on_error=on_error)
    assert tries == ([0, 1, 2] if said == "suspend" else [0, 0, 0])


BLOCKING_RUNS: dict[str, Callable[[Any, Any, Any], None]] = {
    "here": lambda consumer, handler, on_error: consumer.run(handler, on_error=on_error),
    "threads": lambda consumer, handler, on_error: consumer.run(handler, 2, on_error=on_error),
    "batches": lambda consumer, handler, on_error: consumer.run_batches(
        lambda messages: [handler(message) for message in messages], 1, on_error=on_error
    ),
    "pop": lambda consumer, handler, on_error: consumer.run(handler, on_error=on_error),
}


def test_a_body_that_can_not_be_decoded_is_a_blocking_handlers_failure() -> None:
    """A blocking handler gets the messages around one that can't be decoded, and those alone."""
    with local_cluster_in_thread(replicas=1) as cluster:
        with cluster.producer("P") as producer:
            producer.send_batch([Message("T", body) for body in (b"1", b"{", b"2")])
        for way, run in BLOCKING_RUNS.items():
            failures: SimpleQueue[tuple[Exception, bytes, int]] = SimpleQueue()
            values: SimpleQueue[object] = SimpleQueue()
            kind = blocking.PopConsumer if way == "pop" else blocking.Consumer
            with kind(
                *(cluster.namesrv_addr, f"G-{way}", {"T": "*"}),
                decode=JSON.decode,
                retry_delays_s=[600.0],
            ) as consumer:
                running = Thread(
                    target=run,
                    args=(
                        consumer,
                        lambda message, put=values.put: put(message.value),
                        lambda *told, put=failures.put: put((told[0], told[1].body, told[2])),
                    ),
                )
                running.start()
                error, body, attempt = failures.get(timeout=PATIENCE_S)
                got = [values.get(timeout=PATIENCE_S) for _ in range(2)]
                assert consumer.drain()
                running.join(PATIENCE_S)
            assert (type(error), body, attempt) == (Undecodable, b"{", 1), way
            assert isinstance(error.__cause__, JSONDecodeError), way
            assert got == [1, 2], way
            assert failures.empty(), way
            assert values.empty(), way


def test_a_blocking_poll_hands_out_what_can_not_be_decoded() -> None:
    """Asking for its value raises, each time; the consumer goes on."""
    with local_cluster_in_thread(replicas=1) as cluster:
        with cluster.producer("P") as producer:
            producer.send(Message("T", b"{"))
        for kind in (blocking.Consumer, blocking.PopConsumer):
            group = kind.__name__
            with kind(cluster.namesrv_addr, group, {"T": "*"}, decode=JSON.decode) as consumer:
                message = next(iter(consumer))
                for _ in range(2):
                    with pytest.raises(Undecodable, match="JSONDecodeError"):
                        _ = message.value
                assert message.body == b"{"


def test_blocking_clients_have_them_too() -> None:
    """Interceptors of blocking clients run in their event loop, around handlers in threads."""
    said: list[str] = []

    async def around(messages: Sequence[ReceivedMessage], handle: Handle) -> None:
        said.append("begins")
        await handle()
        said.append("ends")

    with (
        local_cluster_in_thread(replicas=1) as cluster,
        cluster.producer("P", interceptors=[stamping("a", said)], encode=JSON.encode) as producer,
        cluster.consumer("G", {"T": "*"}, decode=JSON.decode, interceptors=[around]) as consumer,
    ):
        producer.send(Message("T", value=[1]))
        values: list[object] = []

        def handler(message: ReceivedMessage) -> None:
            values.append(message.value)
            raise LookupError("enough")

        with pytest.raises(LookupError, match="enough"):
            consumer.run(handler, concurrency=2, on_error="raise")
    assert (values, said) == ([[1]], ["a begins", "a ends", "begins"])


@CONSUMERS
async def test_spans_of_sends_and_handlers_are_linked(mq_cluster: LocalCluster, kind: str) -> None:
    """Spans of a send and its handlers are one trace with the conventions' names."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("test")
    tries: list[int] = []

    def handler(message: ReceivedMessage) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise LookupError("once")

    given = {"interceptors": [trace_handlers("G", tracer)], "retry_delays_s": [1.0]}
    async with (
        mq_cluster.producer("P", interceptors=[trace_sends(tracer)]) as producer,
        consumer_of(mq_cluster, kind, **given) as consumer,
        trio.open_nursery() as nursery,
    ):
        sent = await producer.send(Message("T", b"x", tags="t", keys="k1 k2"))
        with pytest.raises(BadMessage):
            await producer.send_soon(Message("T", b"x", properties={"": "x"}))
        soon = await producer.send_soon(Message("U", b"x"))
        await soon.wait()
        nursery.start_soon(consumer.run, handler)
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    sends, handled = [spans_of(kept, kind) for kind in (SpanKind.PRODUCER, SpanKind.CONSUMER)]
    assert [(span.name, span.status.status_code) for span in sends] == [
        ("send T", StatusCode.UNSET),
        ("send T", StatusCode.ERROR),
        ("send U", StatusCode.UNSET),
    ]
    attributes = sends[0].attributes
    assert attributes is not None
    assert attributes["messaging.system"] == "rocketmq"
    assert attributes["messaging.message.id"] == sent.message_id
    assert attributes["messaging.rocketmq.message.keys"] == ("k1", "k2")
    assert [(span.name, span.status.status_code) for span in handled] == [
        ("process T", StatusCode.ERROR),
        ("process T", StatusCode.UNSET),
    ]
    for span in handled:
        assert [link.context.span_id for link in span.links] == [sends[0].context.span_id]
        assert span.context.trace_id == sends[0].context.trace_id
        assert span.attributes is not None
        assert span.attributes["messaging.consumer.group.name"] == "G"


def spans_of(kept: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    spans = [span for span in kept.get_finished_spans() if span.kind == kind]
    return sorted(spans, key=lambda span: span.start_time or 0)
