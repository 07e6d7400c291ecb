"""What the nodes of a group say to each other. Pure.

A frame is `u32 length | u16 head length | u32 CRC | head | run`: the head is a msgpack array, the
run is raw bytes of the log (headers and bodies of consecutive entries), so that a batch is packed
once, by being appended, and travels to every peer as it lies in the file. Nothing is ever
unpickled.

The CRC covers head and run, and begins with the head's length. Every rule of Raft takes for granted
that what a peer is said to have sent it did send: a bit that flips in a commit index or a term
would break them all, and TCP's sixteen bits of checksum let such a frame pass now and then. So a
frame that does not check ends its link, and what was under way is sent again on the next one.

Every head starts with the kind of message and the sender's term::

    APPEND    commit index, previous index, previous term, sequence, entry count      + run
    ACK       next index, reset, success, sequence of the APPEND that it answers
    VOTE      last index, last term, at the leader's own wish      VOTED     -
    DENIED    -                                          (you are behind: here is the term)
    PREVOTE   last index, last term                      PREVOTED  granted, the asked term
    TAKE_OVER -                                          (elect now: your leader wishes it)
    RESIGNED  -                                          (your leader lost its majority: elect)
    CONFIRM   round                                      (are you still in my term? for reads)
    CONFIRMED round                                      (yes)
    LACKING   index                                      (my log is damaged from there: help me)
    GIVEN     first index, chain CRC before it, commit index, entry count      + run

and for nodes that begin, or begin again (see `seat` and `state_copy`)::

    FORMING   -                                          (I have no seat: is there a group?)
    FORMED    fresh                                      (whether I hold nothing, either)
    LEARNED   as ACK, from a node without a seat: not to be counted
    SEATED    index                                      (hold up to there, and take your seat)
    HEAD      commit index, first index, base position, chain CRC before it, sequence
                                                         + run: the first entry that I have
    WANTED    state index, offset                        (a part of the state machine, please)
    STATE     state index, bytes in all, offset, CRC     + run: that part
    CONFIGURATION index, term                            + run: the members as of that entry,
                                                           which is committed
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

import msgpack
import msgspec

from dledger import limits
from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import FrameError
from dledger.log.entry import HEADER_BYTES, MAGIC, Header, decode_header, padded

PREFIX: Final = struct.Struct(">IHI")
_LENGTH_BYTES: Final = 4
_COUNTED_BYTES: Final = PREFIX.size - _LENGTH_BYTES
"""The part of the prefix that a frame's length counts, beside head and run."""
_pack: Final = msgpack.Packer().pack
EMPTY_RUN: Final = memoryview(b"")


class PeerKind(IntEnum):
    """The kinds of message, and how many fields follow kind and term."""

    APPEND = 0
    ACK = 1
    VOTE = 2
    VOTED = 3
    DENIED = 4
    PREVOTE = 5
    PREVOTED = 6
    TAKE_OVER = 7
    RESIGNED = 8
    FORMING = 9
    FORMED = 10
    LEARNED = 11
    SEATED = 12
    HEAD = 13
    WANTED = 14
    STATE = 15
    CONFIRM = 16
    CONFIRMED = 17
    CONFIGURATION = 18
    LACKING = 19
    GIVEN = 20


_FIELD_TYPES: Final[dict[PeerKind, tuple[type, ...]]] = {
    PeerKind.APPEND: (int, int, int, int, int),
    PeerKind.ACK: (int, bool, bool, int),
    PeerKind.VOTE: (int, int, bool),
    PeerKind.VOTED: (),
    PeerKind.DENIED: (),
    PeerKind.PREVOTE: (int, int),
    PeerKind.PREVOTED: (bool, int),
    PeerKind.TAKE_OVER: (),
    PeerKind.RESIGNED: (),
    PeerKind.FORMING: (),
    PeerKind.FORMED: (bool,),
    PeerKind.LEARNED: (int, bool, bool, int),
    PeerKind.SEATED: (int,),
    PeerKind.HEAD: (int, int, int, int, int),
    PeerKind.WANTED: (int, int),
    PeerKind.STATE: (int, int, int, int),
    PeerKind.CONFIRM: (int,),
    PeerKind.CONFIRMED: (int,),
    PeerKind.CONFIGURATION: (int, int),
    PeerKind.LACKING: (int,),
    PeerKind.GIVEN: (int, int, int, int),
}
_KINDS: Final = {kind.value: kind for kind in PeerKind}
_TYPES: Final = {kind: (int, *types) for kind, types in _FIELD_TYPES.items()}
"""The types of the term and the fields."""


class PeerMessage(msgspec.Struct, frozen=True, gc=False):
    """A decoded message. `fields` are those after kind and term, in the order above."""

    kind: PeerKind
    term: int
    fields: tuple[int, ...] = ()
    run: memoryview = EMPTY_RUN


class Copy(msgspec.Struct, frozen=True, gc=False):
    """An entry of a run: its header, the header's bytes, its body."""

    header: Header
    raw_header: memoryview
    body: memoryview


def encode_message(
    kind: PeerKind, term: int, *fields: int, run: Buffer = b""
) -> tuple[Buffer, ...]:
    """The frame of a message; the run is not copied."""
    head = _pack((kind.value, term, *fields))
    crc = crc32(run, crc32(head, len(head)))
    prefix = PREFIX.pack(_COUNTED_BYTES + len(head) + len(run), len(head), crc)
    return (prefix + head, run) if len(run) else (prefix + head,)


def frame_length(buffer: Buffer, offset: int) -> int:
    """The length of the frame at `offset`, its length word included. Raises FrameError."""
    length = int(PREFIX.unpack_from(buffer, offset)[0])
    if not _COUNTED_BYTES < length <= limits.PEER_FRAME_BYTES_MAX:
        raise FrameError(
            f"a peer's frame length of {length} is not within {_COUNTED_BYTES + 1} to the limit of "
            f"{limits.PEER_FRAME_BYTES_MAX}"
        )
    return length + _LENGTH_BYTES


def head_end(frame: Buffer) -> int:
    """Where a frame's head ends and its run begins, by its own word."""
    return PREFIX.size + int(PREFIX.unpack_from(frame)[1])


def decode_message(frame: memoryview) -> PeerMessage:
    """A whole frame, length word included. Raises FrameError naming what is wrong."""
    length, head_length, crc = PREFIX.unpack_from(frame)
    start = PREFIX.size
    if length + _LENGTH_BYTES != len(frame) or not _checks(frame, head_length, crc):
        raise FrameError(
            f"a peer's frame of {len(frame)} bytes does not match its own length or CRC: it was "
            "damaged on the way"
        )
    try:
        head = msgpack.unpackb(frame[start : start + head_length], use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise FrameError(f"a peer's message head is no msgpack: {error}") from error
    if not isinstance(head, tuple) or len(head) < 2:
        raise FrameError(f"a peer's message head is {head!r}, not kind, term and fields")
    kind = _KINDS.get(head[0]) if type(head[0]) is int else None
    if kind is None:
        raise FrameError(f"a peer's message kind {head[0]!r} is unknown")
    values = head[1:]
    if tuple(map(type, values)) != _TYPES[kind]:
        raise FrameError(f"a peer's {kind.name} has fields {values!r}")
    if min(values) < 0 or max(values) > limits.NUMBER_MAX:
        raise FrameError(
            f"a peer's {kind.name} has a field that is not within 0 to {limits.NUMBER_MAX}: "
            f"{values!r}"
        )
    return PeerMessage(kind, values[0], values[1:], frame[start + head_length :])


def _checks(frame: memoryview, head_length: int, crc: int) -> bool:
    return crc32(frame[PREFIX.size :], head_length) == crc


def split_run(run: memoryview, first_index: int, count: int, term_max: int) -> list[Copy]:
    """The entries of a run. Raises FrameError.

    Indices must be consecutive from `first_index`, and no entry's term may exceed the sender's.
    """
    entries = []
    offset = 0
    for index in range(first_index, first_index + count):
        if offset + HEADER_BYTES > len(run):
            raise FrameError(f"a run of {len(run)} bytes ends before entry {index}")
        header = decode_header(run, offset)
        body_at = offset + HEADER_BYTES
        if header.magic != MAGIC:
            raise FrameError(f"a run has magic {header.magic:#010x} where entry {index} must be")
        if header.index != index or header.term > term_max:
            raise FrameError(
                f"a run has entry {header.index} of term {header.term} where entry {index} of a "
                f"term up to {term_max} must be"
            )
        if header.size != HEADER_BYTES + header.body_length or offset + header.size > len(run):
            raise FrameError(f"entry {index} of a run has a size of {header.size}, which can't be")
        body = run[body_at : body_at + header.body_length]
        if crc32(body) != header.body_crc:
            raise FrameError(f"the body of entry {index} does not match its CRC")
        entries.append(Copy(header, run[offset:body_at], body))
        offset += padded(header.size)
    if offset != len(run):
        raise FrameError(f"a run of {count} entries has {len(run)} bytes, not {offset}")
    return entries
