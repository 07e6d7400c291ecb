"""Bytes of the messages between nodes, which nodes of other versions must read."""

from __future__ import annotations

import msgpack
import pytest

from dledger.checksum import crc32
from dledger.errors import FrameError
from dledger.limits import NUMBER_MAX
from dledger.raft.messages import (
    LAYOUTS,
    PREFIX,
    Ack,
    Append,
    Confirm,
    Confirmed,
    Consult,
    Declined,
    Denied,
    Eligible,
    Formed,
    Given,
    Head,
    Ineligible,
    Introduction,
    Lacking,
    Learned,
    PeerKind,
    PeerMessage,
    Prevote,
    Prevoted,
    Resigned,
    State,
    TakeOver,
    Vote,
    Voted,
    Wanted,
    Willing,
    decode_message,
    encode_message,
)

RUN = memoryview(b"entries")
SAID: list[tuple[PeerMessage, list[object]]] = [
    (Append(7, 300, 299, 6, 1 << 40, 2, RUN), [0, 7, 300, 299, 6, 1 << 40, 2]),
    (Ack(7, 300, False, True, 9), [1, 7, 300, False, True, 9]),
    (Vote(7, 300, 6, True), [2, 7, 300, 6, True]),
    (Voted(7), [3, 7]),
    (Denied(7), [4, 7]),
    (Prevote(7, 300, 6), [5, 7, 300, 6]),
    (Prevoted(7, True, 8), [6, 7, True, 8]),
    (TakeOver(7), [7, 7]),
    (Resigned(7), [8, 7]),
    (Ineligible(7), [9, 7]),
    (Formed(7, False), [10, 7, False]),
    (Learned(7, 300, True, False, 9), [11, 7, 300, True, False, 9]),
    (Eligible(7, 300), [12, 7, 300]),
    (Head(7, 400, 300, 1 << 30, 5, 9, RUN), [13, 7, 400, 300, 1 << 30, 5, 9]),
    (Wanted(7, 300, 4096), [14, 7, 300, 4096]),
    (State(7, 300, 8192, 4096, 5, RUN), [15, 7, 300, 8192, 4096, 5]),
    (Confirm(7, 3), [16, 7, 3]),
    (Confirmed(7, 3), [17, 7, 3]),
    (Introduction(7, 300, 6, RUN), [18, 7, 300, 6]),
    (Lacking(0, 300), [19, 0, 300]),
    (Given(7, 300, 5, 301, 2, RUN), [20, 7, 300, 5, 301, 2]),
    (Declined(7, 2), [21, 7, 2]),
    (Consult(7), [22, 7]),
    (Willing(7), [23, 7]),
]


def frame_of(head: list[object], run: bytes = b"") -> bytes:
    return framed(msgpack.packb(head), run)


def framed(packed: bytes, run: bytes = b"") -> bytes:
    crc = crc32(run, crc32(packed, len(packed)))
    return PREFIX.pack(6 + len(packed) + len(run), len(packed), crc) + packed + run


@pytest.mark.parametrize(("message", "head"), SAID, ids=lambda case: type(case).__name__)
def test_each_message_has_its_place_on_the_wire(message: PeerMessage, head: list[object]) -> None:
    """A message is kind, term, fields in their order and the run, and reads back the same."""
    frame = frame_of(head, bytes(getattr(message, "run", b"")))
    assert b"".join(encode_message(message)) == frame
    assert decode_message(memoryview(frame)) == message


def test_every_kind_is_here() -> None:
    """Message kinds have a type each."""
    assert {message.kind for message, _ in SAID} == set(PeerKind) == {*map(PeerKind, LAYOUTS)}


@pytest.mark.parametrize(("message", "head"), SAID, ids=lambda case: type(case).__name__)
def test_a_field_beyond_its_bounds_or_of_another_type_is_refused(
    message: PeerMessage, head: list[object]
) -> None:
    """A message with a field too many, too few, or of a wrong value is refused."""
    for wrong in ([*head, 0], head[:-1]):
        with pytest.raises(FrameError):
            decode_message(memoryview(frame_of(wrong)))
    for at in range(1, len(head)):
        other = 1 if isinstance(head[at], bool) else True
        for value in (-1, NUMBER_MAX + 1, None, "1", 1.0, b"1", other):
            with pytest.raises(FrameError):
                decode_message(memoryview(frame_of([*head[:at], value, *head[at + 1 :]])))


@pytest.mark.parametrize(("message", "head"), SAID, ids=lambda case: type(case).__name__)
def test_a_head_that_is_packed_in_another_way_is_no_message_of_another_kind(
    message: PeerMessage, head: list[object]
) -> None:
    """A head packed with a longer array header is not read as another kind of message."""
    packed = b"\xdc\x00" + bytes([len(head)]) + msgpack.packb(head)[1:]
    try:
        found = decode_message(memoryview(framed(packed, bytes(getattr(message, "run", b"")))))
    except FrameError:
        return
    assert found == message
