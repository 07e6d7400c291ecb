"""Programs on the pages are run by tests, or the page says why not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from blocks import PAGES, ROOT, Block, blocks, to_run

LANGUAGES = {"sh", "python", "text", "toml", "ini", "yaml", "json"}
COMMAND = re.compile(
    r"^\$ |^(?:sudo |[A-Z_]+=\S+ )*"
    r"(?:mq(?:admin|audit|broker|chaos|cluster|namesrv)|pip|\./dev) \S+ \S",
    re.MULTILINE,
)
TEMPLATES = ("files.md", "commands.md")
"""Pages that show the form of a command line; examples of helps are held by test_docs.py."""
CASES = [*(ROOT / "tests" / "integration").rglob("test_blocks*.py")]
PROJECTS = "testing.md"
"""The page whose blocks with tests are projects of tests/integration/test_testing_page.py."""
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_each_block_of_a_page_is_seen(page: Path) -> None:
    """A block is fenced, at the margin and in a known language, or a test would skip it."""
    text = page.read_text()
    unknown = [block.text for block in blocks(page) if block.language not in LANGUAGES]
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)

    assert 2 * len([*blocks(page)]) == len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE))
    assert unknown == []
    assert re.findall(r"(?<=\n\n)(?:    |\t)+[^\s-].*", outside) == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_a_block_of_text_is_no_command_in_disguise(page: Path) -> None:
    """A command line in a block of another language would be run by nobody."""
    assert [
        block.text
        for block in blocks(page)
        if block.language == "text" and page.name not in TEMPLATES and COMMAND.search(block.text)
    ] == []


def cases() -> Iterator[tuple[str, str]]:
    """Page and text of each block that a test runs by them."""
    for node in (node for path in CASES for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, (ast.Call, ast.Tuple)):
            values = node.args if isinstance(node, ast.Call) else node.elts
            given = [each.value if isinstance(each, ast.Constant) else None for each in values[:2]]
            match given:
                case [str(page), str(has)] if page.endswith(".md"):
                    yield page, has


def is_run(block: Block) -> bool:
    """A page's commands run its file, a test its tests, or a case the block."""
    by_name = any(block.file and block.file in each.text for each in to_run("sh", [block.page]))
    is_readme = block.page == ROOT / "README.md"
    is_test = block.page.name == PROJECTS and "def test_" in block.text
    is_case = any(block.page.name == page and has in block.text for page, has in cases())
    return by_name or is_readme or is_test or is_case


def test_each_program_of_a_page_is_run() -> None:
    """A Python block of a page is run by a test, word by word, or says why not."""
    assert [f"{b.page.name}: {b.text}" for b in to_run("python") if not is_run(b)] == []
