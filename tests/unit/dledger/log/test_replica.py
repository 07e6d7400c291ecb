"""A replica's folder belongs to one node of one group, and one process uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.errors import StorageError
from dledger.log.disk import Disk
from dledger.log.replica import hold_replica

MINE = ("broker-a", "n0", 4096)


def refusal(folder: Path, *replica: str | int) -> str:
    """The error of a process that comes with another config."""
    with pytest.raises(StorageError) as refused, hold_replica(folder, *replica):  # type: ignore[arg-type]
        raise AssertionError("it was let in")
    return str(refused.value)


def test_a_folder_is_one_nodes_for_ever(tmp_path: Path) -> None:
    """The error names the settings that differ, and the node itself may come back."""
    for _ in range(2):
        with hold_replica(tmp_path, *MINE):
            pass

    told = refusal(tmp_path, "broker-b", "n0", 4096)
    assert "has broker_name 'broker-a'; the config says broker_name 'broker-b'. Mend" in told
    told = refusal(tmp_path, "broker-a", "n1", 8192)
    assert "has node_id 'n0', segment_bytes 4096; the config says node_id 'n1', segment" in told


def test_what_says_whose_folder_it_is_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is synced, also if a process was killed between writing and syncing."""
    synced, sync_folder = list[Path](), Disk.sync_folder

    def sync(disk: Disk, path: Path) -> None:
        if (path / "replica.json").exists():
            synced.append(path)
        sync_folder(disk, path)

    monkeypatch.setattr(Disk, "sync_folder", sync)
    for _ in range(2):
        with hold_replica(tmp_path, *MINE):
            assert synced.pop() == tmp_path


def test_a_folder_is_of_one_process_at_a_time(tmp_path: Path) -> None:
    """A second one would write over the first one's log."""
    with hold_replica(tmp_path, *MINE):
        assert "in use by another process" in refusal(tmp_path, *MINE)


@pytest.mark.parametrize("content", ["[]", "7", "{"])
def test_a_damaged_description_is_told_by_its_file(tmp_path: Path, content: str) -> None:
    """A damaged description is an error with its file's name."""
    (tmp_path / "replica.json").write_text(content)
    assert refusal(tmp_path, *MINE).startswith(str(tmp_path / "replica.json"))
