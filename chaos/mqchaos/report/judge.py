"""Runs the audit as a separate process: judge and harness share only files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import trio

from dledger.errors import BadInput
from dledger.verdict.form import Verdict, read_verdict
from mqchaos.cluster.processes import ClusterError, log_tail
from mqchaos.limits import JVM_END_S

HOLDS, VIOLATED = 0, 1


def command(stores: Iterable[Path], report: Path, history: Path | None = None) -> list[str]:
    """The command line of mqaudit; without a history it judges the replicas' files alone."""
    given = ["--report", str(report), *(f"--store={store}" for store in stores)]
    if history is not None:
        given += ["--history", str(history)]
    return [sys.executable, "-P", "-m", "mqspark.mqaudit", *given]


async def audit(history: Path, stores: list[Path], report: Path, log: Path) -> Verdict:
    """Judge a run with mqaudit; its files go to `report`, what it prints to `log`.

    Raises ClusterError if it gives no verdict. Cancelled, it is ended with all its children.
    """
    temporary = log.with_name("audit-temporary")
    temporary.mkdir()
    with log.open("ab") as output:
        process = await trio.lowlevel.open_process(
            command(stores, report, history),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"TMPDIR": str(temporary)},
            start_new_session=True,
        )
        try:
            status = await process.wait()
            with trio.move_on_after(JVM_END_S):
                await _until_gone(process.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            shutil.rmtree(temporary, ignore_errors=True)
    try:
        if status not in {HOLDS, VIOLATED}:
            raise BadInput(f"the audit ended with status {status}")
        return read_verdict(report)
    except BadInput as error:
        raise ClusterError(f"{error}.\n{log_tail(log, lines=30)}") from error


async def _until_gone(group: int) -> None:
    """Wait until a process group has no process left."""
    with suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            await trio.sleep(0.05)
