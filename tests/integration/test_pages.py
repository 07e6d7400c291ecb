"""The tutorial and the how-to pages work: each is followed to its end, command by command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# file: (\S+)\n")
PAGE_S = 600.0
"""On a machine that is busy otherwise; alone, most pages take less than a minute."""
SHORT = ("first-application", "alerts")
"""The others take longer, with Spark or chaos runs among them: `./dev test --all` follows them."""
OWN_NETWORK = "127.0.77."
"""Stands for the network 10.0.0. of a page: all of 127/8 is this machine."""
PRELUDE = f"""\
set -euo pipefail
export PATH={Path(sys.executable).parent}:$PATH
finish() {{
  mqcluster down --dir cluster --remove > /dev/null 2>&1 || true
  kill $(jobs -p) 2> /dev/null || true
  wait
}}
trap finish EXIT
"""
THE_CLUSTERS_OWN = (
    "export NAMESRV=$(mqcluster status --dir cluster -o json"
    " | python -c 'import json, sys; print(json.load(sys.stdin)[\"namesrv_addr\"])')"
)
"""The port of the page may be another cluster's, of another test."""


def blocks(page: Path) -> Iterator[tuple[str, str, bool]]:
    """(language, text, whether it is to be run) of each fenced block."""
    for mark, language, text in BLOCK.findall(page.read_text()):
        yield language, text, not mark


def followed() -> list[Path]:
    """The pages with commands to follow."""
    found = [*sorted((DOCS / "tutorial").glob("*.md")), *sorted((DOCS / "how-to").glob("*.md"))]
    return [page for page in found if any(kind == "sh" and run for kind, _, run in blocks(page))]


def script_of(page: Path, directory: Path) -> str:
    """Write the page's files, and return its commands as one script."""
    commands = [PRELUDE]
    for language, written, run in blocks(page):
        text = written.replace("10.0.0.", OWN_NETWORK)
        if named := FILE.match(text):
            (directory / named[1]).write_text(text)
        elif language == "sh" and run:
            commands.append(text.replace("export NAMESRV=127.0.0.1:9876", THE_CLUSTERS_OWN))
    return "\n".join(commands)


def test_each_block_of_a_page_is_seen() -> None:
    """A pattern that runs over a block would leave its commands out without a word."""
    for page in (*(DOCS / "tutorial").glob("*.md"), *(DOCS / "how-to").glob("*.md")):
        fences = re.findall(r"^```", page.read_text(), re.MULTILINE)
        assert 2 * len([*blocks(page)]) == len(fences), page.name


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=() if page.stem in SHORT else pytest.mark.long)
        for page in followed()
    ],
)
def test_a_page_can_be_followed_to_its_end(page: Path, tmp_path: Path) -> None:
    """Its files are saved and its commands run, in their order, in an empty folder."""
    script = script_of(page, tmp_path)
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=PAGE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # A job that ends by no other signal hangs, too.
        printed, _ = process.communicate()
        subprocess.run(["bash", "-c", f"{PRELUDE}true"], cwd=tmp_path, check=False)  # its servers
        pytest.fail(f"not followed in {PAGE_S} s:\n{printed[-4000:]}")
    assert process.returncode == 0, printed[-4000:]
