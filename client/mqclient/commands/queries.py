"""Commands of mqadmin that find messages: queryMsgById, queryMsgByKey, queryMsgByUniqueKey,
queryMsgByOffset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from dledger.errors import BadInput, ConfigError
from dledger.program.whole import Whole
from dledger.remoting.message import offset_message_id_decode
from mqclient.admin import Admin, UnknownTarget
from mqclient.admin.results import MessageView
from mqclient.commands.terminal.options import DEFAULTS, BrokerName, Common, Topic
from mqclient.commands.terminal.output import Table, moment, plural
from mqclient.commands.terminal.times import Begin, End, parse_bound
from mqclient.models import ReceivedMessage


def query_msg_by_id(
    *,
    message_id: Annotated[str, Parameter(name=["--msgId", "-i"])],
    topic: Annotated[str | None, Parameter(name=["--topic", "-t"])] = None,
    common: Common = DEFAULTS,
) -> None:
    """Show the message with an id: an offset message id or, with its topic, a unique key.

    For example:

        mqadmin queryMsgById -i 7F00000100002A9F0000000000000000 -n 127.0.0.1:9876

    Parameters
    ----------
    message_id
        As sendMessage shows them: the place where the message lies, or the key it was given.
    topic
        Its topic; only needed for a unique key.
    """

    if topic is None:
        try:
            offset_message_id_decode(message_id)
        except BadInput as error:
            raise ConfigError(f"-i: {error}; a unique key needs its topic, too (-t)") from error

    async def find(admin: Admin) -> Sequence[ReceivedMessage]:
        if topic is not None:
            try:
                return await admin.messages.by_unique_key(topic, message_id)
            except UnknownTarget as unknown:
                try:
                    offset_message_id_decode(message_id)
                except BadInput:
                    raise unknown from None
        return [await admin.messages.by_id(message_id)]

    _show("queryMsgById", common.ask(find), common)


def query_msg_by_key(
    *,
    topic: Topic,
    key: Annotated[str, Parameter(name=["--key", "-k", "--msgKey"])],
    begin: Begin = "0",
    end: End = "now",
    count: Annotated[
        Whole, Parameter(name=["--count", "-c", "--maxNum"], validator=Number(gte=1))
    ] = 64,
    common: Common = DEFAULTS,
) -> None:
    """Show the messages that carry a key.

    For example:

        mqadmin queryMsgByKey -t Orders -k order-17 -n 127.0.0.1:9876

    Parameters
    ----------
    key
        One of the keys that their sender gave them.
    count
        At most this many from each broker group.
    """
    begin_ms, end_ms = parse_bound(begin), parse_bound(end)
    found = common.ask(
        lambda admin: admin.messages.by_key(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, count=count
        )
    )
    _show("queryMsgByKey", found, common)


def query_msg_by_unique_key(
    *,
    topic: Topic,
    message_id: Annotated[str, Parameter(name=["--msgId", "-i"])],
    common: Common = DEFAULTS,
) -> None:
    """Show the message with a unique key; several if it was stored repeatedly.

    For example:

        mqadmin queryMsgByUniqueKey -t Orders -i 7F000001000018B4AAC20000000000

    Parameters
    ----------
    message_id
        The key that its producer's client gave it.
    """
    found = common.ask(lambda admin: admin.messages.by_unique_key(topic, message_id))
    _show("queryMsgByUniqueKey", found, common)


def query_msg_by_offset(
    *,
    topic: Topic,
    broker: BrokerName,
    queue: Annotated[
        Whole, Parameter(name=["--queue", "-i", "--queueId"], validator=Number(gte=0))
    ],
    offset: Annotated[Whole, Parameter(name=["--offset"], validator=Number(gte=0))],
    common: Common = DEFAULTS,
) -> None:
    """Show the message at an offset of a queue.

    For example:

        mqadmin queryMsgByOffset -t Orders -b broker-a -i 0 --offset 17

    Parameters
    ----------
    queue
        The queue id.
    offset
        The queue offset.
    """
    found = common.ask(lambda admin: admin.messages.read(topic, broker, queue, offset, 1))
    if not found or found[0].queue_offset != offset:
        raise UnknownTarget(
            f"queue {queue} of topic {topic!r} on {broker} has no message at offset {offset}: "
            f"mqadmin topicStatus -t {topic} shows what it holds"
        )
    _show("queryMsgByOffset", found, common)


def _show(command: str, messages: Sequence[ReceivedMessage], common: Common) -> None:
    """All that is known of each message: fields in rows."""
    views = [MessageView.of(message) for message in messages]
    rows = [(name, value) for view in views for name, value in _fields(view)]
    left_out = [f"left out: {what}" for what in getattr(messages, "left_out", ())]
    table = Table(("FIELD", "VALUE"), rows, [plural(len(views), "message")], left_out)
    common.show(command, views, table)


def _fields(view: MessageView) -> list[tuple[str, str]]:
    return [
        ("topic", view.topic),
        ("message id", view.message_id),
        ("offset message id", view.offset_message_id),
        ("broker, queue, offset", f"{view.broker_name}/{view.queue_id}/{view.queue_offset}"),
        ("log position", str(view.position)),
        ("tags", view.tags),
        ("keys", view.keys),
        ("born", f"{moment(view.born_timestamp_ms)} on {view.born_host}"),
        ("stored", f"{moment(view.store_timestamp_ms)} on {view.store_host}"),
        ("reconsumed", str(view.reconsume_times)),
        ("properties", " ".join(f"{k}={v}" for k, v in sorted(view.properties.items()))),
        ("body", view.text),
    ]
