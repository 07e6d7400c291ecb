"""Starts of records of one size are found at once, where walking would find them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dledger.errors import RecordError
from dledger.remoting.message import host_bytes
from dledger.remoting.record import Record, encode_record, walk
from dledger.remoting.record.columns import RecordColumns, record_starts

HOST = host_bytes("10.1.2.3", 1)
HOST_IPV6 = host_bytes("fe80::1", 1)


def record(size: int, queue_id: int = 0, queue_offset: int = 0, born_host: bytes = HOST) -> bytes:
    """A record with a body of this size."""
    return encode_record(
        topic=b"T",
        queue_id=queue_id,
        queue_offset=queue_offset,
        body=bytes(size),
        properties=b"",
        born_timestamp_ms=0,
        born_host=born_host,
    )


def records(*sizes: int) -> bytes:
    """Records with bodies of these sizes, back to back."""
    return b"".join(map(record, sizes))


@pytest.mark.parametrize("sizes", [(), (0,), (7,), (7,) * 50, (7, 8), (7, 7, 8), (0, 92), (92, 0)])
def test_equal_or_not_they_are_found(sizes: tuple[int, ...]) -> None:
    """Starts are those of a walk, also if the first size divides the whole by chance."""
    data = records(*sizes)
    assert record_starts(data).tolist() == walk(data)


def test_any_bytes_are_judged_alike() -> None:
    """Bytes that are changed or cut give the same places, or the same error."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(2000):
        data = bytearray(records(*[chance.choice((0, 20))] * chance.randrange(1, 6)))
        for _ in range(chance.choice((0, 1))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        del data[chance.choice((len(data), chance.randrange(len(data)))) :]
        try:
            expected: object = walk(data)
        except RecordError as error:
            expected = str(error)
        try:
            found: object = record_starts(data).tolist()
        except RecordError as error:
            found = str(error)
        assert found == expected


def test_the_places_are_numbers_of_64_bits() -> None:
    """Starts are numbers of 64 bits, since they are added to positions in a log."""
    assert record_starts(records(1, 1)).dtype == np.int64


def test_a_stored_batch_says_where_its_runs_are_and_what_is_in_it() -> None:
    """A stored batch knows its runs as its records do, of any sizes, queues and hosts."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        ends = dict.fromkeys(range(4), chance.randrange(2**40))
        data, runs, queue_ids = bytearray(), list[tuple[int, int]](), list[int]()
        for _ in range(chance.randrange(1, 20)):
            queue_id = chance.choice((0, 0, 1, 2, 2**31 - 1))
            offset = ends.setdefault(queue_id, 0)
            if [queue_id] != queue_ids[-1:]:
                runs.append((queue_id, offset))
            queue_ids.append(queue_id)
            ends[queue_id] = offset + 1
            host = chance.choice((HOST, HOST_IPV6))
            data += record(chance.choice((0, 7)), queue_id, offset, host)
        columns = RecordColumns(data, record_starts(data))
        assert [(run.queue_id, run.first_offset) for run in columns.runs] == runs
        assert [run.queue_id for run in columns.runs for _ in range(run.records)] == queue_ids
        crcs = [Record(bytes(data[start:])).body_crc for start in walk(data)]
        assert columns.body_crcs == crcs
