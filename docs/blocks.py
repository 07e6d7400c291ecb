"""Fenced blocks of the pages, as the tests read them.

A block of `sh` or `python` is run by a test, or the line before it says why it is not: `<!-- not
run: reason -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *(
        page
        for folder in ("docs", "examples", "benchmarks", "tests")
        for page in sorted((ROOT / folder).rglob("*.md"))
    ),
]
FENCED = re.compile(
    r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
FILE = re.compile(r"# file: (\S+)\n")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    language: str
    text: str
    why_not_run: str

    @property
    def file(self) -> str:
        """The name that the reader saves it by, or nothing."""
        named = FILE.match(self.text)
        return named[1] if named else ""


def blocks(page: Path) -> Iterator[Block]:
    """Each block of a page, in order."""
    for reason, language, text in FENCED.findall(page.read_text()):
        yield Block(page, language, text, reason)


def to_run(language: str, pages: list[Path] = PAGES) -> list[Block]:
    """The blocks of a language that a test runs."""
    return [
        block
        for page in pages
        for block in blocks(page)
        if block.language == language and not block.why_not_run
    ]


def program(page: str, has: str) -> Block:
    """The Python of a page that has this text."""
    (found,) = (
        block for block in to_run("python") if block.page.name == page and has in block.text
    )
    return found
