"""sendMessage, consumeMessage, printMsg and listScheduled."""

from __future__ import annotations

from typing import Annotated

import anyio
from cyclopts import Parameter
from cyclopts.validators import Number

from dledger.errors import BadInput, ConfigError
from dledger.program.whole import Whole
from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.admin import Admin, UnknownTarget
from mqclient.admin.results import MessageView, QueueStatus, TopicStatus
from mqclient.commands.terminal.options import DEFAULTS, Common, Topic
from mqclient.commands.terminal.output import Table, first_of, moment, plural
from mqclient.commands.terminal.times import Begin, End, parse_bound
from mqclient.consuming.subscriptions import parse_subscription
from mqclient.errors import NoRoute
from mqclient.models import Message, ReceivedMessage, SendResult
from mqclient.producing.producer import Producer

GROUP = "TOOLS_PRODUCER"
_EARLIEST = "earliest"

OneBroker = Annotated[str | None, Parameter(name=["--broker", "-b", "--brokerName"])]
OneQueue = Annotated[
    Whole | None, Parameter(name=["--queue", "-i", "--queueId", "--qid"], validator=Number(gte=0))
]


def send_message(
    *,
    topic: Topic,
    body: Annotated[str, Parameter(name=["--body", "-p"], allow_leading_hyphen=True)],
    keys: Annotated[str, Parameter(name=["--keys", "-k", "--key"])] = "",
    tags: Annotated[str, Parameter(name=["--tags", "-c"])] = "",
    broker: OneBroker = None,
    queue: OneQueue = None,
    common: Common = DEFAULTS,
) -> None:
    """Send one message and show where it was stored.

    For example:

        mqadmin sendMessage -t Orders -p hello -n 127.0.0.1:9876

    Parameters
    ----------
    body
        The message, as text.
    keys
        Keys to find it by, separated by blanks.
    tags
        Its tag.
    broker
        To a queue of this broker name.
    queue
        To this queue id.
    """
    message = Message(topic, body.encode(), keys=keys, tags=tags)
    try:
        result = anyio.run(_send, common, message, broker, queue)
    except NoRoute:
        # If no name server answers or no broker is there, this raises what says so.
        common.ask(lambda admin: admin.brokers.list())
        raise
    shown = {
        "topic": result.topic,
        "broker_name": result.broker_name,
        "queue_id": result.queue_id,
        "queue_offset": result.queue_offset,
        "message_id": result.message_id,
        "offset_message_id": result.offset_message_id,
    }
    headers = ("BROKER", "QUEUE", "OFFSET", "MESSAGE ID", "OFFSET MESSAGE ID")
    row = (
        result.broker_name,
        result.queue_id,
        result.queue_offset,
        result.message_id,
        result.offset_message_id,
    )
    common.show("sendMessage", shown, Table(headers, [row]))


async def _send(
    common: Common, message: Message, broker: str | None, queue_id: int | None
) -> SendResult:
    async with Producer(
        common.namesrv,
        GROUP,
        timeout_s=common.timeout_s,
        user=common.user,
        secret=common.any_secret(),
        tls=common.encryption(),
    ) as producer:
        if broker is None and queue_id is None:
            return await producer.send(message)
        queues = await producer.prepare(message.topic)
        wanted = [
            queue
            for queue in queues
            if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
        ]
        if wanted:
            return await producer.send(message, selector=lambda _queues, _message: wanted[0])
    there = ", ".join(f"{queue.broker_name}/{queue.queue_id}" for queue in queues)
    raise UnknownTarget(
        f"topic {message.topic} has no queue {'' if queue_id is None else f'{queue_id} '}"
        f"{f'on broker {broker} ' if broker else ''}to write to; it has {there}"
    )


def consume_message(
    *,
    topic: Topic,
    broker: OneBroker = None,
    queue: OneQueue = None,
    offset: str = _EARLIEST,
    count: Annotated[Whole, Parameter(name=["--count", "-c"], validator=Number(gte=1))] = 128,
    common: Common = DEFAULTS,
) -> None:
    """Print messages of a topic, queue by queue, without consuming them for any group.

    For example:

        mqadmin consumeMessage -t Orders -n 127.0.0.1:9876

    Parameters
    ----------
    broker
        Only from this broker name.
    queue
        Only from this queue id.
    offset
        Where to begin in each queue: earliest, a queue offset, or -N for the last N messages.
    count
        At most this many messages.
    """
    begin = parse_offset(offset)

    async def read(admin: Admin) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        for one in _chosen(await admin.topics.status(topic), broker, queue):
            if len(found) > count:
                break
            start, left = first_offset(one, begin), count + 1 - len(found)
            found += await admin.messages.read(topic, one.broker_name, one.queue_id, start, left)
        return found

    _show("consumeMessage", common.ask(read), common, count, "-c")


def print_msg(
    *,
    topic: Topic,
    tags: Annotated[str, Parameter(name=["--tags", "-s", "--subExpression"])] = "*",
    begin: Begin = "0",
    end: End = "now",
    count: Annotated[Whole, Parameter(name="--count", validator=Number(gte=1))] = 1024,
    common: Common = DEFAULTS,
) -> None:
    """Print the messages of a topic that were stored within a time, without consuming them.

    For example:

        mqadmin printMsg -t Orders -n 127.0.0.1:9876

    Parameters
    ----------
    tags
        Only messages with one of these tags: "*", or "TagA || TagB".
    count
        At most this many messages.
    """
    begin_ms, end_ms = parse_bound(begin), parse_bound(end)
    try:
        wanted = parse_subscription(topic, tags, 0).tags_set
    except BadInput as error:
        raise ConfigError(f"-s: {error}") from error

    def is_before_end(message: ReceivedMessage) -> bool:
        return message.store_timestamp_ms <= end_ms

    def is_wanted(message: ReceivedMessage) -> bool:
        return is_before_end(message) and (not wanted or message.tags in wanted)

    async def read(admin: Admin) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        for one in (await admin.topics.status(topic)).queues:
            queue = MessageQueue(topic, one.broker_name, one.queue_id)
            at = await admin.messages.offset_at(queue, begin_ms)
            while at < one.max_offset and len(found) <= count:
                chunk = await admin.messages.read(
                    topic, one.broker_name, one.queue_id, at, limits.PRINTED_AT_ONCE_MAX
                )
                found += filter(is_wanted, chunk)
                if not chunk or not is_before_end(chunk[-1]):
                    break
                at = chunk[-1].queue_offset + 1
        return found

    _show("printMsg", common.ask(read), common, count, "--count")


def list_scheduled(
    *,
    begin: Annotated[
        str, Parameter(name=["--begin", "-b", "--beginTimestamp"], allow_leading_hyphen=True)
    ] = "0",
    count: Annotated[
        Whole, Parameter(name=["--count", "-c"], validator=Number(gte=1))
    ] = limits.SCHEDULED_AT_ONCE,
    common: Common = DEFAULTS,
) -> None:
    """Show the messages that wait for their time: when they are due, and where they will arrive.

    The table also shows how each message is repeated.

    For example:

        mqadmin listScheduled -n 127.0.0.1:9876

    Parameters
    ----------
    begin
        Due at this time or later: now, milliseconds since 1970, or a local time.
    count
        At most this many, the earliest first; brokers show 1024 at most.
    """
    begin_ms = parse_bound(begin)
    every = common.ask(lambda admin: admin.messages.scheduled(begin_ms=begin_ms, count=count + 1))
    found, left_out = first_of(every, count, "-c")
    if len(found) >= limits.SCHEDULED_MAX:
        left_out = [f"brokers show {limits.SCHEDULED_MAX} at most: begin later (-b) to see more"]
    headers = ("DUE", "REPEATS", "TO TOPIC", "BROKER", "SENT", "KEYS", "MESSAGE ID", "BODY")
    rows = [
        (
            moment(each.due_ms),
            each.repeats,
            each.to_topic,
            each.broker_name,
            moment(each.store_timestamp_ms),
            each.keys,
            each.message_id,
            each.text,
        )
        for each in found
    ]
    table = Table(headers, rows, [plural(len(rows), "delayed message")], left_out)
    common.show("listScheduled", found, table)


def _chosen(status: TopicStatus, broker: str | None, queue: int | None) -> list[QueueStatus]:
    """The queues that are meant. Raises UnknownTarget if there is none."""
    chosen = [
        one
        for one in status.queues
        if broker in (None, one.broker_name) and queue in (None, one.queue_id)
    ]
    if not chosen:
        there = ", ".join(f"{one.broker_name}/{one.queue_id}" for one in status.queues)
        raise UnknownTarget(
            f"topic {status.topic} has no queue {'' if queue is None else f'{queue} '}"
            f"{f'on broker {broker} ' if broker else ''}to read; it has {there or 'none'}"
        )
    return chosen


def _show(
    command: str, found: list[ReceivedMessage], common: Common, count: int, option: str
) -> None:
    """A row for each of the first `count` messages."""
    messages, left_out = first_of(found, count, option)
    views = [MessageView.of(message) for message in messages]
    headers = ("BROKER", "QUEUE", "OFFSET", "STORED", "TAGS", "KEYS", "MESSAGE ID", "BODY")
    rows = [
        (
            view.broker_name,
            view.queue_id,
            view.queue_offset,
            moment(view.store_timestamp_ms),
            view.tags,
            view.keys,
            view.message_id,
            view.text,
        )
        for view in views
    ]
    table = Table(headers, rows, [plural(len(rows), "message")], left_out)
    common.show(command, views, table)


def parse_offset(text: str) -> int | None:
    """Offset to begin at in a queue: None for its first message, below 0 counted from its end."""
    if text == _EARLIEST:
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(
            f"--offset is {text!r}; it must be {_EARLIEST}, a queue offset, or -N for the last N"
        ) from None


def first_offset(queue: QueueStatus, begin: int | None) -> int:
    """The offset in this queue that `begin` stands for."""
    if begin is None:
        return queue.min_offset
    return max(queue.min_offset, begin if begin >= 0 else queue.max_offset + begin)
