"""Examples of docs/how-to/testing.md run as they are, each in a project of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "testing.md"
PLUGINS = {"pytest-asyncio": "asyncio", "pytest-trio": "trio"}


class Project(NamedTuple):
    """A section of the page: what it says to install, to configure, and to write."""

    title: str
    installed: str
    ini: str
    tests: str


def projects() -> list[Project]:
    """The sections that have a test, in order."""
    found = []
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        tests = "\n\n".join(block for block in blocks if "def test_" in block)
        if tests:
            install = re.search(r"^(pip install .*)$", text, flags=re.MULTILINE)
            ini = re.search(r"^```ini\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
            assert install is not None, f"{title} does not say what to install"
            found.append(Project(title, install[1], ini[1] if ini else "", tests))
    return found


def test_the_page_begins_with_examples() -> None:
    """The page's examples are found, one for each kind of application."""
    titles = [project.title for project in projects()]
    assert titles == ["Under asyncio", "Under trio", "With anyio's plugin", "Without an event loop"]


@pytest.mark.parametrize("project", projects(), ids=lambda project: project.title)
def test_an_example_runs_as_it_stands(project: Project, tmp_path: Path) -> None:
    """An example runs without a warning, with the plugins that the page names and no other."""
    (tmp_path / "test_example.py").write_text(project.tests)
    # An empty one, too: else pytest reads the settings of a project around this folder.
    (tmp_path / "pytest.ini").write_text(project.ini or "[pytest]\n")
    others = [name for package, name in PLUGINS.items() if package not in project.installed]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", str(tmp_path)),
            *(option for name in others for option in ("-p", f"no:{name}")),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{project.tests.count('def test_')} passed" in done.stdout
