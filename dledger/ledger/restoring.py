"""A replica made of a copy: how a group whose replicas are all lost begins its second life.

Whatever a copy holds was committed. Members that are all restored from copies hold equal entries at
equal places, so each may vote and be counted at once: it is made eligible.

Invariant: no entry of the second life has an index and a term that an entry of the first one has.
The crash that would break it: a node of the first life was only away, with entries behind the
copy's end. It comes back, has the longer log, is elected, and takes back what the second life has
acknowledged. So the second life begins in a term that the first one can't have come to: 2^20 terms
after the copy's are two hours of elections without a pause, and then a year of ordinary ones. Such
a node's last entry is of an older term than any entry of the second life, so it can't win an
election against that, and its tail is cut. If it is there before the second life has an entry of
its own, it may be elected: then the group has what that node had kept, and nothing is taken back.

A restore builds its folder beside the store and renames it into place, all of it durable by then:
after a crash there is no store, or a whole one.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from dledger.errors import ConfigError, CorruptLog, StorageError
from dledger.limits import FOLDER_MODE
from dledger.log.disk import Disk, copy_whole
from dledger.log.hard_state import HardState, HardStateFile, read_slots
from dledger.log.recovery.verify import verify_replica
from dledger.log.replica import Manifest, describe_replica, identity_of
from dledger.log.segments.segment import segment_path

TERMS_BETWEEN_LIVES: Final = 1 << 20


def restore_replica(
    copy: Path, folder: Path, *, group: str, node_id: str, segment_bytes: int, state_file: str
) -> Manifest:
    """Make `folder`, which must be empty or not there, a replica with what a copy holds.

    `state_file`: the state machine's snapshot in the copy, if it has one. Blocks for as long as the
    copy takes to be read twice. Raises ConfigError, StorageError, CorruptLog or OSError, and leaves
    `folder` as it was.
    """
    manifest = _check(copy, group, segment_bytes)
    building = folder.with_name(f"{folder.name}.restoring")
    if folder.exists() and any(folder.iterdir()):
        raise StorageError(
            f"{folder} is not empty: it may hold what nobody else has. Move it away first"
        )
    if building.exists():
        raise StorageError(f"{building} is left of a restore that did not end: remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    building.mkdir(FOLDER_MODE)
    try:
        _build(copy, building, manifest, state_file)
        identity, disk = identity_of(group, node_id, segment_bytes), Disk()
        disk.replace(building / "replica.json", json.dumps(identity).encode())
        building.rename(folder)
        disk.sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return manifest


def _check(copy: Path, group: str, segment_bytes: int) -> Manifest:
    """The manifest of a copy that fits and is whole."""
    described = describe_replica(copy)
    if described.manifest is None:
        raise ConfigError(
            f"{copy} is a replica's own folder, not a copy: a broker starts on it as it is"
        )
    if described.group != group:
        raise ConfigError(f"{copy} is a copy of the group {described.group!r}, not of {group!r}")
    if described.segment_bytes != segment_bytes:
        raise ConfigError(
            f"{copy} has segments of {described.segment_bytes} bytes, the config says "
            f"{segment_bytes} (mappedFileSizeCommitLog)"
        )
    checked = verify_replica(copy)
    if checked.damaged or checked.last_index != described.manifest.last_index:
        raise CorruptLog(
            f"{copy} is damaged ({checked.damaged} places; its last entry is {checked.last_index}, "
            f"of {described.manifest.last_index}): `mqadmin verifyLog {copy}` lists them. Take "
            "another copy"
        )
    return described.manifest


def _build(copy: Path, building: Path, manifest: Manifest, state_file: str) -> None:
    """The log with its term and eligibility, and the state."""
    disk, log = Disk(), building / "log"
    log.mkdir(FOLDER_MODE)
    for base in describe_replica(copy).segments:
        with segment_path(copy / "log", base).open("rb") as segment:
            copy_whole(segment, segment_path(log, base))
    head = disk.read(copy / "log" / "head")
    if head:
        disk.replace(log / "head", head)
    slots = read_slots(disk.read(copy / "log" / "term"))
    term = max([manifest.last_term, *(state.term for _, state in slots)])
    hard_state = HardStateFile(log / "term", disk)
    hard_state.save(HardState(term + TERMS_BETWEEN_LIVES, None, eligible=True))
    hard_state.close()
    if (copy / state_file).exists():
        with (copy / state_file).open("rb") as state:
            copy_whole(state, building / state_file)
    disk.sync_folder(log)
    disk.sync_folder(building)
