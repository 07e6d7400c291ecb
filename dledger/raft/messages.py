"""Messages between the nodes of a group. Pure.

A frame is `u32 length | u16 head length | u32 CRC | head | run`: the head is a msgpack array, the
run is raw bytes of the log (headers and bodies of consecutive entries), so a batch is packed once,
when it is appended, and every peer gets the bytes of the file. Nothing is ever unpickled.

The CRC covers head and run, and begins with the head's length. All rules of Raft assume that
messages arrive as they were sent. A flipped bit in a commit index or a term would break them, and
TCP's checksum of sixteen bits misses some flipped bits. So a frame with a wrong CRC closes its
link, and what was in flight is sent again on the next one.

Every head starts with the kind of message and the sender's term. Then come the fields of the
message's own type, in their order; the types below say what each message means. `eligibility` and
`state_copy` explain the messages for nodes that join, `repair` explains `Lacking` and `Given`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgpack
import msgspec
from msgspec.structs import astuple

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
_Number = Annotated[int, msgspec.Meta(ge=0, le=limits.NUMBER_MAX)]


class PeerKind(IntEnum):
    """The kinds of message, by their number on the wire."""

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
    ELIGIBLE = 12
    HEAD = 13
    WANTED = 14
    STATE = 15
    CONFIRM = 16
    CONFIRMED = 17
    CONFIGURATION = 18
    LACKING = 19
    GIVEN = 20
    DECLINED = 21
    CONSULT = 22
    WILLING = 23


class PeerMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of one node to another. On the wire the fields follow the kind, in their order; a
    `run` is always the last field, and follows the head."""

    kind: ClassVar[PeerKind]
    term: int


class Append(PeerMessage, frozen=True):
    """A leader's entries, which follow the one at `previous_index`. The run has `count` of them."""

    kind = PeerKind.APPEND
    commit_index: int
    previous_index: int
    previous_term: int
    sequence: int
    count: int
    run: memoryview = EMPTY_RUN


class Answer(PeerMessage, frozen=True):
    """Answers an Append: send from `next_index` on. `sequence` is the Append's.

    With `reset` the leader goes back to that index; with `success` the sender holds all before it.
    """

    next_index: int
    reset: bool
    success: bool
    sequence: int


class Ack(Answer, frozen=True):
    """An answer of a voter: it counts for a majority."""

    kind = PeerKind.ACK


class Learned(Answer, frozen=True):
    """An answer of a node that must not be counted."""

    kind = PeerKind.LEARNED


class Vote(PeerMessage, frozen=True):
    """A candidate whose log ends with this entry asks for a vote. `is_wished`: its leader asked it
    to."""

    kind = PeerKind.VOTE
    last_index: int
    last_term: int
    is_wished: bool


class Voted(PeerMessage, frozen=True):
    """The vote of a node for a candidate."""

    kind = PeerKind.VOTED


class Denied(PeerMessage, frozen=True):
    """Your term is too old: here is the current one."""

    kind = PeerKind.DENIED


class Prevote(PeerMessage, frozen=True):
    """Would you vote for me, if my log ends with this entry?"""

    kind = PeerKind.PREVOTE
    last_index: int
    last_term: int


class Prevoted(PeerMessage, frozen=True):
    """The answer to a Prevote of `asked_term`."""

    kind = PeerKind.PREVOTED
    granted: bool
    asked_term: int


class TakeOver(PeerMessage, frozen=True):
    """Your leader asks you to start an election now."""

    kind = PeerKind.TAKE_OVER


class Consult(PeerMessage, frozen=True):
    """Your leader asks whether you could lead."""

    kind = PeerKind.CONSULT


class Willing(PeerMessage, frozen=True):
    """The answer to Consult: I could."""

    kind = PeerKind.WILLING


class Declined(PeerMessage, frozen=True):
    """The answer to Consult or TakeOver of who can't; or said unasked, by who has no room for
    another segment (`dledger.raft.replication.majority_space`). `reason`: an `Obstacle` by its
    number."""

    kind = PeerKind.DECLINED
    reason: int


class Resigned(PeerMessage, frozen=True):
    """Your leader stepped down, as it lost its majority: start an election."""

    kind = PeerKind.RESIGNED


class Ineligible(PeerMessage, frozen=True):
    """I am not eligible: is there a group?"""

    kind = PeerKind.FORMING


class Formed(PeerMessage, frozen=True):
    """The answer to Ineligible: whether I hold no entries, either."""

    kind = PeerKind.FORMED
    fresh: bool


class Eligible(PeerMessage, frozen=True):
    """Once you hold everything up to `index`, you are eligible."""

    kind = PeerKind.ELIGIBLE
    index: int


class Head(PeerMessage, frozen=True):
    """Where a leader's log begins. The run is its first entry."""

    kind = PeerKind.HEAD
    commit_index: int
    first_index: int
    base_position: int
    chain_crc: int
    sequence: int
    run: memoryview = EMPTY_RUN


class Wanted(PeerMessage, frozen=True):
    """Asks for a part of the state machine's state as of `index`, from `offset` on."""

    kind = PeerKind.WANTED
    index: int
    offset: int


class State(PeerMessage, frozen=True):
    """The part that was asked for, in the run, with its CRC."""

    kind = PeerKind.STATE
    index: int
    total_bytes: int
    offset: int
    crc: int
    run: memoryview = EMPTY_RUN


class Confirm(PeerMessage, frozen=True):
    """Are you still in my term? Asked for one round of reads."""

    kind = PeerKind.CONFIRM
    number: int


class Confirmed(PeerMessage, frozen=True):
    """The answer that confirms a leader in a round of reads."""

    kind = PeerKind.CONFIRMED
    number: int


class Introduction(PeerMessage, frozen=True):
    """The members as of a committed entry, in the run."""

    kind = PeerKind.CONFIGURATION
    index: int
    entry_term: int
    run: memoryview = EMPTY_RUN


class Lacking(PeerMessage, frozen=True):
    """My log is damaged from `index` on: send me entries."""

    kind = PeerKind.LACKING
    index: int


class Given(PeerMessage, frozen=True):
    """Entries that a leader gives a node whose log is damaged: `count` committed entries, in the
    run; `chain_crc` is the chain CRC before the first."""

    kind = PeerKind.GIVEN
    first_index: int
    chain_crc: int
    commit_index: int
    count: int
    run: memoryview = EMPTY_RUN


_MESSAGES: Final[tuple[type[PeerMessage], ...]] = (
    *(Append, Ack, Vote, Voted, Denied, Prevote, Prevoted, TakeOver, Resigned, Ineligible, Formed),
    *(Learned, Eligible, Head, Wanted, State, Confirm, Confirmed, Introduction, Lacking, Given),
    *(Declined, Consult, Willing),
)


class _Layout(NamedTuple):
    """The layout of a message in a head: the types of the term and the fields, without the run.

    `read` is given a head, and returns kind, term and fields, or raises DecodeError.
    """

    name: str
    make: Callable[..., PeerMessage]
    types: tuple[type, ...]
    has_run: bool
    read: Callable[[Buffer], tuple[Any, ...]]


def _layout_of(message_type: type[PeerMessage]) -> _Layout:
    fields = msgspec.structs.fields(message_type)
    types = tuple(field.type for field in fields if field.name != "run")
    own = message_type.kind.value
    kind = Annotated[int, msgspec.Meta(ge=own, le=own)]
    bounded = [_Number if each is int else each for each in types]
    read = msgspec.msgpack.Decoder(tuple.__class_getitem__((kind, *bounded))).decode
    return _Layout(message_type.kind.name, message_type, types, len(types) < len(fields), read)


LAYOUTS: Final = {message_type.kind.value: _layout_of(message_type) for message_type in _MESSAGES}
_NUMBERS: Final = {each: (each.kind.value, LAYOUTS[each.kind].has_run) for each in _MESSAGES}


class Copy(msgspec.Struct, frozen=True, gc=False):
    """An entry of a run: its header, the header's bytes, its body."""

    header: Header
    raw_header: memoryview
    body: memoryview


def encode_message(message: PeerMessage, run: memoryview = EMPTY_RUN) -> tuple[Buffer, ...]:
    """The frame of a message; the run is not copied. `run`: that of a message that has none yet."""
    kind, has_run = _NUMBERS[type(message)]
    values = astuple(message)
    if has_run:
        values, run = values[:-1], run or values[-1]
    run_length = len(run)
    head = _pack((kind, *values))
    head_length = len(head)
    crc = crc32(run, crc32(head, head_length))
    prefix = PREFIX.pack(_COUNTED_BYTES + head_length + run_length, head_length, crc)
    return (prefix + head, run) if run_length else (prefix + head,)


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
    """Where a frame's head ends and its run begins, according to the frame."""
    return PREFIX.size + int(PREFIX.unpack_from(frame)[1])


def decode_message(frame: memoryview) -> PeerMessage:
    """A whole frame, length word included. Raises FrameError naming what is wrong."""
    length, head_length, crc = PREFIX.unpack_from(frame)
    counted = frame[PREFIX.size :]
    if length + _LENGTH_BYTES != len(frame) or not _checks(counted, head_length, crc):
        raise FrameError(
            f"a peer's frame of {len(frame)} bytes does not match its own length or CRC: it was "
            "damaged on the way"
        )
    head = counted[:head_length]
    # The kind is one byte, behind the one that says how many values follow.
    layout = LAYOUTS.get(head[1]) if len(head) > 1 else None
    if layout is None:
        raise FrameError(f"a peer's message has no known kind: its head is {bytes(head[:64])!r}")
    try:
        _, *values = layout.read(head)
    except msgspec.DecodeError as error:
        raise FrameError(f"a peer's {layout.name} is malformed msgpack: {error}") from error
    if layout.has_run:
        return layout.make(*values, counted[head_length:])
    return layout.make(*values)


def _checks(counted: memoryview, head_length: int, crc: int) -> bool:
    return crc32(counted, head_length) == crc


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
