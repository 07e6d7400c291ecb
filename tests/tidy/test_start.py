"""An operator's command answers at once: it imports no more than it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mqclient.commands.__main__ import COMMANDS

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
    """Neither numpy nor Spark nor the Raft library: each command starts in some 0.2 s."""
    targets = {
        f"mqclient.commands.{target.partition(':')[0]}" for target, _help in COMMANDS.values()
    }
    others = ["mqchaos.mqcluster", "mqchaos.mqchaos", "mqbroker.__main__", "mqspark.mqaudit"]
    modules = [*sorted(targets - {READS_LOGS}), *others]
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(modules=modules, heavy=HEAVY)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()

    assert printed == modules
