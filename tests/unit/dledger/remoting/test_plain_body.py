"""The quick way of reading a body agrees with the careful one, or leaves the body to it."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from dledger.errors import BadInput
from dledger.remoting.message import host_bytes
from dledger.remoting.record import COMPRESSED, Record, encode_record, plain_body, queue_offset

IPV4, IPV6 = host_bytes("10.1.2.3", 1), host_bytes("fd00::7", 1)


def record(body: bytes, born_host: bytes, sys_flag: int, store_host: bytes = IPV4) -> bytes:
    """A record as brokers keep them."""
    return encode_record(
        topic=b"T",
        queue_id=3,
        body=body,
        properties=b"",
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        born_host=born_host,
        queue_offset=77,
        store_host=store_host,
    )


def carefully(data: bytes) -> bytes | None:
    """The body field by field; None if it is not to be had as it is."""
    with suppress(BadInput):
        seen = Record(data)
        if seen.check() and not seen.sys_flag & COMPRESSED:
            return bytes(seen.body)
    return None


@pytest.mark.parametrize("body", [b"", b"x", bytes(5000)])
def test_a_plain_record_is_read_at_once(body: bytes) -> None:
    """A plain record, with IPv4, not compressed and whole, is read at once."""
    data = memoryview(record(body, IPV4, 0))
    assert plain_body(data) == body
    assert queue_offset(data) == 77


@pytest.mark.parametrize(
    "data",
    [
        record(b"x", IPV6, 0),
        record(b"x", IPV4, 0, IPV6),
        record(b"x", IPV4, COMPRESSED),
        record(b"x", IPV4, 0)[:87],
        b"",
    ],
)
def test_any_other_is_left_to_the_careful_way(data: bytes) -> None:
    """A record with other hosts, a compressed body or too few bytes is read the careful way."""
    assert plain_body(memoryview(data)) is None


def test_what_is_damaged_is_never_read_otherwise() -> None:
    """A damaged body is read as by the careful way, with any byte changed or the end cut off."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    read = 0
    for _ in range(3000):
        data = bytearray(record(chance.randbytes(chance.choice((0, 1, 30))), IPV4, 0))
        for _ in range(chance.choice((0, 1, 1, 2))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.2:
            del data[chance.randrange(88, len(data)) :]
        quick = plain_body(memoryview(data))
        if quick is not None:
            read += 1
            assert quick == carefully(bytes(data))
    assert read > 100
