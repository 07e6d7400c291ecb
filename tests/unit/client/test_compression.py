"""Compressed bodies: each algorithm, both ways, and bodies that are damaged."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import get_args

import lz4.frame
import pytest
import zstandard
from trio.testing import MockClock

from dledger.errors import BadInput, RecordError
from dledger.remoting.record import COMPRESSED
from mqclient import Message, Producer, limits
from mqclient.compression import LZ4, UNNAMED, ZLIB, ZSTD, Compression, check_compression, inflate
from mqlocal import local_cluster

BODY = b"".join(b"order %05d\n" % number for number in range(1000))
BITS = {"zlib": ZLIB, "lz4": LZ4, "zstd": ZSTD}
THEIRS = Path(__file__).parents[2] / "data" / "golden" / "compressed"
BOMB_BYTES = 64 << 20
each = pytest.mark.parametrize("name", get_args(Compression))


def deflated(name: str, body: bytes) -> tuple[bytes, int]:
    """A body as a producer sends it."""
    compressor = check_compression(name, 0)
    assert compressor is not None
    return compressor.deflate(body)


@each
def test_what_a_producer_compresses_is_read(name: str) -> None:
    """Bodies of each algorithm are read under RocketMQ's bits."""
    body, sys_flag = deflated(name, BODY)

    assert sys_flag == COMPRESSED | BITS[name]
    assert len(body) < len(BODY) / 2
    assert inflate(body, sys_flag, "it") == BODY


@each
def test_what_rocketmq_compresses_is_read(name: str) -> None:
    """Bodies from the Java client 5.5.0 are read; its classes read ours, too."""
    assert inflate((THEIRS / f"theirs.{name}").read_bytes(), BITS[name], "it") == BODY


def test_old_producers_mean_zlib() -> None:
    """A compressed body that names no algorithm, as old producers send it, is zlib's."""
    assert inflate(zlib.compress(BODY), COMPRESSED | UNNAMED, "it") == BODY


def test_java_reads_independent_blocks_only() -> None:
    """LZ4 frames have independent blocks, the only ones that Java reads."""
    body, _ = deflated("lz4", BODY * 20)

    assert not lz4.frame.get_frame_info(body)["block_linked"]


@each
def test_what_would_not_become_smaller_is_sent_as_it_is(name: str) -> None:
    """A body is sent as it is if it would not become smaller, or is below the bound."""
    compressor = check_compression(name, 4096)
    assert compressor is not None

    assert compressor.deflate(BODY[:4095]) == (BODY[:4095], 0)
    assert deflated(name, b"x") == (b"x", 0)


@each
def test_a_bomb_ends_at_a_messages_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bomb is cut at the bound of a message, with a declared size or without."""
    bomb, sys_flag = deflated(name, bytes(BOMB_BYTES))
    with pytest.raises(RecordError, match="inflates to more than"):
        inflate(bomb, sys_flag, "it")
    assert limits.INFLATED_BODY_BYTES_MAX < BOMB_BYTES


def test_a_bomb_of_no_declared_size_ends_there_too() -> None:
    """A Zstandard stream without a size, as RocketMQ's producers send it, has the bound, too."""
    stream = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(stream, closefd=False) as writer:
        for _ in range(BOMB_BYTES >> 20):
            writer.write(bytes(1 << 20))

    with pytest.raises(RecordError, match="inflates to more than"):
        inflate(stream.getvalue(), COMPRESSED | ZSTD, "it")


@each
def test_what_is_cut_off_or_of_another_kind_is_named(name: str) -> None:
    """A body that is cut off or of another algorithm is an error with the message's place."""
    body, sys_flag = deflated(name, BODY)
    for wrong in (body[:-5], body[: len(body) // 2], b"", BODY, b"\0" * 40):
        with pytest.raises(RecordError, match="the body at 7"):
            inflate(wrong, sys_flag, "the body at 7")
    with pytest.raises(RecordError, match="algorithm 0x400, which is unknown"):
        inflate(body, COMPRESSED | 0x400, "it")


def test_a_producer_is_told_what_there_is() -> None:
    """A producer refuses an unknown algorithm or a wrong bound before it sends anything."""
    with pytest.raises(BadInput, match="'snappy': expected 'zlib', 'lz4', 'zstd' or None"):
        Producer("127.0.0.1:1", compression="snappy")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="compress_from_bytes=-1"):
        Producer("127.0.0.1:1", compression="zstd", compress_from_bytes=-1)


@each
async def test_consumers_see_the_body_as_it_was(
    name: Compression, autojump_clock: MockClock
) -> None:
    """Consumers see the original bodies of plain, delayed and transactional messages."""
    async with (
        local_cluster(replicas=1) as cluster,
        cluster.producer("P", compression=name, checker=lambda _: "rollback") as producer,
        cluster.consumer("C", {"T": "*"}) as consumer,
    ):
        await producer.send(Message("T", BODY))
        await producer.send(Message("T", BODY, delay_s=5))
        async with producer.transaction(Message("T", BODY)) as transaction:
            await transaction.commit()
        await producer.send(Message("T", b"short"))
        found = []
        while len(found) < 4:
            found += await consumer.poll(timeout_s=60)

    assert sorted(message.body for message in found) == sorted([BODY, BODY, BODY, b"short"])
    stored = sorted(len(message.record.body) for message in found)
    assert stored[0] == len(b"short")
    assert stored[-1] < len(BODY) / 2
