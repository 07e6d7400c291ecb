"""Spans of OpenTelemetry: one for each send, one for each handler, linked by the message.

::

    Producer(NAMESRV, interceptors=[trace_sends()])
    Consumer(NAMESRV, "G", {"Orders": "*"}, interceptors=[trace_handlers("G")])

The send's context travels in the message's properties, as the process's propagator writes it
(`traceparent`, by default). A handler's span has a link to the send of each of its messages; of a
single message, the send is its parent, too. Names and attributes are those of OpenTelemetry's
semantic conventions for messaging. Needs `dledger[otel]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from dledger.errors import DledgerError
from dledger.version import __version__
from mqclient.models import Message, ReceivedMessage, SendResult
from mqclient.producing.pending import PendingSend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mqclient.hooks import Handle, HandleInterceptor, Send, SendInterceptor

SYSTEM = "rocketmq"


def trace_sends(tracer: Tracer | None = None) -> SendInterceptor:
    """An interceptor for producers; by a `tracer` of the application's, or the process's."""
    tracer = tracer or _tracer()

    async def interceptor(message: Message, send: Send) -> object:
        span = tracer.start_span(
            f"send {message.topic}", kind=SpanKind.PRODUCER, attributes=_of_message(message)
        )
        with _ended_by_error(span), _current(span):
            carried: dict[str, str] = dict(message.properties or {})
            propagate.inject(carried)
            sent = await send(replace(message, properties=carried))
        if isinstance(sent, PendingSend):
            sent.add_callback(partial(_end_when_settled, span))
        elif isinstance(sent, SendResult):
            _end(span, sent)
        else:
            span.end()
        return sent

    return interceptor


def trace_handlers(group: str, tracer: Tracer | None = None) -> HandleInterceptor:
    """An interceptor for consumers of `group`, of every kind."""
    tracer = tracer or _tracer()

    async def interceptor(messages: Sequence[ReceivedMessage], handle: Handle) -> None:
        sends = [propagate.extract(message.properties) for message in messages]
        linked = [trace.get_current_span(each).get_span_context() for each in sends]
        links = [Link(each) for each in linked if each.is_valid]
        first = messages[0]
        span = tracer.start_span(
            f"process {first.topic}",
            context=sends[0] if len(messages) == 1 else context.Context(),
            kind=SpanKind.CONSUMER,
            attributes=_of_received(group, messages),
            links=links,
        )
        with _ended_by_error(span), _current(span):
            await handle()
        span.end()

    return interceptor


def _tracer() -> Tracer:
    return trace.get_tracer("mqclient", __version__)


def _of_message(message: Message) -> Mapping[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": message.topic,
    }
    if message.body:
        attributes["messaging.message.body.size"] = len(message.body)
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        keys = message.keys
        attributes["messaging.rocketmq.message.keys"] = (
            keys.split(" ") if isinstance(keys, str) else keys
        )
    return attributes


def _of_received(group: str, messages: Sequence[ReceivedMessage]) -> Mapping[str, Any]:
    first = messages[0]
    attributes: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": first.topic,
        "messaging.destination.partition.id": f"{first.broker_name}/{first.queue_id}",
        "messaging.consumer.group.name": group,
    }
    if len(messages) > 1:
        attributes["messaging.batch.message_count"] = len(messages)
        return attributes
    attributes["messaging.message.id"] = first.message_id
    attributes["messaging.message.body.size"] = len(first.body)
    if first.tags:
        attributes["messaging.rocketmq.message.tag"] = first.tags
    return attributes


def _end(span: Span, sent: SendResult) -> None:
    span.set_attribute("messaging.message.id", sent.message_id)
    span.set_attribute("messaging.destination.partition.id", f"{sent.broker_name}/{sent.queue_id}")
    span.end()


def _end_when_settled(span: Span, pending: PendingSend) -> None:
    try:
        _end(span, pending.result())
    except DledgerError as error:
        _failed(span, error)
        span.end()


def _current(span: Span) -> AbstractContextManager[Span]:
    return trace.use_span(span, record_exception=False, set_status_on_exception=False)


@contextmanager
def _ended_by_error(span: Span) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        _failed(span, error)
        span.end()
        raise


def _failed(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))
