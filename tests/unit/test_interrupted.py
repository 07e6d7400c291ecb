"""Ctrl-C while a command starts."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ENTRIES = {
    "mqadmin": "mqclient.commands.__main__:main",
    "mqaudit": "mqspark.__main__:main",
    "mqbroker": "mqbroker.__main__:main",
    "mqchaos": "mqchaos.entry:mqchaos",
    "mqcluster": "mqchaos.entry:mqcluster",
    "mqnamesrv": "mqnamesrv.__main__:main",
}
PROGRAM = """
import os, signal, sys
from importlib import import_module

# A shell's background job ignores SIGINT; a user's foreground command does not.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    def __init__(self, after):
        self.left = after
    def find_spec(self, name, path=None, target=None):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGINT)

module, _, name = {entry!r}.partition(":")
command = getattr(import_module(module), name)
sys.meta_path.insert(0, Interrupting({after}))
sys.argv = [name, "--help"]
command()
"""


BEFORE = """
import signal, sys
from importlib import import_module

signal.signal(signal.SIGINT, signal.default_int_handler)
seen = []

class Seeing:
    def find_spec(self, name, path=None, target=None):
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            seen.append(name)
        else:
            print(*seen)
            sys.exit()

sys.meta_path.insert(0, Seeing())
module, _, name = {entry!r}.partition(":")
getattr(import_module(module), name)()
"""
PYTHON_STARTS = "Fatal Python error: init_import_site"
"""An interpreter's words, with status 1, if it is interrupted before its first frame."""
OURS = {"dledger", "mqbroker", "mqchaos", "mqclient", "mqnamesrv", "mqspark"}
OF_THE_START = re.compile(r"/(__init__|__main__|entry|entering|version)\.py$")


def as_in_the_foreground() -> None:
    """Heed SIGINT in a child, as a shell's background job does not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("entry", ENTRIES.values())
def test_a_command_sees_to_ctrl_c_before_it_imports_what_takes_time(entry: str) -> None:
    """A command imports only its own packages before it sees to Ctrl-C."""
    program = BEFORE.format(entry=entry)
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    imported = told.stdout.split()
    assert {name.partition(".")[0] for name in imported} <= {*OURS, "__future__"}
    assert 0 < len(imported) < 12, imported


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.long)])
def test_ctrl_c_at_any_moment_of_a_start(times: int) -> None:
    """Ctrl-C after Python's own start gives status 130, unless the command is done."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    folder = Path(sys.executable).parent
    modules = {entry.partition(":")[0].removesuffix(".__main__") for entry in ENTRIES.values()}
    starts = [[str(folder / name)] for name in ENTRIES]
    starts += [[sys.executable, "-m", name] for name in modules if name != "mqchaos.entry"]
    for start in starts:
        for _ in range(times):
            process = subprocess.Popen(
                [*start, "--help"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=as_in_the_foreground,  # noqa: PLW1509 - nothing runs beside it
            )
            time.sleep(rng.random() / 2)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=120)
            if said.startswith(PYTHON_STARTS):
                continue
            if "Traceback" not in said:
                assert process.returncode in (0, 130, -signal.SIGINT), (start, said)
                continue
            ours = [path for path in re.findall(r'File "(.*?)"', said) if "/mq" in path]
            assert all(OF_THE_START.search(path) or path == start[0] for path in ours), said


@pytest.mark.parametrize(("name", "entry"), ENTRIES.items())
def test_ctrl_c_ends_a_command_that_still_imports(name: str, entry: str) -> None:
    """Ctrl-C during an import ends a command with status 130 and one line."""
    seed = random.randrange(1 << 32)
    after = random.Random(seed).randint(1, 60)
    print(f"seed {seed}: at import {after}")
    program = PROGRAM.format(entry=entry, after=after)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", f"{name}: interrupted\n")


def test_the_commands_begin_where_their_imports_can_be_interrupted() -> None:
    """The installed commands are those of this test."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["scripts"] == ENTRIES
