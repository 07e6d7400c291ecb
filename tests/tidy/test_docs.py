"""Names in the docs exist: keys, commands, files. A list that is typed twice would drift."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from mqbroker.config import BrokerConfig
from mqbroker.mqbroker import app as mqbroker
from mqchaos.mqchaos import app as mqchaos
from mqchaos.mqcluster import app as mqcluster
from mqchaos.run.scenarios import RANDOM, SCENARIOS
from mqclient.commands.mqadmin import app as mqadmin
from mqnamesrv.config import NamesrvConfig
from mqnamesrv.mqnamesrv import app as mqnamesrv
from mqspark.mqaudit import app as mqaudit

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ONLY_PARSE = ast.PyCF_ONLY_AST
OURS = ("mq", "dledger")
OUR_FILES = re.compile(r"(dledger|broker|namesrv|client|chaos|spark|tests|benchmarks|docs)/")


@pytest.mark.parametrize("config", [BrokerConfig, NamesrvConfig])
def test_every_key_of_a_config_file_is_explained(config: type[msgspec.Struct]) -> None:
    """A key is explained below its name on the generated page about configuration."""
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    section = page.split("\n## ")[1 if config is BrokerConfig else 2]
    explained = re.findall(r"^- `([\w.]+)`: .+(?:\n  .+)+", section, re.MULTILINE)

    assert explained == sorted(config.__struct_encode_fields__, key=str.lower)


def test_the_readme_names_every_program() -> None:
    """The README names every program of an installation."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    text = (ROOT / "README.md").read_text()

    assert [name for name in scripts if f"`{name}" not in text] == []


def test_the_scenarios_of_the_docs_exist() -> None:
    """A command that is typed as it stands there works."""
    for page in PAGES:
        for name in re.findall(r"--scenario ([a-z]\S*)", page.read_text()):
            assert name in {*SCENARIOS, RANDOM}, page


def test_the_peers_of_the_benchmarks_are_of_this_year() -> None:
    """A version that was the newest more than 366 days ago needs a look for a newer one."""
    text = (ROOT / "benchmarks" / "rivals" / "drivers.py").read_text()
    pinned = re.findall(r'^    "([\w .-]+)": \(\w+, "(\d{4})-(\d\d)"\),$', text, re.MULTILINE)
    today = datetime.now(UTC).date()
    old = [
        name
        for name, year, month in pinned
        if today - date(int(year), int(month), 1) > timedelta(days=366)
    ]

    assert len(pinned) >= 6
    assert old == []


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_what_a_page_points_to_is_there(page: Path) -> None:
    """Links of a page, and our files in its backquotes, exist."""
    text = page.read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    named = [name for name in re.findall(r"`([\w./-]+)`", text) if OUR_FILES.match(name)]
    gone = [link for link in links if not (page.parent / link).exists()]
    gone += [name for name in named if not list(ROOT.glob(f"{name.rstrip('/')}*"))]

    assert gone == []


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    """Tests that a page names exist, by file and name."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text())
    gone = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or f"def {name}(" not in (ROOT / path).read_text()
    ]

    assert gone == []


def test_the_generated_pages_are_up_to_date() -> None:
    """Generated pages are those of `python docs/generate.py`."""
    specification = importlib.util.spec_from_file_location(
        "generate", ROOT / "docs" / "generate.py"
    )
    assert specification is not None
    assert specification.loader is not None
    generate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generate)
    old = [
        name
        for name, text in generate.pages().items()
        if (ROOT / "docs" / "reference" / name).read_text() != text
    ]

    assert old == []


PROGRAMS = {app.name[0]: app for app in (mqnamesrv, mqbroker, mqcluster, mqadmin, mqchaos, mqaudit)}


def examples() -> list[str]:
    """The command lines of all helps, as the page of commands shows them."""
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    found = re.findall(r"^For example:\n\n((?:    .+\n)+)", page, re.MULTILINE)
    return [line.strip() for block in found for line in block.splitlines()]


@pytest.mark.parametrize("line", examples())
def test_an_example_of_a_help_is_a_command_line(line: str) -> None:
    """An example of a help is taken by its program: command and options exist."""
    program, *arguments = shlex.split(line)

    PROGRAMS[program].parse_args(arguments, print_error=False, exit_on_error=False)


def test_each_command_shows_an_example() -> None:
    """A help of each program and command shows an example."""
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    sections = re.split(r"^###? ", page, flags=re.MULTILINE)[1:]
    bare = [section.partition("\n")[0] for section in sections if "\nFor example:\n" not in section]

    assert len(sections) > 80
    assert bare == []


def test_the_overview_of_a_program_says_what_each_command_does() -> None:
    """`mqadmin --help` and others: no name stands there alone."""
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    listed = re.findall(r"^╭─ Commands ─+╮\n((?:│.*│\n)+)", page, re.MULTILINE)
    alone = re.findall(r"^│ ([\w-]+) +│$", "".join(listed), re.MULTILINE)

    assert len(listed) >= len(PROGRAMS)
    assert alone == []


def test_every_page_is_found_from_the_index() -> None:
    """Pages are all linked from docs/index.md, or from a page that it names."""
    index = ROOT / "docs" / "index.md"
    reached, todo = {index}, [index]
    while todo:
        page = todo.pop()
        for link in re.findall(r"\]\(([^)#:]+\.md)", page.read_text()):
            target = (page.parent / link).resolve()
            if target not in reached and ROOT / "docs" in target.parents:
                reached.add(target)
                todo.append(target)

    assert sorted(set((ROOT / "docs").rglob("*.md")) - reached) == []


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_python_on_a_page_is_python(page: Path) -> None:
    """Each block compiles, and what it imports from our packages is there."""
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        tree = compile(block, page.name, "exec", ONLY_PARSE | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OURS):
                module = importlib.import_module(str(node.module))
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.slow
def test_the_site_is_built(tmp_path: Path) -> None:
    """The site is built with all pages in its navigation, and all links checked."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "tutorial" / "first-application" / "index.html").exists()
