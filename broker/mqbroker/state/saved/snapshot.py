"""A snapshot: the replicated state up to an index, so that a restart replays only the rest.

It is a picture that is taken in slices, while nothing is applied (`mqbroker.state.rows.picture`);
a thread encodes and writes it later. The file's layout, big-endian: magic u64 ``DLGSNAP1``, payload
length u64, CRC-32 of the payload u32, payload. A new snapshot is written beside the old one, made
durable, and renamed over it: a crash leaves the old or the new, never half of one. A damaged
snapshot is ignored, since the log or the leader has all that it holds; the reader says why.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgpack
import msgspec

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import DledgerError, StorageError
from dledger.failpoints import failpoint
from dledger.ledger.exporting import SavedState
from dledger.log.disk import Disk, is_loss
from dledger.remoting.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
from dledger.trust.users import User
from mqbroker import limits
from mqbroker.state.aside import AsideRow
from mqbroker.state.decisions import DecidedRow
from mqbroker.state.groups.locks import LockRow
from mqbroker.state.groups.modes import ModeRow
from mqbroker.state.groups.popped import PoppedRow
from mqbroker.state.groups.subscriptions import Beginning
from mqbroker.state.producers import ProducerRow
from mqbroker.state.rows import other_versions
from mqbroker.state.rows.picture import Fields, array_header, encoded
from mqbroker.state.topics import Birth
from mqbroker.state.waiting import OwnersKept

SNAPSHOT_FILE: Final = "snapshot.msgpack"
FORMAT: Final = 3
UNITS_FORMAT: Final = 2
"""The format of the files of queues and keys. Files of another format are derived again."""

_HEADER: Final = struct.Struct(">8sQI")
_MAGIC: Final = b"DLGSNAP1"


class PictureSpoiled(DledgerError):
    """Something was applied, or another state taken over, while a picture was taken."""


class State(msgspec.Struct):
    """Payload of a snapshot: the replicated state after `applied_index`."""

    format: int = FORMAT
    applied_index: int = 0
    clock_ms: int = 0
    topics: list[TopicConfig] = []
    topics_version: DataVersion = msgspec.field(default_factory=DataVersion)
    groups: list[SubscriptionGroupConfig] = []
    groups_version: DataVersion = msgspec.field(default_factory=DataVersion)
    offsets: list[tuple[str, str, int, int]] = []
    locks: list[LockRow] = []
    dedup: list[bytes] = []
    delays: dict[int, int] = {}
    timers: bytes | list[tuple[int, int]] = b""
    halves: bytes | list[tuple[int, int]] = b""
    queues: dict[str, tuple[int, dict[int, int]]] = {}
    settings: dict[str, str] = {}
    keys: tuple[int, int] = (0, 0)
    begins: dict[str, dict[int, int]] = {}
    first_position: int = 0
    first_index: int = 1
    ahead_index: int = 0
    aside: tuple[int, list[AsideRow], list[int]] = (0, [], [])
    units_format: int = 1
    lock_tokens: list[int] = []
    lock_clock_ms: int = 0
    popped: list[PoppedRow] = []
    modes: list[ModeRow] = []
    producers: list[ProducerRow] = []
    births: dict[str, list[Birth]] = {}
    begun: dict[str, Beginning] | None = None
    popped_floor: int = 0
    timer_owners: OwnersKept = ([], b"")
    half_owners: OwnersKept = ([], b"")
    users: list[User] = []
    producer_owners: dict[str, str] = {}
    decided: list[DecidedRow] = []


_FIELDS: Final = get_type_hints(State)
PART_BYTES: Final = 1 << 14
_DECODED_IN_PARTS: Final = frozenset(
    {"offsets", "locks", "popped", "producers", "decided", "users", "topics", "groups"}
)


def encode_state(fields: Fields) -> Iterator[bytes]:
    """A snapshot's payload, in pieces. Its bytes are those of the struct with these fields."""
    return encoded(_FIELDS, {"format": FORMAT, "units_format": UNITS_FORMAT, **fields})


def decode_state(payload: Buffer) -> Generator[None, None, State]:
    """The state of a payload, this replica's or another's, in steps. StorageError if it can't be
    used here."""
    try:
        state = State()
        raws = msgspec.msgpack.decode(payload, type=dict[str, msgspec.Raw])
        for name, kind in _FIELDS.items():
            if name in raws:
                parts = _in_parts if name in _DECODED_IN_PARTS else _at_once
                setattr(state, name, (yield from parts(raws[name], kind)))
    except (msgspec.MsgspecError, msgpack.UnpackException, ValueError) as error:
        raise StorageError(f"the state can't be decoded: {error}") from error
    if state.format != FORMAT:
        raise StorageError(f"the state has format {state.format}, this version's is {FORMAT}")
    for waiting in (state.timers, state.halves):
        if isinstance(waiting, bytes) and len(waiting) % 16:
            raise StorageError("the waiting messages of the state are no pairs of numbers")
    return state


def _at_once(raw: msgspec.Raw, kind: Any) -> Generator[None, None, Any]:
    yield
    return other_versions.decode(raw, kind)


def _in_parts(raw: msgspec.Raw, kind: Any) -> Generator[None, None, list[Any]]:
    """The rows of an array, some at each step. Only their ends are found beforehand."""
    rows: list[Any] = []
    data = bytes(raw)
    ends = msgpack.Unpacker(max_buffer_size=len(data))
    ends.feed(data)
    yield
    left, begin, count = ends.read_array_header(), ends.tell(), 0
    while left:
        ends.skip()
        left, count, end = left - 1, count + 1, ends.tell()
        if end - begin > PART_BYTES or not left:
            rows += other_versions.decode(array_header(count) + data[begin:end], kind)
            begin, count = end, 0
            yield
    return rows


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """A consistent picture of the state, taken but not yet durable."""

    applied_index: int
    needed_index: int
    """Last entry that the picture holds: entries up to here must be durable before it is
    written."""
    generation: int
    """`Machine.generation` when it was taken."""
    synced: frozenset[Path]
    removed: frozenset[Path]
    """The files that writing it makes durable, and those that it removes."""
    write: Callable[[], None]
    """Make it durable. Blocks, so call it in a thread; OSError leaves the old one in place."""


def write_snapshot(path: Path, pieces: Iterable[bytes]) -> None:
    """Replace the snapshot at `path`, durably, by a payload in pieces. Blocks, so call it in a
    thread: it lets others have the interpreter after each piece. OSError leaves the old one in
    place."""
    payload, crc, size = list[bytes](), 0, 0
    for piece in pieces:
        payload.append(piece)
        crc, size = crc32(piece, crc), size + len(piece)
        time.sleep(limits.SNAPSHOT_PAUSE_S)
    header = _HEADER.pack(_MAGIC, size, crc)
    failpoint("snapshot.write")
    Disk().replace(path, header, *payload)
    failpoint("snapshot.written")


def open_snapshot(store: Path, saved_index: int) -> SavedState | None:
    """The snapshot of a replica's store, opened; None if there is none. Raises OSError.

    It may be newer than `saved_index`, and holds nothing that is not committed and durable.
    """
    try:
        return SavedState((store / SNAPSHOT_FILE).open("rb"), SNAPSHOT_FILE, saved_index)
    except FileNotFoundError:
        return None


def read_snapshot(path: Path) -> bytes | None:
    """The payload, durable; None if there is no snapshot; StorageError if it does not check, or the
    disk has lost a part of it."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        if is_loss(error):
            raise StorageError(f"{path}: the disk can't read it ({error.strerror})") from error
        raise
    if len(raw) < _HEADER.size:
        raise StorageError(f"{path} has {len(raw)} bytes, fewer than its header")
    magic, length, crc = _HEADER.unpack_from(raw)
    payload = raw[_HEADER.size :]
    if magic != _MAGIC or length != len(payload) or crc != crc32(payload):
        raise StorageError(f"{path} does not match its own length or checksum")
    # A killed process may have given it its name and not synced the folder. The log may lose what
    # this state holds, so no older one may come back.
    Disk().sync_folder(path.parent)
    return payload
