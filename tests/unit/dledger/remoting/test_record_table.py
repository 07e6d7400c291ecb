"""A table of records agrees with `Record` about each, or leaves it to that."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from dledger.errors import BadInput, RecordError
from dledger.remoting.message import host_bytes
from dledger.remoting.record import COMPRESSED, Record, encode_record
from dledger.remoting.record.table import RecordTable

HOSTS = [host_bytes("10.1.2.3", 1), host_bytes("fd00::7", 1)]


def record(chance: random.Random, body: bytes) -> bytes:
    """A record as brokers keep them, or nearly so."""
    return encode_record(
        topic=b"T",
        queue_id=3,
        body=body,
        properties=bytes(chance.choice((0, 0, 9))),
        sys_flag=chance.choice((0, 0, 0, COMPRESSED)),
        flag=chance.randrange(-(2**31), 2**31),
        born_timestamp_ms=chance.randrange(2**40),
        born_host=chance.choice(HOSTS),
        store_host=chance.choice(HOSTS),
        store_timestamp_ms=chance.randrange(2**40),
        queue_offset=chance.randrange(2**63),
    )


def carefully(data: memoryview) -> bytes | None:
    """The body field by field; None if it is not to be had as it is."""
    seen = Record(data)
    try:
        sound = seen.check() and not seen.sys_flag & COMPRESSED
        # A slice ends where its record does, whatever the length says.
        return bytes(seen.body) if sound and _fits(seen) else None
    except BadInput:
        return None


def _fits(seen: Record) -> bool:
    return len(seen.body) == seen._body_end - seen._body_start


def unchanged(chance: random.Random, data: bytearray) -> None:
    """Leave the record as it is."""


def changed(chance: random.Random, data: bytearray) -> None:
    """A few bits, but of no size and no magic."""
    for _ in range(chance.randrange(1, 4)):
        data[chance.randrange(8, len(data))] ^= 1 << chance.randrange(8)


def short(chance: random.Random, data: bytearray) -> None:
    """The smallest that a record may be, of whatever it says."""
    del data[chance.randrange(91, len(data) + 1) :]
    data[:4] = len(data).to_bytes(4, "big")


@pytest.mark.parametrize("spoil", [unchanged, changed, short])
def test_each_column_is_what_the_records_say(
    spoil: Callable[[random.Random, bytearray], None],
) -> None:
    """Columns equal the records' fields, for any hosts, sizes and flags, and damaged bytes."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    read = whole = 0
    for _ in range(300):
        sizes = chance.choice(((0,), (20,), (0, 1, 20, 300)))
        parts = []
        for _ in range(chance.randrange(1, 30)):
            data = bytearray(record(chance, chance.randbytes(chance.choice(sizes))))
            if chance.random() < 0.3:
                spoil(chance, data)
            parts.append(data)
        table = RecordTable(b"".join(parts))
        records = [table.record(number) for number in range(len(table))]

        assert records == parts
        assert table.bodies == [carefully(each) for each in records]
        bodiless = {n for n, each in enumerate(records) if not Record(each).has_body}
        assert table.bodiless == bodiless
        assert table.offsets == [Record(each).queue_offset for each in records]
        times = [Record(each).store_timestamp_ms for each in records]
        assert table.store_timestamps_ms.tolist() == times
        assert table.born_timestamps_ms.tolist() == [Record(e).born_timestamp_ms for e in records]
        assert table.flags.tolist() == [Record(each).flag for each in records]
        assert table.sys_flags.tolist() == [Record(each).sys_flag for each in records]
        faulty = [n for n, each in enumerate(records) if Record(each).fault]
        if faulty:
            with pytest.raises(RecordError, match=f"message {table.offsets[faulty[0]]} of its"):
                _ = table.spans
        else:
            spans = zip(*(column.tolist() for column in table.spans), strict=True)
            for each, (begin, end, first, last) in zip(records, spans, strict=True):
                assert table.buffer[begin:end] == Record(each).body
                assert table.buffer[first:last] == Record(each).properties
            whole += 1
        count = chance.randrange(1, len(table) + 1)
        assert table.head(count).offsets == table.offsets[:count]
        read += sum(body is not None for body in table.bodies)
    assert read > 1000
    assert whole > 5


def test_a_column_is_of_plain_numbers_and_can_not_be_changed() -> None:
    """Columns are plain numbers and read-only, since they are handed out as they are kept."""
    table = RecordTable(record(random.Random(1), b"x") * 3)
    assert table.queue_offsets.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        table.queue_offsets[0] = 1


def test_what_is_no_record_makes_no_table() -> None:
    """Bytes behind the last record are the same error as in `walk`."""
    data = record(random.Random(1), b"x")
    with pytest.raises(RecordError, match="reaches beyond"):
        RecordTable(data + data[:50])
