"""Commands in a newcomer's hands: no arguments, no Spark, a huge line, another event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from dledger.errors import ConfigError, StorageError
from dledger.ledger.config import LedgerConfig
from dledger.ledger.ledger import open_ledger
from dledger.limits import MESSAGE_BODY_BYTES_MAX
from dledger.program import extras
from dledger.raft.replication.state_machine import StateMachine
from mqbroker.mqbroker import main as mqbroker
from mqchaos import demo, mqchaos
from mqchaos.run.load.workload import read_lines
from mqchaos.run.planned import PLAIN
from mqspark import mqaudit


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spark extra was left out."""
    monkeypatch.setattr(extras, "find_spec", lambda _: None)


@pytest.mark.usefixtures("no_spark")
def test_the_audit_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The audit without its extra says what to install, with status 2."""
    assert mqaudit.audit(history=tmp_path, store=[tmp_path]) == 2
    assert "pip install 'dledger[spark]'" in capsys.readouterr().err


@pytest.mark.usefixtures("no_spark")
async def test_a_run_that_could_not_be_judged_does_not_begin(tmp_path: Path) -> None:
    """A run that could not be judged is refused before it begins."""
    directory = tmp_path / "run"
    with pytest.raises(ConfigError, match="pyspark, pyarrow, pandas, which are not installed"):
        mqchaos._planned("leader-kill", 1, 1, 30.0, "keyed", PLAIN)
    with pytest.raises(ConfigError, match=r"dledger\[spark\]"):
        await demo._demo(None, 1000, 1, directory)
    assert not directory.exists()


def test_mqbroker_without_arguments_asks_for_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """mqbroker without a config serves nothing, makes no store, and says how to try it out."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        mqbroker([])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "-c FILE" in said
    assert "mqcluster up" in said
    assert not list(tmp_path.iterdir())


def test_a_line_that_no_message_can_hold_is_refused_at_the_start(tmp_path: Path) -> None:
    """A line one byte above the largest body is refused, and the largest is taken."""
    source = tmp_path / "text"
    source.write_bytes(b"short\n" + b"x" * MESSAGE_BODY_BYTES_MAX)
    assert len(read_lines(source)) == 2
    source.write_bytes(b"short\n" + b"x" * (MESSAGE_BODY_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match=f"a line of {MESSAGE_BODY_BYTES_MAX + 1} bytes"):
        read_lines(source)


def test_a_text_that_the_disk_can_t_hold_is_refused_at_the_start(tmp_path: Path) -> None:
    """A text that does not fit on the disk three times, once a replica, is refused."""
    demo._refuse_full_disk(tmp_path, 0)
    with pytest.raises(StorageError, match="fewer --messages"):
        demo._refuse_full_disk(tmp_path, 1 << 60)


def test_a_ledger_under_asyncio_says_that_it_needs_trio(tmp_path: Path) -> None:
    """A ledger under asyncio is refused before any file is touched."""
    directory = tmp_path / "n0"
    config = LedgerConfig(
        group="g", node_id="n0", peers={"n0": ("127.0.0.1", 1)}, directory=directory
    )

    async def open_it() -> None:
        async with open_ledger(config, cast(StateMachine, None)):
            pass

    with pytest.raises(ConfigError, match="under trio, not under asyncio"):
        asyncio.run(open_it())
    assert not directory.exists()
