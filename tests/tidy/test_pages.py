"""The form of pages: short lines and cells, a place in the site, folders that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from blocks import to_run

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *(
        page
        for folder in ("docs", "examples", "benchmarks")
        for page in (ROOT / folder).rglob("*.md")
    ),
]
WIDTH_MAX = 120
SENTENCES_MAX = 2
"""Sentences in a table's cell."""
PACKAGES = {
    "dledger": "dledger",
    "mqbroker": "broker/mqbroker",
    "mqnamesrv": "namesrv/mqnamesrv",
    "mqclient": "client/mqclient",
    "mqchaos": "chaos/mqchaos",
    "mqspark": "spark/mqspark",
}


def lines(page: Path) -> Iterator[tuple[int, str]]:
    """Lines outside of fenced blocks, by number."""
    fence = ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        mark = re.match(r" *(```|~~~)", line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        elif not fence:
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_is_wider_than_an_editor(page: Path) -> None:
    """A word that is wider by itself, such as an address, is excepted, and code in a block."""
    wide = [
        f"{page.name}:{number}"
        for number, line in lines(page)
        if len(line) > WIDTH_MAX and " " in line.strip()
    ]

    assert wide == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_cell_of_a_table_is_short(page: Path) -> None:
    """A cell has at most two sentences; more are a paragraph or a list below the table."""
    long = [
        f"{page.name}:{number}: {cell.strip()}"
        for number, line in lines(page)
        if line.startswith("|")
        for cell in re.split(r"(?<!\\)\|", line)
        if len(re.findall(r"[.?!](?=\s+\S)", cell)) >= SENTENCES_MAX
    ]

    assert long == []


def test_every_page_has_its_place_in_the_site() -> None:
    """A page is in the navigation once."""
    named = sorted(re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]

    assert named == sorted(pages)


def test_the_architecture_names_every_folder() -> None:
    """The architecture page names each package's folders down to the second level, and no other."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    for package, place in PACKAGES.items():
        item = re.search(rf"^- `{package}`: (.+\n(?:  .+\n)*)", text, re.MULTILINE)
        assert item is not None, package
        folders = {
            str(module.parent.relative_to(ROOT / place))
            for module in [*(ROOT / place).glob("*/*.py"), *(ROOT / place).glob("*/*/*.py")]
        }
        assert set(named_folders(item[1])) == folders


def named_folders(text: str) -> Iterator[str]:
    """Folders in backquotes; those in brackets behind one are its own."""
    outer = last = ""
    for part in re.findall(r"[()]|`\w+/`", text):
        if part in ("(", ")"):
            outer = f"{last}/" if part == "(" else ""
        else:
            last = part.strip("`/")
            yield outer + last


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name in ("how-to", "tutorial")],
    ids=lambda page: page.stem,
)
def test_a_page_to_follow_says_how_long_it_takes(page: Path) -> None:
    """A page to follow says near its beginning how long it takes to read and to run."""
    told = re.search(r"^\*\*Time:\*\* (.+)\.$", page.read_text(), re.MULTILINE)

    assert told is not None
    assert ("run" in told[1]) == any(block.page == page for block in to_run("sh"))
