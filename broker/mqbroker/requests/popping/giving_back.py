"""ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) and CHANGE_MESSAGE_INVISIBLETIME (200053).

A handle that is not (or no longer) that of a message's last delivery changes nothing, and is
answered with success, as RocketMQ does; clients of ours are told how many there were. The answer
comes when it is in the log.
"""

from __future__ import annotations

from functools import partial

from dledger.net import Connection
from dledger.remoting import headers
from dledger.remoting.bodies import BatchAck, BatchAckMessageBody, decode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.receipts import ORDERED_QUEUE, read_bits, read_receipt
from mqbroker import limits
from mqbroker.refusal import Refused, invalid, no_queue
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.later import Later
from mqbroker.requests.needs import by_leader
from mqbroker.requests.popping.asking import is_ours
from mqbroker.requests.popping.settling import Change, Outcome, Row
from mqbroker.requests.popping.waiting import Popping


class GivingBackHandler:
    """Answers requests that end deliveries, or change until when they are hidden."""

    def __init__(self, core: Core, popping: Popping) -> None:
        self._core = core
        self._popping = popping

    @by_leader(RequestCode.ACK_MESSAGE, rights=rights.CONSUME)
    def ack(self, request: Command, _: Connection) -> Later[Outcome]:
        """The message of a handle is done."""
        header = decode_header(headers.AckMessageHeader, request)
        self._check_place(header.topic, header.queue_id, header.offset)
        receipt = read_receipt(header.extra_info)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        row = Row(group, topic, queue_id, receipt.pop_time, header.offset, 1)
        return self._take_back(request, [row])

    @by_leader(RequestCode.BATCH_ACK_MESSAGE, rights=rights.BATCH_ACK)
    def ack_many(self, request: Command, _: Connection) -> Command | Later[Outcome]:
        """The messages of many handles are done."""
        body = decode_body(BatchAckMessageBody, request.payload)
        if not body.acks:
            raise Refused(ResponseCode.NO_MESSAGE, "the batch acknowledges no message")
        if len(body.acks) > limits.BATCH_ACKS_MAX:
            raise invalid(f"a batch of {len(body.acks)} rows is above {limits.BATCH_ACKS_MAX}")
        rows = [row for each in body.acks if (row := self._row(each)) is not None]
        if not rows:
            return self._settled(request, Outcome(0), 0)
        return self._take_back(request, rows)

    def _row(self, ack: BatchAck) -> Row | None:
        """The messages of one delivery; None if they are of no queue of ours."""
        group, topic = ack.c or ack.consumer_group, ack.t or ack.topic
        base = ack.so if ack.so is not None else ack.start_offset
        queue_id = ack.q if ack.q is not None else ack.queue_id
        fence = ack.pt if ack.pt is not None else ack.pop_time
        text = ack.b if ack.b is not None else ack.bit_set
        if not group or not topic or text is None:
            raise invalid("a row of the batch lacks its group, its topic or its bits")
        if base is None or queue_id is None or fence is None:
            raise invalid("a row of the batch lacks its queue, its first offset or its pop time")
        bits = read_bits(text, limits.BATCH_ACK_BITS_BYTES_MAX)
        queue = self._core.machine.queues.get(topic, queue_id)
        if queue is None or not bits or not 0 <= base < queue.end:
            return None
        return Row(group, topic, queue_id, fence, base, bits)

    def _take_back(self, request: Command, rows: list[Row]) -> Later[Outcome]:
        asked = sum(row.bits.bit_count() for row in rows)
        settle = partial(self._popping.settling.ack, rows)
        return Later(settle, lambda outcome: self._settled(request, outcome, asked))

    @staticmethod
    def _settled(request: Command, outcome: Outcome, asked: int) -> Command:
        if not is_ours(request):
            return request.reply()
        return request.reply(
            ext=encode_header(headers.AckMessageResponseHeader(asked - outcome.found))
        )

    @by_leader(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, rights=rights.CONSUME)
    def change(self, request: Command, _: Connection) -> Later[Outcome]:
        """The message of a handle is hidden for another time, from now on."""
        header = decode_header(headers.ChangeMessageInvisibletimeHeader, request)
        self._check_place(header.topic, header.queue_id, header.offset)
        receipt = read_receipt(header.extra_info)
        if not 0 <= header.invisible_time <= limits.POP_INVISIBLE_S_MAX * 1000:
            raise invalid(
                f"invisibleTime {header.invisible_time} ms is not within 0 and "
                f"{limits.POP_INVISIBLE_S_MAX * 1000}"
            )
        bits = 1 if header.bits is None else read_bits(header.bits, limits.BATCH_ACK_BITS_BYTES_MAX)
        if not bits:
            raise invalid("no bit of `bits` is set")
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        row = Row(group, topic, queue_id, receipt.pop_time, header.offset, bits)
        now_ms = self._core.assignments.now_ms()
        change = Change(
            row,
            now_ms + header.invisible_time,
            uncounted=header.suspend is True,
            # RocketMQ keeps the time of an ordered delivery, which its other messages have too.
            keeps_fence=receipt.ordered or header.keep is True,
        )

        def answer(outcome: Outcome) -> Command:
            response = headers.ChangeMessageInvisibletimeResponseHeader(
                pop_time=outcome.fence,
                invisible_time=header.invisible_time if outcome.found else 0,
                revive_qid=ORDERED_QUEUE if receipt.ordered else 0,
                late=bits.bit_count() - outcome.found if is_ours(request) else None,
            )
            return request.reply(ext=encode_header(response))

        return Later(partial(self._popping.settling.change, change), answer)

    def _check_place(self, topic: str, queue_id: int, offset: int) -> None:
        queues = self._core.definitions.topic(topic).read_queue_nums
        if not 0 <= queue_id < queues:
            raise no_queue(topic, queue_id, queues, ResponseCode.MESSAGE_ILLEGAL)
        queue = self._core.machine.queues.get(topic, queue_id)
        low, high = (queue.begin, queue.end) if queue is not None else (0, 0)
        if not low <= offset < high:
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"there is no message {offset} in queue {queue_id} of {topic!r}, which has "
                f"{low} to {high}",
            )
