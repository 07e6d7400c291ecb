"""The request for a batch, and the acknowledgement in the broker's answer. Pure.

Finished records go as PRODUCE, those of a named producer as WRITE_ONCE. A delayed or half message
is sent by itself, as stock clients do (SEND_MESSAGE_V2): the broker decides where it waits, so the
broker makes the record. RocketMQ's brokers make all records: a batch for them is of one queue, and
goes as stock clients send it (SEND_BATCH_MESSAGE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.errors import BadInput
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    ProduceHeader,
    ProduceResponseHeader,
    SendMessageResponseHeader,
    SendMessageV2Header,
    WriteOnceHeader,
    WriteOnceResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.message import (
    DEFAULT_TOPIC,
    BatchItem,
    batch_encode,
    offset_message_id_decode,
)
from dledger.remoting.record import Record, walk
from mqclient import limits
from mqclient.producing.batch import Ack, Batch

if TYPE_CHECKING:
    from mqclient.producing.naming import Claim


def request_for(
    batch: Batch, producer_group: str, claim: Claim | None = None, *, to_stock: bool = False
) -> Command:
    """The batch as a request: the same body at every try. `claim` is a named producer's; `to_stock`
    tells that the brokers are RocketMQ's."""
    body = batch.freeze()
    if claim is not None and claim.epoch is not None and batch.delivery.stamp is not None:
        stream, sequence = batch.delivery.stamp
        named = WriteOnceHeader(
            producer_name=claim.named.name,
            epoch=claim.epoch,
            stream=stream,
            sequence=sequence,
            parts=[(batch.topic, len(body), batch.run_counts)],
            group="",
            moves=[],
        )
        return Command(RequestCode.WRITE_ONCE, encode_header(named), body)
    if batch.kind.waits_at_broker or (to_stock and batch.count == 1):
        return _send(Record(body), producer_group)
    if to_stock:
        starts = walk(body)
        ends = [*starts[1:], len(body)]
        pieces = map(memoryview(body).__getitem__, map(slice, starts, ends))
        return _send_batch([*map(Record, pieces)], producer_group)
    header = ProduceHeader(topic=batch.topic, producer_group=producer_group, runs=batch.run_counts)
    return Command(RequestCode.PRODUCE, encode_header(header), body)


def acknowledgement(batch: Batch, answer: Command, server: str, *, from_stock: bool = False) -> Ack:
    """The acknowledgement in a successful answer. Raises BadInput if it can't be read."""
    if batch.kind.waits_at_broker or from_stock:
        sent = decode_header(SendMessageResponseHeader, answer)
        positions = [offset_message_id_decode(each)[2] for each in sent.msg_id.split(",")]
        if len(positions) != batch.count:
            raise BadInput(f"{len(positions)} message ids for {batch.count} messages")
        offsets = dict.fromkeys(batch.runs, sent.queue_offset)
        return Ack(positions[0], offsets, server, sent.recall_handle or "", tuple(positions))
    if batch.delivery.stamp is not None:
        written = decode_header(WriteOnceResponseHeader, answer)
        # The place of a repeat is unknown once the log has dropped its first copy.
        known = dict(written.offsets) or dict.fromkeys(batch.runs, -1)
        return Ack(written.position, _of_each(batch, known), server)
    header = decode_header(ProduceResponseHeader, answer)
    return Ack(header.position, _of_each(batch, dict(header.offsets)), server)


def _of_each(batch: Batch, offsets: dict[int, int]) -> dict[int, int]:
    """The offsets, one for each queue of the batch. Raises BadInput if one has none."""
    if not batch.runs.keys() <= offsets.keys():
        raise BadInput(f"offsets of the queues {[*offsets]} for messages of {[*batch.runs]}")
    return offsets


def _send_batch(records: list[Record], producer_group: str) -> Command:
    """Records of one queue, with the head of the first."""
    items = [BatchItem(each.body, bytes(each.properties), each.flag) for each in records]
    header = _header(records[0], producer_group, "", is_batch=True)
    return Command(RequestCode.SEND_BATCH_MESSAGE, encode_header(header), batch_encode(items))


def _send(record: Record, producer_group: str) -> Command:
    header = _header(record, producer_group, bytes(record.properties).decode())
    return Command(RequestCode.SEND_MESSAGE_V2, encode_header(header), bytes(record.body))


def _header(
    record: Record, producer_group: str, properties: str, *, is_batch: bool | None = None
) -> SendMessageV2Header:
    return SendMessageV2Header(
        a=producer_group,
        b=record.topic,
        c=DEFAULT_TOPIC,
        d=limits.QUEUES_WANTED_MAX,
        e=record.queue_id,
        f=record.sys_flag,
        g=record.born_timestamp_ms,
        h=record.flag,
        i=properties,
        m=is_batch,
    )
