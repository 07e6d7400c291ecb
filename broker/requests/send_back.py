"""CONSUMER_SEND_MSG_BACK (36): a consumer could not handle a message; it is to come again.

The message, named by its position in the log, is stored once more, in the group's retry topic or,
after too many tries, in its dead-letter topic. Every replica resolves a position to the same bytes,
so this works after a failover too. The delay level is kept with the message, but the copy can be
consumed at once: delayed delivery is not part of this broker yet.
"""

from __future__ import annotations

from broker.leader.append import Stored
from broker.leader.drafts import NewRecord, RecordsDraft
from broker.refusal import Refused
from broker.requests.core import Core
from broker.requests.retries import retry_destination
from dledger.errors import StorageError
from dledger.net import Connection
from dledger.remoting import message as names
from dledger.remoting.bodies import SubscriptionGroupConfig
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import ConsumerSendMsgBackHeader, decode_header
from dledger.remoting.record import BORN_HOST_IPV6, STORE_HOST_IPV6, Record

_HOST_BITS = BORN_HOST_IPV6 | STORE_HOST_IPV6
_FIRST_RETRY_LEVEL = 3


class SendBackHandler:
    """Answers 36."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def send_back(self, request: Command, connection: Connection) -> Command | None:
        """Store the copy; answered once it can be pulled."""
        core = self._core
        header = decode_header(ConsumerSendMsgBackHeader, request)
        group = core.machine.groups.get(header.group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the group {header.group!r} does not exist",
            )
        if group.retry_queue_nums <= 0:
            return request.reply()
        try:
            record = core.record_at(header.offset)
        except StorageError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        topic = _destination(group, header, record)
        core.definitions.topic_for_send(topic, None)
        copy = _copy(record, header)
        draft = RecordsDraft([copy], topic, 0, core.assignments, core.store_host)

        def done(outcome: Stored | Refused) -> None:
            if isinstance(outcome, Refused):
                core.replies.refuse(request, connection, outcome)
            else:
                core.replies.send(request, connection, request.reply())

        core.appender.append(draft, None, done)
        return None


def _destination(
    group: SubscriptionGroupConfig, header: ConsumerSendMsgBackHeader, record: Record
) -> str:
    times_max = 0 if header.delay_level < 0 else header.max_reconsume_times
    return retry_destination(group, record.reconsume_times, times_max)


def _copy(record: Record, header: ConsumerSendMsgBackHeader) -> NewRecord:
    properties = names.properties_decode(record.properties)
    properties.setdefault(names.RETRY_TOPIC, record.topic)
    own_id = names.offset_message_id(record.store_host, record.physical_offset)
    properties.setdefault(names.ORIGIN_MESSAGE_ID, header.origin_msg_id or own_id)
    level = header.delay_level or _FIRST_RETRY_LEVEL + record.reconsume_times
    if level > 0:
        properties[names.DELAY] = str(level)
    return NewRecord(
        body=bytes(record.body),
        properties=names.properties_encode(properties),
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        flag=record.flag,
        sys_flag=record.sys_flag & ~_HOST_BITS,
        reconsume_times=record.reconsume_times + 1,
    )
