"""A replica's folder: of one node of one group for ever, and of one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dledger.errors import StorageError
from dledger.log.disk import Disk

FORMAT_VERSION = 1


@contextmanager
def hold_replica(folder: Path, group: str, node_id: str, segment_bytes: int) -> Iterator[None]:
    """Make the folder if it is new, and keep other processes out of it.

    Raises StorageError if it belongs to another node or group, was made with another segment size,
    or is in use; OSError if it can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(
                f"{folder} is in use by another process. Two on one log would destroy it: "
                "stop the other one, or point this node at its own folder."
            ) from error
        _check_identity(
            folder / "replica.json",
            {
                "format": FORMAT_VERSION,
                "broker_name": group,
                "node_id": node_id,
                "segment_bytes": segment_bytes,
            },
        )
        yield
    finally:
        os.close(descriptor)


def _check_identity(path: Path, identity: dict[str, object]) -> None:
    disk = Disk()
    raw = disk.read(path)
    if not raw:
        disk.replace(path, json.dumps(identity).encode())
        return
    try:
        held = json.loads(raw)
    except ValueError as error:
        raise StorageError(f"{path}: not readable as JSON ({error})") from error
    if held != identity:
        raise StorageError(
            f"{path}: this folder is of {held}, but the config says {identity}. Point the node "
            "at its own folder, or at an empty one so that it copies from its peers."
        )
