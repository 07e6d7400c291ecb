"""Offsets by place or time: of the oldest message, of the next to come, of the first of a time.

Brokers answer in the time at which they stored a message, by their own clock.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from dledger.errors import BadInput
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
    Header,
    SearchOffsetByTimestampHeader,
    SearchOffsetByTimestampResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from mqclient import limits
from mqclient.connection.answers import checked_offset
from mqclient.connection.leaders import LeaderFinder

#: The oldest message, the next one to come, or the first that was stored at or after a time.
Start: TypeAlias = Literal["first", "last"] | datetime


def check_start(start: Start, what: str) -> Start:
    """Raises BadInput for another word, and for a time without a time zone."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise BadInput(f"{what}={start} has no time zone: give one, as in datetime.now(UTC)")
        if start.timestamp() < 0:
            raise BadInput(f"{what}={start} is before 1970")
    elif start not in ("first", "last"):
        raise BadInput(f"{what}={start!r}: expected 'first', 'last' or a time")
    return start


async def offset_of(finder: LeaderFinder, queue: MessageQueue, start: Start) -> int:
    """The offset in a queue. Raises Refused, or another ClientError or RemotingError."""
    topic, queue_id = queue.topic, queue.queue_id

    async def ask(code: RequestCode, header: Header) -> Command:
        command = Command(code, encode_header(header))
        what = f"{code.name} of {queue}"
        place = (queue.broker_name, topic)
        return await finder.granted(what, *place, command, limits.REQUEST_TIMEOUT_S)

    if isinstance(start, datetime):
        time_ms = int(start.timestamp() * 1000)
        search = SearchOffsetByTimestampHeader(topic=topic, queue_id=queue_id, timestamp=time_ms)
        answer = await ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
        offset = decode_header(SearchOffsetByTimestampResponseHeader, answer).offset
    elif start == "first":
        oldest = GetMinOffsetHeader(topic=topic, queue_id=queue_id)
        answer = await ask(RequestCode.GET_MIN_OFFSET, oldest)
        offset = decode_header(GetMinOffsetResponseHeader, answer).offset
    else:
        answer = await ask(
            RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(topic=topic, queue_id=queue_id)
        )
        offset = decode_header(GetMaxOffsetResponseHeader, answer).offset
    return checked_offset(offset, f"where {start} is in {queue}")
