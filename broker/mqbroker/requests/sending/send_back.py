"""CONSUMER_SEND_MSG_BACK (36): a consumer could not handle a message, and wants it again later.

The request names the message by its position in the log. The message is stored once more: for the
group's retry topic, where it arrives when its delay is over; or after too many tries in the group's
dead-letter topic, at once. The delay is a level's, or one in milliseconds, which only our own
clients ask for. They also name the delivery of a popped message: then it is acknowledged by the
same entry. Every replica resolves a position to the same bytes, so this works after a failover too.
"""

from __future__ import annotations

from functools import partial

from dledger.net import Connection
from dledger.observe import get_logger
from dledger.remoting import headers
from dledger.remoting import message as names
from dledger.remoting.bodies import SubscriptionGroupConfig
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.numbers import INT32_MAX
from dledger.remoting.record import Record
from mqbroker import limits
from mqbroker.leader.appending.drafts import NewRecord, RecordsDraft
from mqbroker.leader.appending.in_flight import Stored
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.groups.fencing import Fence
from mqbroker.requests.later import Later
from mqbroker.requests.needs import by_leader
from mqbroker.requests.permissions import check_writable
from mqbroker.requests.popping.giving_up import GivingUp
from mqbroker.requests.popping.settling import Row
from mqbroker.requests.sending.copies import copied
from mqbroker.requests.sending.retries import retry_destination
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.groups.places import is_of_life
from mqbroker.state.topics import retry_topic

_FIRST_RETRY_LEVEL = 3

_log = get_logger("mqbroker.requests.sending.send_back")


class SendBackHandler:
    """Stores messages that were sent back, as copies in retry or dead letter topics."""

    def __init__(self, core: Core, fence: Fence, giving_up: GivingUp) -> None:
        self._core = core
        self._fence = fence
        self._giving_up = giving_up

    @by_leader(RequestCode.CONSUMER_SEND_MSG_BACK, rights=rights.SENT_BACK)
    def send_back(self, request: Command, _: Connection) -> Command | Later[Stored | None]:
        """Store the copy; answered once it is in the log."""
        core = self._core
        header = decode_header(headers.ConsumerSendMsgBackHeader, request)
        group = core.definitions.group(header.group)
        if group.retry_queue_nums <= 0:
            return request.reply()
        record = core.asked_record(header.offset)
        if header.lock_token is not None:
            key = QueueKey(header.group, record.topic, record.queue_id)
            self._fence.check(key, header.lock_token)
        known = core.machine.topics.get(record.topic)
        if known is not None and not is_of_life(core.machine, record.topic, header.offset):
            # The topic was deleted, and made again: the message ended with it.
            late = headers.ConsumerSendMsgBackResponseHeader(late=1)
            is_asked = header.pop_time is not None
            return request.reply(
                ext=encode_header(late) if is_asked else {},
                remark=f"{record.topic!r} was made again since: nothing was stored",
            )
        wanted = _destination(group, header, record)
        destination = core.definitions.topic_for_send(wanted, None)
        check_writable(destination, core.permission)
        row, tried = None, 1
        if header.pop_time is not None:
            place = (record.topic, record.queue_id, header.pop_time, record.queue_offset)
            row = Row(header.group, *place, 1)
            tried = self._giving_up.deliveries(row)
        draft = self._copy(header, record, wanted, tried)
        core.definitions.ensure_topic(destination)

        def answer(stored: Stored | None) -> Command:
            ext = {}
            if header.pop_time is not None:
                ext = encode_header(
                    headers.ConsumerSendMsgBackResponseHeader(late=int(stored is None))
                )
            if stored is not None:
                core.rates.sent_back(header.group, record.topic)
                if wanted != retry_topic(header.group):
                    properties = names.properties_decode(record.properties)
                    topic = properties.get(names.RETRY_TOPIC, record.topic)
                    core.rates.traffic.give_up(header.group, topic)
            return request.reply(ext=ext)

        if row is None:
            return Later(partial(core.appender.append, draft, None), answer, (wanted,))
        return Later(partial(self._giving_up.give_up, row, draft), answer, (wanted,))

    def _copy(
        self, header: headers.ConsumerSendMsgBackHeader, record: Record, wanted: str, tried: int
    ) -> RecordsDraft:
        """The message as it is stored once more, for the topic `wanted`; this record of it was
        tried so often."""
        core = self._core
        added = _added(record, header, dead=wanted != retry_topic(header.group))
        topic, queue_id, added = core.detour(wanted, 0, added)
        properties, left_out = copied(record.properties, names.DELAYS, added)
        if left_out:
            _log.warning("copy without properties", offset=header.offset, left_out=left_out)
        copy = NewRecord.copy(record)._replace(
            properties=properties,
            # A record can't hold a higher count; the group's limit is far lower.
            reconsume_times=min(record.reconsume_times + tried, INT32_MAX),
        )
        return RecordsDraft([copy], topic, [(queue_id, 1)], core.assignments, core.store_host)


def _destination(
    group: SubscriptionGroupConfig, header: headers.ConsumerSendMsgBackHeader, record: Record
) -> str:
    times_max = 0 if header.delay_level < 0 else header.max_reconsume_times
    return retry_destination(group, record.reconsume_times, times_max)


def _added(
    record: Record, header: headers.ConsumerSendMsgBackHeader, *, dead: bool
) -> dict[str, str]:
    """Properties that are added to the copy: the message's origin, and how long the copy waits."""
    added = {}
    if not names.has_property(record.properties, names.RETRY_TOPIC):
        added[names.RETRY_TOPIC] = record.topic
    if not names.has_property(record.properties, names.ORIGIN_MESSAGE_ID):
        given = header.origin_msg_id or ""
        is_id = given.isalnum() and len(given) <= limits.MESSAGE_ID_CHARACTERS_MAX
        own_id = names.offset_message_id(record.store_host, record.physical_offset)
        added[names.ORIGIN_MESSAGE_ID] = given if is_id else own_id
    if not dead and (header.delay_millis or 0) > 0:
        added[names.TIMER_DELAY_MS] = str(header.delay_millis)
    elif not dead:
        level = header.delay_level or _FIRST_RETRY_LEVEL + record.reconsume_times
        added[names.DELAY] = str(level)
    return added
