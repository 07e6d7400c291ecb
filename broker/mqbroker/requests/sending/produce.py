"""PRODUCE (9001): the fast path. A producer of ours sends finished records, and the leader fills in
only what depends on their place in the log. One request is one entry, whatever queues it touches.
"""

from __future__ import annotations

from functools import partial

from dledger.buffers import Buffer
from dledger.errors import RecordError
from dledger.limits import PROPERTIES_SENT_BYTES_MAX
from dledger.net import Connection
from dledger.remoting import headers
from dledger.remoting.bodies import TopicConfig
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.names import UNSENDABLE
from dledger.remoting.record import HOST_IPV4_BYTES, Record
from dledger.remoting.record.batch import RecordBatch
from dledger.remoting.record.lone import LoneRecord, parse_records
from dledger.trust.rights import PUB, topic
from mqbroker import limits
from mqbroker.flow.control import Arriving
from mqbroker.leader.appending.drafts import BatchDraft, NewRecord, PlainDraft, RecordsDraft
from mqbroker.leader.appending.in_flight import Stored
from mqbroker.refusal import illegal_message, no_permission, no_queue, of_broker
from mqbroker.requests.core import Core
from mqbroker.requests.later import Later
from mqbroker.requests.needs import by_leader
from mqbroker.requests.sending.keys import check_batch, words_in_batch
from mqbroker.state.attributes import check_records_type
from mqbroker.state.dedup import dedup_key


class ProduceHandler:
    """Answers PRODUCE when the messages of the batch can be pulled."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @by_leader(RequestCode.PRODUCE, rights=topic(PUB))
    def produce(self, request: Command, _: Connection) -> Later[Stored]:
        """Append the batch; the answer follows when it can be pulled."""
        core = self._core
        header = decode_header(headers.ProduceHeader, request)
        batch = _parse(core, request.payload, header)
        check_batch(batch)
        topic = check_sendable(core, header)
        draft = _draft(core, batch, header)
        unique_key = batch.first_unique_key
        key = dedup_key(header.topic.encode(), unique_key.encode()) if unique_key else None

        def answer(stored: Stored) -> Command:
            response = headers.ProduceResponseHeader(
                position=stored.positions[0],
                offsets=list(stored.offsets),
                store_timestamp=stored.store_timestamp_ms,
                duplicate=stored.duplicate,
            )
            return request.reply(ext=encode_header(response))

        admit = partial(core.admit, Arriving(topic, len(draft.starts), draft.size))
        append = partial(core.appender.append, draft, key, admit=admit, topic=header.topic)
        return Later(append, answer, (header.topic,))


def check_sendable(core: Core, header: headers.ProduceHeader) -> TopicConfig:
    """The topic of a batch, as it exists or is to be made. Refused if it takes no such messages."""
    topic = core.definitions.topic_for_send(header.topic, None)
    _check_queues(header, topic)
    if core.config.enable_topic_message_type_check:
        check_records_type(header.topic, topic.attributes)
    return topic


def draft_of(core: Core, records: Buffer, header: headers.ProduceHeader) -> tuple[PlainDraft, int]:
    """A batch, checked but for its topic, and the words of its keys. Refused if it is none."""
    batch = _parse(core, records, header)
    return _draft(core, batch, header), words_in_batch(batch)


def draft_of_checked(core: Core, records: Buffer, header: headers.ProduceHeader) -> PlainDraft:
    """A batch that was checked when it was staged, whatever limits are lower by now."""
    return _draft(core, parse_records(records, header.topic.encode(), header.runs), header)


def _draft(
    core: Core, batch: RecordBatch | LoneRecord, header: headers.ProduceHeader
) -> PlainDraft:
    """A draft of the batch's own bytes; or of new records, if an IPv6 store host takes more
    room."""
    parts = (header.topic, header.runs, core.assignments, core.store_host)
    if len(core.store_host) == HOST_IPV4_BYTES:
        return BatchDraft(batch, *parts)
    view = memoryview(batch.buffer)
    records = [NewRecord.copy(Record(view[start:])) for start in batch.starts]
    return RecordsDraft(records, *parts)


def _parse(core: Core, records: Buffer, header: headers.ProduceHeader) -> RecordBatch | LoneRecord:
    if header.topic in UNSENDABLE:
        raise no_permission(of_broker(header.topic))
    count = sum(count for _, count in header.runs)
    if count > limits.MESSAGES_PER_BATCH_MAX:
        raise illegal_message(
            f"a batch of {count} messages; at most {limits.MESSAGES_PER_BATCH_MAX} are taken"
        )
    if len(header.runs) > limits.QUEUES_PER_TOPIC_MAX:
        raise illegal_message(
            f"a batch of {len(header.runs)} runs: sort it by queues; a topic has at most "
            f"{limits.QUEUES_PER_TOPIC_MAX}"
        )
    try:
        batch = parse_records(records, header.topic.encode(), header.runs)
    except RecordError as error:
        raise illegal_message(str(error)) from error
    _check_sizes(batch, core.config.max_message_size)
    return batch


def _check_queues(header: headers.ProduceHeader, topic: TopicConfig) -> None:
    for queue_id, _ in header.runs:
        if not 0 <= queue_id < topic.write_queue_nums:
            code = ResponseCode.INVALID_PARAMETER
            raise no_queue(header.topic, queue_id, topic.write_queue_nums, code)


def _check_sizes(batch: RecordBatch | LoneRecord, body_bytes_max: int) -> None:
    for start in batch.larger_than(min(body_bytes_max, PROPERTIES_SENT_BYTES_MAX)):
        record = Record(memoryview(batch.buffer)[start:])
        body_bytes, properties_bytes = len(record.body), len(record.properties)
        if body_bytes > body_bytes_max:
            raise illegal_message(
                f"a message body of {body_bytes} bytes is above maxMessageSize {body_bytes_max}"
            )
        if properties_bytes > PROPERTIES_SENT_BYTES_MAX:
            raise illegal_message(
                f"properties of {properties_bytes} bytes; at most {PROPERTIES_SENT_BYTES_MAX} are "
                "taken"
            )
