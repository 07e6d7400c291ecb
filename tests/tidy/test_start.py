"""Starts of programs: commands at once, with few imports; benchmarks at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mqclient.commands.mqadmin import MODULES

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "pandas", "pyarrow", "pyspark", "pysyncobj")
"""Each takes longer to import than a whole command should take."""

READS_LOGS = "mqclient.commands.replica"
"""verifyLog reads gigabytes, for which numpy is worth its start."""

PROGRAM = """
import importlib, sys
for module in {modules}:
    importlib.import_module(module)
    print(module, *(name for name in {heavy} if name in sys.modules))
"""


def test_commands_import_nothing_heavy() -> None:
    """Commands import neither numpy nor Spark nor the Raft library, and start in some 0.2 s."""
    targets = {f"mqclient.commands.{name}" for name in MODULES}
    others = ["mqchaos.mqcluster", "mqchaos.mqchaos", "mqbroker.mqbroker", "mqspark.mqaudit"]
    modules = [*sorted(targets - {READS_LOGS}), *others]
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(modules=modules, heavy=HEAVY)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()

    assert printed == modules


BENCHMARK_PROGRAM = """
import runpy, sys
sys.path.insert(0, {folder!r})
for path in {paths}:
    sys.argv = [path, "--help"]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        print(path, end.code, file=sys.stderr)
"""


def test_benchmarks_start(scripts: list[Path]) -> None:
    """Each explains itself: all that it imports is there, and its options are in order."""
    paths = [*map(str, scripts)]
    program = BENCHMARK_PROGRAM.format(folder=str(ROOT / "benchmarks"), paths=paths)
    told = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    ).stderr

    assert told.splitlines() == [f"{path} 0" for path in paths]


CLIENT = """
import sys
before = {*sys.modules}
from mqclient import Consumer, Message, PopConsumer, Producer, blocking
print(*sorted({*sys.modules} - before))
"""
CLIENT_MODULES_MAX = 460
"""Modules for sending and receiving, Python's own among them; 0.2 s on a slow core."""
NOT_A_CLIENTS = ("mqbroker", "mqnamesrv", "mqchaos", "mqlocal", "mqspark", "dledger.raft")
NOT_A_CLIENTS += ("dledger.ledger", "dledger.testing", "pydantic")
NOT_A_CLIENTS += ("structlog", "rich", "cyclopts", "prometheus_client", "opentelemetry", "pytest")


def test_a_client_imports_no_server_and_nothing_heavy() -> None:
    """A client's imports are judged by name and number, as seconds depend on the machine."""
    argv = [sys.executable, "-c", CLIENT]
    printed = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    imported = printed.stdout.split()
    ours = [name for name in imported if name.partition(".")[0] in ("dledger", "mqclient")]

    assert "mqclient.producing.producer" in imported
    unwanted = (*NOT_A_CLIENTS, *HEAVY)
    assert [name for name in imported if name.startswith(unwanted)] == []
    assert len(imported) <= CLIENT_MODULES_MAX, f"{len(imported)}, of them {len(ours)} ours"


PLANNED = """
import sys
from mqspark.topics.data_source import RocketmqSource
RocketmqSource({"columns": "value"}).schema()
print(*({"trio", "mqclient.blocking", "pandas"} & {*sys.modules}))
"""


def test_a_query_is_planned_without_a_client() -> None:
    """Spark starts a process that only asks for the columns: it imports no event loop for that."""
    argv = [sys.executable, "-c", PLANNED]
    printed = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)

    assert printed.stdout.split() == []
