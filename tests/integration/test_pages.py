"""Commands of the pages work: README, tutorial and how-to pages are followed to their end.

Each of these begins in an empty folder and makes a cluster of its own. Commands of other pages run
in a copy of the repository, beside a cluster that they share.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from blocks import PAGES, ROOT, blocks, to_run

PAGE_S = 600.0
"""Seconds for a page on a busy machine; alone, most take less than a minute."""
SHORT = ("README", "first-application", "alerts")
"""The others take longer, with Spark or chaos runs among them: `./dev test --all` follows them."""
OWN_NETWORK = "127.0.77."
"""Stands for the network 10.0.0. of a page: all of 127/8 is this machine."""
OWN_FOLDER = "/tmp/mq"  # noqa: S108 - a folder that a page names
PATH = f"export PATH={Path(sys.executable).parent}:$PATH\n"
PRELUDE = f"""\
set -euo pipefail
{PATH}
finish() {{
  mqcluster down --dir cluster --remove > /dev/null 2>&1 || true
  kill $(jobs -p) 2> /dev/null || true
  wait
}}
trap finish EXIT
"""
ITS_ADDRESS = (
    "$(mqcluster status --dir cluster -o json"
    " | python -c 'import json, sys; print(json.load(sys.stdin)[\"namesrv_addr\"])')"
)
"""The port of the page may be another cluster's, of another test."""
OF_THE_PAGES = "127.0.0.1:9876"
FOLLOWED = [
    page for page in PAGES if page.name == "README.md" or page.parent.name in ("tutorial", "how-to")
]
CHANGED = ("docs", "tests")
"""Folders that commands of pages write to."""


def pages_with_commands(pages: list[Path]) -> list[Path]:
    """The pages that have any to run."""
    return sorted({block.page for block in to_run("sh", pages)})


def script_of(page: Path, directory: Path) -> str:
    """Write the page's files, and return its commands, and programs without a name, as a script."""
    commands = [PRELUDE]
    for block in blocks(page):
        text = block.text.replace("10.0.0.", OWN_NETWORK).replace(OWN_FOLDER, "cluster")
        if block.file:
            (directory / block.file).write_text(text)
        elif block.why_not_run:
            continue
        elif block.language == "sh":
            commands.append(text.replace(OF_THE_PAGES, ITS_ADDRESS))
        elif block.language == "python" and page.name == "README.md":
            program = text.replace(f'"{OF_THE_PAGES}"', "__import__('os').environ['NAMESRV']")
            (directory / "readme.py").write_text(program)
            commands.append(f"NAMESRV={ITS_ADDRESS} python readme.py")
    return "\n".join(commands)


def run(script: str, folder: Path) -> str:
    """Run a script in a folder, and return what it printed."""
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
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
        subprocess.run(["bash", "-c", f"{PRELUDE}true"], cwd=folder, check=False)  # its servers
        pytest.fail(f"not done in {PAGE_S} s:\n{printed[-4000:]}")
    assert process.returncode == 0, printed[-4000:]
    return printed


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=() if page.stem in SHORT else pytest.mark.long)
        for page in pages_with_commands(FOLLOWED)
    ],
)
def test_a_page_can_be_followed_to_its_end(page: Path, tmp_path: Path) -> None:
    """A page's files are saved and its commands run, in their order, in an empty folder."""
    run(script_of(page, tmp_path), tmp_path)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what a clone has, and beside it a cluster with a topic and a consumer group."""
    folder = tmp_path_factory.mktemp("clone")
    for entry in ROOT.iterdir():
        if entry.name in CHANGED:
            shutil.copytree(entry, folder / entry.name)
        elif not entry.name.startswith("."):
            (folder / entry.name).symlink_to(entry)
    beside = tmp_path_factory.mktemp("beside")
    up = f"set -e\n{PATH}mqcluster up --dir cluster --nodes 1 -o json"
    namesrv = json.loads(run(up, beside))["namesrv_addr"]
    admin = f"set -e\n{PATH}export NAMESRV={namesrv} NAMESRV_ADDR={namesrv}\n"
    run(f"{admin}mqadmin updateTopic -t Orders -c DefaultCluster", beside)
    run(f"{admin}mqadmin updateSubGroup -g readers -c DefaultCluster", beside)
    (folder / "prelude").write_text(admin)
    yield folder
    run(f"{PATH}mqcluster down --dir cluster --remove", beside)


@pytest.mark.parametrize(
    "page",
    pages_with_commands([page for page in PAGES if page not in FOLLOWED]),
    ids=lambda page: page.stem,
)
def test_commands_of_a_page_work(page: Path, clone: Path) -> None:
    """A page's commands run in a clone of the repository, in their order."""
    commands = [block.text for block in to_run("sh", [page])]
    run((clone / "prelude").read_text() + "".join(commands), clone)
