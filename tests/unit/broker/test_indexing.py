"""What an entry of messages adds to the queues, compared with reading it record by record."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.remoting.message import host_bytes, properties_encode, tags_code
from dledger.remoting.record import Record, encode_record, walk
from mqbroker.state.aside import Unusable
from mqbroker.state.dedup import StoredCopy, dedup_key
from mqbroker.state.derived.indexing import EntryIndex, index_records

HOST4, HOST6 = host_bytes("10.0.0.1", 99), host_bytes("::1", 99)
POSITION = 4096 + 48


class Message(NamedTuple):
    body: bytes
    tag: str | None
    key: str | None
    ipv6: bool
    expires_ms: int | None = None


messages = st.builds(
    Message,
    body=st.binary(max_size=40),
    tag=st.sampled_from([None, "TagA", "TagB", "ä", "TAGS"]),
    key=st.sampled_from([None, "k1", "KEY2"]),
    ipv6=st.booleans(),
    expires_ms=st.sampled_from([None, None, 0, 77, 78, 87, 1077]),
)
runs = st.lists(
    st.tuples(st.integers(0, 5), st.lists(messages, min_size=1, max_size=4)),
    min_size=1,
    max_size=5,
)


def encode(runs: list[tuple[int, list[Message]]], reconsume_times: int = 0) -> memoryview:
    """An entry's body as a leader writes it: offsets of each queue go up from 1000 * queue id."""
    out = bytearray()
    ends: dict[int, int] = {}
    for queue_id, batch in runs:
        for message in batch:
            offset = ends.setdefault(queue_id, 1000 * queue_id)
            ends[queue_id] += 1
            properties = {"MYTAGS": "no", "x": "TAGS"}
            properties |= {"TAGS": message.tag} if message.tag else {}
            properties |= {"UNIQ_KEY": message.key} if message.key else {}
            if message.expires_ms is not None:
                properties["EXPIRES_AT_MS"] = str(message.expires_ms)
            out += encode_record(
                topic=b"Orders",
                queue_id=queue_id,
                body=message.body,
                properties=properties_encode(properties),
                born_timestamp_ms=1,
                born_host=HOST6 if message.ipv6 else HOST4,
                store_host=HOST4,
                queue_offset=offset,
                physical_offset=POSITION + len(out),
                store_timestamp_ms=77,
                reconsume_times=reconsume_times,
            )
    return memoryview(bytes(out))


def rows(index: EntryIndex) -> list[tuple[int, ...]]:
    return [
        (run.queue_id, run.first_offset + number, *(int(value) for value in unit))
        for run in index.runs
        for number, unit in enumerate(run.decoded().tolist())
    ]


@given(runs)
@settings(max_examples=200, deadline=None)
def test_every_record_gets_its_unit(batch: list[tuple[int, list[Message]]]) -> None:
    """Queue, offset, position, size, end, tags code and time are those that each record says."""
    body = encode(batch)
    sent = [message for _, run in batch for message in run]
    expected = []
    for start, message in zip(walk(body), sent, strict=True):
        record = Record(body[start:])
        code = tags_code(message.tag) if message.tag else 0
        lives_on = {None: 0, 0: 1, 77: 1, 78: 2, 87: 2, 1077: 101}[message.expires_ms]
        place = (record.queue_id, record.queue_offset, record.physical_offset)
        expected.append((*place, record.size, 0, lives_on, code, 77))
    index = index_records(body, POSITION)
    assert rows(index) == expected
    key = batch[0][1][0].key
    copy = StoredCopy(POSITION, len(body))
    assert list(index.copies) == ([(dedup_key(b"Orders", key.encode()), copy)] if key else [])
    assert (index.topic, index.store_timestamp_ms) == ("Orders", 77)


def test_a_message_that_was_sent_back_is_not_known_by_its_key() -> None:
    """It keeps the key of its first delivery, and each further try is a message of its own."""
    body = encode([(0, [Message(b"x", None, "k1", ipv6=False)])], reconsume_times=1)
    assert not index_records(body, POSITION).copies


@pytest.mark.parametrize("count", [1, 3])
def test_records_of_another_place_are_refused(count: int) -> None:
    """Records know their positions; if they don't agree, the log is not to be trusted."""
    body = encode([(0, [Message(b"x", None, None, ipv6=False)] * count)])
    with pytest.raises(Unusable, match="another position"):
        index_records(body, POSITION + 8)


def test_a_gap_in_the_queue_offsets_is_refused() -> None:
    """Consecutive records of a queue have consecutive offsets."""
    message = Message(b"x", None, None, ipv6=False)
    body = bytearray(encode([(0, [message] * 3)]))
    body[len(body) // 3 + 27] += 1
    with pytest.raises(Unusable, match="skips queue offsets"):
        index_records(memoryview(body), POSITION)
