"""Ctrl-C while a command imports what it needs."""

from __future__ import annotations

import random
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ENTRIES = {
    "mqadmin": "mqclient.commands.entry:main",
    "mqaudit": "mqspark.__main__:main",
    "mqbroker": "mqbroker.entry:main",
    "mqchaos": "mqchaos.entry:mqchaos",
    "mqcluster": "mqchaos.entry:mqcluster",
    "mqnamesrv": "mqnamesrv.entry:main",
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


@pytest.mark.parametrize(("name", "entry"), ENTRIES.items())
def test_ctrl_c_ends_a_command_that_still_imports(name: str, entry: str) -> None:
    """Status 130 and one line, whichever import it meets."""
    seed = random.randrange(1 << 32)
    after = random.Random(seed).randint(1, 60)
    print(f"seed {seed}: at import {after}")
    program = PROGRAM.format(entry=entry, after=after)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", f"{name}: interrupted\n")


def test_the_commands_begin_where_their_imports_can_be_interrupted() -> None:
    """These are the installed commands, all of them."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["scripts"] == ENTRIES
