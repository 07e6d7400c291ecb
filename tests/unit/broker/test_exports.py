"""EXPORT_REPLICA: where a copy may be made, and how a client learns of its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from dledger.errors import ConfigError, StorageError
from dledger.ledger import exporting
from dledger.ledger.exporting import Export, ExportPlan
from dledger.log.entry import Kind
from dledger.log.head import LogHead
from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.headers import ExportReplicaResponseHeader, decode_header
from dledger.testing.local import LocalLedger
from mqbroker import limits
from mqbroker.config import BrokerConfig
from mqbroker.testing import served
from mqbroker.testing.requests import ask
from mqspark.testing.synthetic import LogWriter

SEGMENT_BYTES = 16_384
CODE = RequestCode.EXPORT_REPLICA


@asynccontextmanager
async def exporter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: BrokerConfig | None = None
) -> AsyncIterator[Peer]:
    """A broker that has a log of one entry on disk to copy."""
    log = LogWriter(tmp_path / "store", SEGMENT_BYTES)
    log.append(Kind.NOOP, b"")
    log.close()
    plan = ExportPlan(
        tmp_path / "store", "g", "n0", SEGMENT_BYTES, (0,), 1, 1, 0, log.position, LogHead()
    )
    monkeypatch.setattr(LocalLedger, "export_plan", lambda _: plan)
    config = config or BrokerConfig(export_dir=str(tmp_path / "copies"))
    async with served(tmp_path / "queues", config) as (_, peer):
        yield peer


async def test_a_copy_is_begun_and_asked_for_until_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is repeated, because its answer was lost, is answered about the same copy."""
    async with exporter(tmp_path, monkeypatch) as peer:
        told: list[ExportReplicaResponseHeader] = []
        with trio.fail_after(30):
            while not told or not told[-1].is_done:
                answer = await ask(peer, CODE, to="nightly/2026-11-23", exportId="a")
                told.append(decode_header(ExportReplicaResponseHeader, answer))
        again = await ask(peer, CODE, to="nightly/2026-11-23", exportId="a")
        taken = await ask(peer, CODE, to="nightly/2026-11-23", exportId="b")
        while taken.code == ResponseCode.SUCCESS:
            taken = await ask(peer, CODE, to="nightly/2026-11-23", exportId="b")

    target = tmp_path / "copies" / "nightly" / "2026-11-23" / "broker-a-n0"
    assert told[-1].directory == str(target)
    assert (target / "export.json").exists()
    assert decode_header(ExportReplicaResponseHeader, again) == told[-1]
    assert "exists already" in (taken.remark or "")


@pytest.mark.parametrize(
    "to",
    [
        *("", "/etc", "..", "a/../b", "a//b", ".hidden", "-x", "a b", "a\0b", "a\n", "ä", "a/"),
        *("x" * 101, "a/b/c/d/e", "linked/x", "~root", "$HOME", "x" * 100_000),
    ],
)
async def test_a_place_outside_of_what_is_allowed_is_refused(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path outside the permitted directory is refused, and no file is made."""
    (tmp_path / "copies").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "copies" / "linked").symlink_to(tmp_path / "elsewhere")
    async with exporter(tmp_path, monkeypatch) as peer:
        answer = await ask(peer, CODE, to=to, exportId="a")

    assert answer.code == ResponseCode.NO_PERMISSION
    assert len(answer.remark or "") < 500
    assert sorted(path.name for path in (tmp_path / "copies").iterdir()) == ["linked"]
    assert not any((tmp_path / "elsewhere").iterdir())


async def test_copies_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies have a bound in number, since each keeps segments that retention has removed."""
    for number in range(limits.EXPORTS_MAX):
        folder = tmp_path / "copies" / ("a/b" if number % 2 else "c") / f"{number}" / "broker-a-n0"
        folder.mkdir(parents=True)
        (folder / "export.json").touch()
    async with exporter(tmp_path, monkeypatch) as peer:
        refused = await ask(peer, CODE, to="more", exportId="a")
        (folder / "export.json").unlink()
        begun = await ask(peer, CODE, to="more", exportId="a")

    assert f"has {limits.EXPORTS_MAX} copies already" in (refused.remark or "")
    assert begun.code == ResponseCode.SUCCESS


async def test_without_a_directory_in_its_config_a_broker_copies_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker makes no copies by default."""
    async with exporter(tmp_path, monkeypatch, BrokerConfig()) as peer:
        answer = await ask(peer, CODE, to="nightly", exportId="a")

    assert answer.code == ResponseCode.NO_PERMISSION
    assert "names no exportDir" in (answer.remark or "")


async def test_one_copy_is_made_at_a_time_and_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second copy is refused while one is made; a failed one is reported."""
    go_on = trio.Event()
    real: Callable[..., object] = Export.run

    def slow(export: Export, made_at_ms: int) -> object:
        trio.from_thread.run(go_on.wait)
        raise StorageError("the disk is full")

    monkeypatch.setattr(exporting.Export, "run", slow)
    async with exporter(tmp_path, monkeypatch) as peer:
        await ask(peer, CODE, to="one", exportId="a")
        other = await ask(peer, CODE, to="two", exportId="b")
        assert "a copy is being made already" in (other.remark or "")
        go_on.set()
        answer = other
        with trio.fail_after(30):
            while answer.code == 0 or answer is other:
                answer = await ask(peer, CODE, to="one", exportId="a")
        assert answer.remark == "the disk is full"
        monkeypatch.setattr(exporting.Export, "run", real)
        assert (await ask(peer, CODE, to="two", exportId="c")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("exports", ["store", "store/log", ".", "a\0b"])
def test_copies_lie_beside_the_store(exports: str) -> None:
    """Copies are made neither in the store's directory nor in one that holds it."""
    with pytest.raises(ConfigError, match="exportDir"):
        BrokerConfig(store_path_root_dir="store", export_dir=exports).check()
    BrokerConfig(store_path_root_dir="store", export_dir="copies").check()
