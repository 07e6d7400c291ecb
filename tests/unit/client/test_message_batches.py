"""Messages of one answer are the same as rows of a table and one by one."""

from __future__ import annotations

import random

import pytest

from dledger.errors import RecordError
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import host_bytes, properties_encode
from dledger.remoting.record import encode_record
from mqclient import limits
from mqclient.compression import check_compression
from mqclient.consuming.columns.batch import Listed, MessageBatch, Rows, batch_in
from mqclient.models import messages_in

COMPRESSOR = check_compression("zlib", 100)


def answer(chance: random.Random, count: int) -> bytes:
    """Records of one queue, of any sizes, some compressed, some with an IPv6 host."""
    assert COMPRESSOR is not None
    records = []
    for number in range(count):
        body, sys_flag = COMPRESSOR.deflate(bytes([number % 256]) * chance.choice((0, 9, 300)))
        records.append(
            encode_record(
                topic=b"T",
                queue_id=3,
                body=body,
                properties=properties_encode({"UNIQ_KEY": f"{number:08X}"}),
                sys_flag=sys_flag,
                born_timestamp_ms=1,
                born_host=host_bytes(chance.choice(("10.0.0.1", "fd00::7")), 9),
                queue_offset=7 + 2 * number,
                store_timestamp_ms=1000 + number,
            )
        )
    return b"".join(records)


def told(batch: MessageBatch) -> list[object]:
    messages = [(m.message_id, m.topic, m.body, m.data, m.large_bytes) for m in batch]
    columns = [batch.queue_offsets.tolist(), batch.store_times_ms.tolist()]
    return [messages, columns, batch.bodies(), batch.queue, batch.large_bytes]


def test_rows_are_the_messages() -> None:
    """The table's rows, whole or in part, are the messages, whichever is read first."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(40):
        records = answer(chance, chance.randrange(limits.READ_TOGETHER_MIN * 8, 200))
        rows, listed = batch_in(records, "b"), Listed(messages_in(records, "b"))
        assert isinstance(rows, Rows)
        first, last = sorted(chance.sample(range(len(rows) + 1), 2))
        part = slice(first, last, chance.choice((None, 1, 3)))
        assert told(rows[part]) == told(listed[part])
        assert told(rows[part][1:]) == told(listed[part][1:]) if len(rows[part]) > 1 else True
        assert told(rows) == told(listed)
        assert rows[-1].queue_offset == listed[-1].queue_offset
        assert rows.queue == MessageQueue("T", "b", 3)


def test_few_messages_need_no_table() -> None:
    """A small answer, and an empty one, has a list instead of a table."""
    chance = random.Random(1)
    assert isinstance(batch_in(answer(chance, 3), "b"), Listed)
    assert len(batch_in(b"", "b")) == 0


@pytest.mark.parametrize("count", [8, 200])
def test_a_damaged_body_is_not_given(count: int) -> None:
    """A damaged body raises among all bodies, and by itself; the others can be read."""
    records = bytearray(answer(random.Random(5), count))
    whole = batch_in(bytes(records), "b")
    assert isinstance(whole, Rows) == (count == 200)
    at = next(n for n, message in enumerate(whole) if len(message.body) == 9)
    records[bytes(records).index(whole[at].body)] ^= 1
    batch = batch_in(records, "b")

    reason = f"offset {7 + 2 * at} .* does not match its CRC"
    with pytest.raises(RecordError, match=reason):
        batch.bodies()
    with pytest.raises(RecordError, match=reason):
        _ = batch[at].body
    assert batch[:at].bodies() == whole[:at].bodies()
    assert batch[at + 1 :].bodies() == whole[at + 1 :].bodies()


def test_a_body_that_could_not_be_had_says_why_whenever_it_is_looked_at() -> None:
    """A body that failed raises the same error at each look."""
    message = batch_in(answer(random.Random(1), 100), "b")[0]
    message.take_body(RecordError("the parts are gone"))
    for _ in range(2):
        with pytest.raises(RecordError, match="the parts are gone"):
            _ = message.body
