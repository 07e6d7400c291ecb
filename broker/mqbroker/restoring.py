"""Makes a broker's store of a copy that `mqadmin exportReplica` has made.

The log and the state before its first entry are all that a replica needs: queues and the key index
are derived again at its first start.
"""

from __future__ import annotations

from pathlib import Path

from dledger.errors import StorageError
from dledger.ledger.restoring import restore_replica
from dledger.log.disk import Disk
from dledger.log.head import decode_head
from dledger.log.replica import Manifest, check_files
from dledger.slices import drained
from mqbroker.config import BrokerConfig
from mqbroker.state.saved.snapshot import SNAPSHOT_FILE, decode_state, read_snapshot


def restore(copy: Path, config: BrokerConfig) -> Manifest:
    """Fill the empty store of `config` from a copy of its group.

    Raises ConfigError, StorageError or CorruptLog, and OSError; then the store is as it was.
    """
    check_files(copy.glob("*"))
    _check_state(copy)
    return restore_replica(
        copy,
        Path(config.store_path_root_dir),
        group=config.broker_name,
        node_id=config.node_id,
        segment_bytes=config.mapped_file_size_commit_log,
        state_file=SNAPSHOT_FILE,
    )


def _check_state(copy: Path) -> None:
    """A log without its beginning is worth nothing without the state before it."""
    first_index = decode_head(Disk().read(copy / "log" / "head")).first_index
    payload = read_snapshot(copy / SNAPSHOT_FILE)
    reaches = 0 if payload is None else drained(decode_state(payload)).applied_index
    if first_index > reaches + 1:
        raise StorageError(
            f"{copy} can't be restored: its log begins with entry {first_index}, and its snapshot "
            f"reaches entry {reaches}. Take another copy; one of this version has both"
        )
