"""A snapshot: the replicated state up to an index, so that a restart replays only the rest.

It is taken in memory, consistent; a thread encodes and writes it later. The file's layout,
big-endian: magic u64 ``DLGSNAP1``, payload length u64, CRC-32 of the payload u32, payload. A new
snapshot is written beside the old one, made durable, and renamed over it: a crash leaves the old or
the new, never half of one. A damaged snapshot is ignored, since the log or the leader has all that
it holds; the reader says why it was not used.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from dledger.checksum import crc32
from dledger.errors import StorageError
from dledger.failpoints import failpoint
from dledger.log.disk import Disk, is_loss
from dledger.remoting.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
from dledger.trust.users import User
from mqbroker.state import kept
from mqbroker.state.aside import AsideRow
from mqbroker.state.groups.locks import LockRow
from mqbroker.state.groups.modes import ModeRow
from mqbroker.state.groups.popped import PoppedRow
from mqbroker.state.groups.subscriptions import Beginning
from mqbroker.state.producers import ProducerRow
from mqbroker.state.topics import Birth
from mqbroker.state.waiting import OwnersKept

FORMAT: Final = 3
UNITS_FORMAT: Final = 2
"""The format of the files of queues and keys. Files of another format are derived again."""

_HEADER: Final = struct.Struct(">8sQI")
_MAGIC: Final = b"DLGSNAP1"


class State(msgspec.Struct):
    """A snapshot's payload."""

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


def encode_state(state: State) -> bytes:
    """A snapshot's payload: that of the struct, made field by field. Each is encoded by itself, so
    that a thread lets others have the interpreter in between."""
    fields = {
        field.encode_name: msgspec.Raw(msgspec.msgpack.encode(getattr(state, field.name)))
        for field in msgspec.structs.fields(State)
    }
    return msgspec.msgpack.encode(fields)


@contextmanager
def uncollected() -> Iterator[None]:
    """Make millions of rows without the garbage collector looking at all of them again and again:
    that took three quarters of the time of a large state's picture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def decode_state(payload: bytes) -> State:
    """A snapshot's payload, this replica's or another's. StorageError if it can't be used here."""
    try:
        state = kept.decode(payload, State)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StorageError(f"the state can't be decoded: {error}") from error
    if state.format != FORMAT:
        raise StorageError(f"the state has format {state.format}, this version's is {FORMAT}")
    for waiting in (state.timers, state.halves):
        if isinstance(waiting, bytes) and len(waiting) % 16:
            raise StorageError("the waiting messages of the state are no pairs of numbers")
    return state


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """A consistent picture of the state, taken but not yet durable."""

    applied_index: int
    needed_index: int
    """It holds the state up to this entry: entries up to here must be durable before it is
    written."""
    generation: int
    """`Machine.generation` when it was taken."""
    synced: frozenset[Path]
    removed: frozenset[Path]
    """The files that writing it makes durable, and those that it removes."""
    write: Callable[[], None]
    """Make it durable. Blocks, so call it in a thread; OSError leaves the old one in place."""


def write_snapshot(path: Path, payload: bytes) -> None:
    """Replace the snapshot at `path`, durably. Blocks; OSError leaves the old one in place."""
    header = _HEADER.pack(_MAGIC, len(payload), crc32(payload))
    failpoint("snapshot.write")
    Disk().replace(path, header + payload)
    failpoint("snapshot.written")


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
