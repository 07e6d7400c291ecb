"""Messages that expire: which readers get them, and until when."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.message import BatchItem, batch_encode
from dledger.remoting.record import Record, encode_record
from mqbroker.requests.reading.queue_reading import read_queue
from mqbroker.state.derived.consume_queue import ConsumeQueue
from mqbroker.state.derived.file_pool import FilePool
from mqbroker.state.derived.indexing import index_records
from mqbroker.state.derived.units import UNIT, expired, lives
from mqbroker.state.machine import Machine
from mqbroker.testing import served
from mqbroker.testing.leading import save
from mqbroker.testing.requests import (
    TIMEOUT_S,
    ask,
    heartbeat,
    pull_request,
    records,
    send_request,
)

from .test_popping import pop_request

FOUND = ResponseCode.SUCCESS
NO_MATCH = ResponseCode.PULL_RETRY_IMMEDIATELY
NONE = ResponseCode.PULL_NOT_FOUND


def unit_of(lives_on: int, stored_ms: int) -> np.ndarray:
    return np.array([(0, 100, 0, lives_on, 0, stored_ms)], UNIT)


@given(
    st.integers(0, 2_000_000_000_000),
    st.integers(-(10**14), 10**14) | st.integers(-100, 100),
    st.integers(-200, 200),
)
def test_none_expires_early_and_none_much_late(stored_ms: int, ttl_ms: int, off_ms: int) -> None:
    """A message expires 0 to 10 ms after its time, if that is within 400 days."""
    expires_ms = stored_ms + ttl_ms
    units = unit_of(lives(expires_ms, stored_ms), stored_ms)
    now_ms = max(expires_ms, stored_ms) + off_ms
    gone = expired(units, now_ms) is not None
    if off_ms < 0 and ttl_ms >= 0:
        assert not gone
    elif ttl_ms > 400 * 86_400_000:
        assert not (gone and now_ms < expires_ms)
    elif off_ms >= 10:
        assert gone


def test_what_has_no_time_never_expires() -> None:
    """Messages without a time never expire, nor do units of an earlier version."""
    assert lives(None, 5) == 0
    old = np.zeros(2, np.dtype([("before", "V16"), ("tags", ">i8"), ("stored", ">i8")]))
    old["tags"] = (-5, 7)
    units = old.view(UNIT)
    assert units["tags_code"].tolist() == [-5, 7]
    assert expired(units, 1 << 60) is None


def record_with(properties: bytes, topic: bytes = b"T", stored_ms: int = 1000) -> bytes:
    return encode_record(
        topic=topic,
        queue_id=0,
        body=b"x",
        properties=properties,
        born_timestamp_ms=0,
        born_host=bytes(8),
        store_timestamp_ms=stored_ms,
    )


@pytest.mark.parametrize(
    ("properties", "topic", "field"),
    [
        (b"EXPIRES_AT_MS\x011500\x02", b"T", 51),
        (b"EXPIRES_AT_MS\x01900\x02", b"T", 1),
        (b"EXPIRES_AT_MS\x011500\x02", b"%RETRY%C", 51),
        (b"EXPIRES_AT_MS\x011500\x02", b"%DLQ%C", 0),
        (b"MY_EXPIRES_AT_MS\x011500\x02", b"T", 0),
        (b"EXPIRES_AT_MS\x01soon\x02", b"T", 0),
        (b"EXPIRES_AT_MS\x01-5\x02", b"T", 0),
        (b"EXPIRES_AT_MS\x01\x02", b"T", 0),
        (b"EXPIRES_AT_MS\x01" + b"9" * 5000 + b"\x02", b"T", 0),
        (b"EXPIRES_AT_MS\x01999999999999999999\x02", b"T", 0),
        (b"", b"T", 0),
    ],
)
def test_the_property_is_read_from_any_record(properties: bytes, topic: bytes, field: int) -> None:
    """The time is read from any record; values that are not times, and dead letters, have none."""
    index = index_records(memoryview(record_with(properties, topic)), 0)
    assert index.runs[0].decoded()["lives"].tolist() == [field]


def queue_of(directory: Path, lives_on: list[int]) -> ConsumeQueue:
    rows = [(100 * n, 100, 0, each, n % 2, 1000) for n, each in enumerate(lives_on)]
    queue = ConsumeQueue(directory, FilePool())
    queue.append(np.array(rows, UNIT).tobytes())
    return queue


def test_a_pull_passes_over_what_has_expired(tmp_path: Path) -> None:
    """A pull leaves out expired messages as a filter does, and says where to go on."""
    queue = queue_of(tmp_path, [0, 2, 0, 2, 2, 101] + [2] * 5000)

    def pull(offset: int, now_ms: int, messages_max: int = 32) -> tuple[int, int, int, bool]:
        found = read_queue(
            queue,
            offset,
            messages_max=messages_max,
            bytes_max=1 << 20,
            selection=None,
            now_ms=now_ms,
        )
        return found.code, found.messages, found.next_offset, found.expiring

    assert pull(0, 1000) == (FOUND, 32, 32, True)
    assert pull(0, 1010) == (FOUND, 3, 5006, True)
    assert pull(0, 1010, 2) == (FOUND, 2, 5, False)
    assert pull(0, 2500) == (FOUND, 2, 5006, False)
    assert pull(3, 2500) == (NO_MATCH, 0, 5006, False)
    assert pull(5006, 2500) == (NONE, 0, 5006, False)


async def send(peer: Peer, properties: str, body: bytes = b"x") -> None:
    answer = await peer.request(send_request(body, i=properties, e="0"), TIMEOUT_S)
    assert answer.code == 0


async def pulled(peer: Peer, offset: int = 0, **changed: str) -> list[bytes]:
    answer = await peer.request(pull_request(0, offset, **changed), TIMEOUT_S)
    return [bytes(each.body) for each in _records(answer)]


def _records(answer: Command) -> list[Record]:
    return records(answer) if answer.code == FOUND else []


async def test_stock_consumers_are_not_given_what_has_expired(tmp_path: Path) -> None:
    """Stock consumers get no expired messages, sent, read or restarted in any way; tools do."""
    now_ms = 1_790_000_000_000

    def clock_ms() -> int:
        return now_ms

    async with served(tmp_path, clock_ms=clock_ms) as (broker, peer):
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("m"))
        await send(peer, "", b"lasts")
        await send(peer, f"EXPIRES_AT_MS\x01{now_ms + 500}\x02", b"short")
        await send(peer, f"a\x01b\x02EXPIRES_AT_MS\x01{now_ms + 5000}\x02", b"long")
        items = [
            BatchItem(b"b1", f"EXPIRES_AT_MS\x01{now_ms + 500}\x02".encode()),
            BatchItem(b"b2", b"x\x01y\x02"),
        ]
        body = batch_encode(items)
        await peer.request(send_request(body, RequestCode.SEND_BATCH_MESSAGE, e="0"), TIMEOUT_S)
        every = [b"lasts", b"short", b"long", b"b1", b"b2"]
        assert await pulled(peer) == every
        now_ms += 1000
        assert await pulled(peer) == [b"lasts", b"long", b"b2"]
        assert await pulled(peer, consumerGroup="TOOLS_CONSUMER") == every
        popped = await peer.request(pop_request(), TIMEOUT_S)
        assert [bytes(each.body) for each in records(popped)] == [b"lasts", b"long", b"b2"]
        broker.ledger.follow()
        broker.ledger.lead()
        now_ms += 5000
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("m"))
        assert await pulled(peer) == [b"lasts", b"b2"]
        save(broker.machine)
        again = Machine(tmp_path)
        assert again.restore() is None
        queue = again.queues.get("Orders", 0)
        assert queue is not None
        assert queue.read(0, 9)["lives"].tolist() == [0, 51, 501, 51, 0]
        again.close()


async def test_a_filter_and_an_end_both_count(tmp_path: Path) -> None:
    """A pull with a filter, by tag or by SQL92, leaves out expired messages, too."""
    now_ms = 1_790_000_000_000
    async with served(tmp_path, clock_ms=lambda: now_ms) as (_, peer):
        await send(peer, "TAGS\x01A\x02a\x011\x02", b"1")
        await send(peer, f"TAGS\x01A\x02a\x011\x02EXPIRES_AT_MS\x01{now_ms}\x02", b"2")
        await send(peer, "TAGS\x01B\x02a\x012\x02", b"3")
        assert await pulled(peer, subscription="A") == [b"1"]
        sql = {"subscription": "a = 1", "expressionType": "SQL92"}
        assert await pulled(peer, **sql) == [b"1"]
