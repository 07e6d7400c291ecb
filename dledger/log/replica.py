"""A replica's folder belongs to one node of one group for ever, and to one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from dledger.errors import ConfigError, StorageError
from dledger.files import check_regular
from dledger.limits import FOLDER_MODE, POSITION_MAX
from dledger.log.disk import Disk, close_to_others, make_folder

FORMAT_VERSION = 1
MANIFEST_FILE = "export.json"
PARTIAL_FILE = "export.partial"


class Manifest(msgspec.Struct, frozen=True):
    """The content of a copy of a replica: the log from `first_position` to `end_position`, all of
    it committed. The manifest is written last."""

    version: int
    made_at_ms: int
    first_position: int
    end_position: int
    last_index: int
    last_term: int
    last_chain_crc: int
    segments: int
    linked: int
    copied_bytes: int
    state_index: int = 0
    """The snapshot in the copy reaches this entry at least; 0: there is none."""


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a copy; None for a replica that is none. Raises ConfigError for half a
    copy."""
    try:
        raw = (folder / MANIFEST_FILE).read_bytes()
    except FileNotFoundError:
        if (folder / PARTIAL_FILE).exists():
            raise ConfigError(
                f"{folder} is half a copy: its export was not finished, since the broker ended "
                "meanwhile, or it goes on still. If it does not, remove it and export again"
            ) from None
        return None
    except OSError as error:
        raise ConfigError(f"{folder / MANIFEST_FILE}: {error.strerror}") from error
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{folder / MANIFEST_FILE} is damaged: {error}") from error
    if manifest.version != 1:
        raise ConfigError(f"{folder / MANIFEST_FILE} has version {manifest.version}, not 1")
    return manifest


def identity_of(group: str, node_id: str, segment_bytes: int) -> dict[str, object]:
    """The content of `replica.json`: the replica to which a folder belongs."""
    return {
        "format": FORMAT_VERSION,
        "broker_name": group,
        "node_id": node_id,
        "segment_bytes": segment_bytes,
    }


@contextmanager
def hold_replica(folder: Path, group: str, node_id: str, segment_bytes: int) -> Iterator[None]:
    """Make the folder if it is new, and keep other processes out of it.

    Raises StorageError if it belongs to another node or group, was made with another segment size,
    or is in use; OSError if it can't be written.
    """
    if any((folder / name).exists() for name in (MANIFEST_FILE, PARTIAL_FILE)):
        raise StorageError(
            f"{folder} is an exported copy: a node that started on it could take back what it has "
            "promised since. Start the node on an empty folder; it copies all from its group"
        )
    make_folder(folder)
    close_to_others(folder)
    (folder / "log").mkdir(FOLDER_MODE, exist_ok=True)
    with ExitStack() as stack:
        for held in (folder, folder / "log"):
            stack.enter_context(_locked(held, folder))
        _check_identity(folder / "replica.json", identity_of(group, node_id, segment_bytes))
        yield


@contextmanager
def _locked(held: Path, folder: Path) -> Iterator[None]:
    """Lock a directory for this process. The lock is on the directory itself, not on a file in it,
    which could be removed or replaced."""
    descriptor = os.open(held, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(
                f"{folder} is in use by another process. Two on one log would destroy it: "
                "stop the other one, or point this node at its own folder."
            ) from error
        yield
    finally:
        os.close(descriptor)


class _Identity(msgspec.Struct, frozen=True):
    """Content of replica.json: the node that owns the folder, and the segment size in bytes."""

    format: int
    broker_name: str
    node_id: str
    segment_bytes: Annotated[int, msgspec.Meta(gt=0, le=POSITION_MAX)]


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """The owner of a folder, by its `replica.json`, and where its segments start, in order."""

    group: str
    node_id: str
    segment_bytes: int
    segments: tuple[int, ...]
    manifest: Manifest | None = None


def check_files(paths: Iterable[Path]) -> None:
    """Refuse what is neither a file nor a folder: to open a pipe waits for ever.

    Raises ConfigError, or OSError for a loop of links.
    """
    for path in paths:
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            continue  # A running node removes files; who reads the file says that it is not there.
        check_regular(path, mode, "only files can be read more than once", or_folder=True)


def describe_replica(folder: Path) -> ReplicaDescription:
    """Read a replica's folder, of a running node or not; nothing is changed.

    Raises ConfigError if it is none, or half a copy.
    """
    check_files(path for pattern in ("*", "log/*") for path in folder.glob(pattern))
    path, manifest = folder / "replica.json", read_manifest(folder)
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{folder} is not a replica's directory: it has no replica.json"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    try:
        identity = msgspec.json.decode(raw, type=_Identity)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not the description of a replica: {error}") from error
    if identity.format != FORMAT_VERSION:
        raise ConfigError(
            f"{path}: its format is {identity.format}, and this version reads {FORMAT_VERSION}"
        )
    segment_bytes = identity.segment_bytes
    names = [path.stem for path in (folder / "log").glob("*.seg") if path.stem.isdecimal()]
    segments = tuple(sorted(map(int, names)))
    for position in segments:
        if position % segment_bytes:
            raise ConfigError(
                f"{folder}: segment {position} does not start at a multiple of "
                f"{segment_bytes} bytes, the segment size in replica.json"
            )
        if position + segment_bytes > POSITION_MAX:
            raise ConfigError(f"{folder}: no log reaches to a segment of position {position}")
    return ReplicaDescription(
        identity.broker_name, identity.node_id, segment_bytes, segments, manifest
    )


def is_held(folder: Path) -> bool:
    """Whether a process uses the folder at this moment, so that its files still change."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _check_identity(path: Path, identity: dict[str, object]) -> None:
    disk = Disk()
    raw = disk.read(path)
    if not raw:
        disk.replace(path, json.dumps(identity).encode())
        return
    disk.sync_folder(path.parent)  # a killed process may not have come to that
    try:
        held = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(held, dict):
        raise StorageError(f"{path}: {held!r} does not describe a replica")
    if held != identity:
        keys = [key for key, wanted in identity.items() if held.get(key) != wanted]
        has = ", ".join(f"{key} {held.get(key)!r}" for key in keys)
        says = ", ".join(f"{key} {identity[key]!r}" for key in keys)
        raise StorageError(
            f"{path}: this folder's replica has {has}; the config says {says}. Mend the config, or "
            "point the node at its own folder, or at an empty one so that it copies from its peers."
        )
