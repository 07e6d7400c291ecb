"""Other users of a server's machine read no message and no setting, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
import trio

from dledger import LedgerConfig, open_ledger
from dledger.errors import ConfigError
from dledger.limits import OTHERS
from dledger.log.entry import Kind
from dledger.testing.local import KeepsNothing
from dledger.testing.logs import capture_logs
from mqbroker import starting
from mqbroker.testing import served
from mqbroker.testing.leading import save
from mqbroker.testing.requests import make_topic, produce_request
from mqchaos.cluster.processes import free_ports
from mqnamesrv.mqnamesrv import run
from mqnamesrv.saved.kv_file import KvStore


@contextmanager
def careless_umask() -> Iterator[None]:
    """Make new files readable and writable for everybody, unless their mode forbids it."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Paths of a folder, itself included, whose mode lets others in."""
    return [
        f"{path.relative_to(folder)} {path.stat().st_mode:o}"
        for path in (folder, *folder.rglob("*"))
        if stat.S_IMODE(path.stat().st_mode) & OTHERS
    ]


def config(folder: Path) -> LedgerConfig:
    return LedgerConfig("g", "n0", {"n0": ("127.0.0.1", free_ports(1)[0])}, folder)


async def test_a_replicas_files_are_its_users_alone(tmp_path: Path) -> None:
    """A replica's folder is private, with its segments, term, members and checkpoints."""
    machine = KeepsNothing()
    with careless_umask():
        async with open_ledger(config(tmp_path / "store"), machine) as ledger:
            await machine.led.wait()
            await ledger.append(b"secret", Kind.MESSAGES)
    assert len(list((tmp_path / "store").rglob("*"))) > 3
    assert open_to_others(tmp_path / "store") == []


async def test_a_brokers_own_files_are_its_users_alone(tmp_path: Path) -> None:
    """A broker's consume queues, key index and snapshots are private."""
    with careless_umask():
        async with served(tmp_path / "store") as (broker, peer):
            await make_topic(peer)
            assert (await peer.request(produce_request("k"), 10)).code == 0
            save(broker.machine)
    assert len(list((tmp_path / "store").rglob("*"))) > 3
    assert open_to_others(tmp_path / "store") == []


async def test_a_folder_of_an_earlier_version_is_closed(tmp_path: Path) -> None:
    """A folder of an earlier version is closed, with a log line for the operator."""
    folder = tmp_path / "store"
    folder.mkdir(0o755)
    folder.chmod(0o755)
    with capture_logs() as logs:
        async with open_ledger(config(folder), KeepsNothing()):
            pass
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (line,) = (line for line in logs if line["event"] == "closed to others")
    assert (line["path"], line["mode"]) == (str(folder), "0755")


async def test_a_folder_that_can_not_be_closed_is_told(tmp_path: Path) -> None:
    """A folder of another user's that can't be closed is logged, and the node starts."""
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o770)
    refused = patch.object(Path, "chmod", side_effect=PermissionError(1, "not permitted"))
    with capture_logs() as logs, refused:
        async with open_ledger(config(folder), KeepsNothing()):
            pass
    (line,) = (line for line in logs if line["event"] == "open to others")
    assert line["remedy"] == f"chmod 0700 {folder}"


async def test_a_name_servers_settings_are_its_users_alone(tmp_path: Path) -> None:
    """The table and its journal are private, new ones and those of an earlier version."""
    path = tmp_path / "kv" / "kv.json"
    with careless_umask():
        for life in range(2):
            store = KvStore(path)
            await store.put("ns", "key", f"value {life}")
            await store.put("ns", "key", f"another {life}")
            assert open_to_others(path.parent) == []
            for each in path.parent.iterdir():
                each.chmod(0o644)


def test_what_is_no_table_is_left_as_it_is(tmp_path: Path) -> None:
    """A kvConfigPath that names somebody else's file is refused, and the file keeps its mode."""
    path = tmp_path / "other"
    path.write_text("not a table")
    path.chmod(0o644)
    with pytest.raises(ConfigError):
        KvStore(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_servers_have_a_umask_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers set a umask for whatever else is made while they run."""
    monkeypatch.setattr(trio, "run", lambda *_: None)
    for start in (lambda: starting.start(None, "127.0.0.1:1", None), run):
        with careless_umask():
            start()
            assert os.umask(0) == OTHERS


def test_the_planted_umask_is_what_it_says(tmp_path: Path) -> None:
    """Files are open under the planted umask, without modes of ours."""
    with careless_umask():
        (tmp_path / "file").touch()
    assert open_to_others(tmp_path)
