"""Frames are cut from a byte stream, whatever chunks the network makes of it."""

from __future__ import annotations

import struct
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import FrameError
from dledger.limits import FRAME_BYTES_MAX, MIB
from dledger.remoting.codec import encode_frame
from dledger.remoting.command import Command
from dledger.remoting.framing import FrameDecoder


def stream_of(*bodies: bytes) -> bytes:
    return b"".join(
        piece
        for opaque, body in enumerate(bodies)
        for piece in encode_frame(Command(1, body=body, opaque=opaque))
    )


@given(st.lists(st.binary(max_size=60), max_size=5), st.lists(st.integers(1, 50), max_size=60))
def test_the_commands_do_not_depend_on_the_chunks(bodies: list[bytes], cuts: list[int]) -> None:
    """The commands are the same for any way of cutting the stream."""
    stream = stream_of(*bodies)
    decoder = FrameDecoder()
    decoded = []
    position = 0
    for cut in [*cuts, len(stream)]:
        decoder.feed(stream[position : position + cut])
        decoded += [(command.opaque, bytes(command.body)) for command in decoder.frames()]
        position += cut
    assert decoded == list(enumerate(bodies))
    assert decoder.partial_bytes == 0


def test_bodies_of_earlier_chunks_stay_as_they_were() -> None:
    """A body is a view; what arrives later must not write into it."""
    stream = stream_of(b"a" * 100, b"b" * 100, b"c" * 100)
    decoder = FrameDecoder()
    kept = []
    for position in range(0, len(stream), 7):
        decoder.feed(stream[position : position + 7])
        kept += [command.body for command in decoder.frames()]
    assert [bytes(body) for body in kept] == [b"a" * 100, b"b" * 100, b"c" * 100]


def test_a_chunk_fed_before_the_last_was_used_up_is_appended() -> None:
    """Stopping in the middle of a chunk loses nothing."""
    stream = stream_of(b"a", b"b", b"c")
    decoder = FrameDecoder()
    decoder.feed(stream[:-3])
    first = next(decoder.frames())
    decoder.feed(stream[-3:])
    assert [bytes(c.body) for c in (first, *decoder.frames())] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_a_length_above_the_bound_is_refused_before_anything_is_buffered(length: int) -> None:
    """A 2 GiB length word costs its sender the connection, and us nothing."""
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">I", length))
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match=f"{length} bytes is above {FRAME_BYTES_MAX}"):
            list(decoder.frames())
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_length_that_arrives_byte_by_byte_is_refused_with_its_last_byte() -> None:
    """The bound holds however the word is cut."""
    decoder = FrameDecoder()
    word = struct.pack(">I", 2**31)
    for byte in word[:-1]:
        decoder.feed(bytes((byte,)))
        assert list(decoder.frames()) == []
    decoder.feed(word[-1:])
    with pytest.raises(FrameError, match="above"):
        list(decoder.frames())


def test_an_announced_frame_costs_memory_only_as_it_arrives() -> None:
    """A thousand connections that announce 16 MiB each must not cost 16 GiB."""
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        decoder.feed(struct.pack(">I", FRAME_BYTES_MAX) + b"abc")
        assert list(decoder.frames()) == []
        assert decoder.partial_bytes == 7
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def test_frames_before_a_bad_one_are_still_delivered() -> None:
    """The client's earlier requests were good."""
    decoder = FrameDecoder()
    decoder.feed(stream_of(b"good") + b"\xff" * 8)
    frames = decoder.frames()
    assert bytes(next(frames).body) == b"good"
    with pytest.raises(FrameError):
        next(frames)


def test_a_large_frame_in_small_chunks_is_not_copied_again_for_each() -> None:
    """8 MiB in 1 KiB chunks takes some 30 ms; with a copy for each chunk it would be 10 s."""
    stream = stream_of(bytes(8 * MIB))
    decoder = FrameDecoder()
    begun = time.thread_time()
    for position in range(0, len(stream), 1024):
        decoder.feed(stream[position : position + 1024])
        commands = list(decoder.frames())
    assert [len(command.body) for command in commands] == [8 * MIB]
    assert time.thread_time() - begun < 2


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (bytes.fromhex("1603010200 0100 01fc 0303"), "a TLS hello: this port speaks"),
        (bytes.fromhex("16030300"), "tls.enable=false"),
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "an HTTP request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP request"),
    ],
)
def test_another_protocol_is_called_by_its_name(said: bytes, what: str) -> None:
    """The error names the other protocol, instead of a frame of 369,296,129 bytes."""
    decoder = FrameDecoder()
    decoder.feed(said)
    with pytest.raises(FrameError, match=what):
        list(decoder.frames())
