"""The project's own sources, parsed, for the tests about its shape."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "dledger",
    "broker/mqbroker",
    "namesrv/mqnamesrv",
    "client/mqclient",
    "chaos/mqchaos",
    "spark/mqspark",
    "chaos/mqlocal",
)


@dataclass(frozen=True)
class Source:
    """A module with its imports, also those inside functions.

    `imports_to_run` are those that are not for types alone, and `imports_at_run_time` those of them
    that come with the module, as they are not in functions.
    """

    path: Path
    name: str
    text: str
    tree: ast.Module
    imports: frozenset[str]
    imports_to_run: frozenset[str]
    imports_at_run_time: frozenset[str]

    @property
    def package(self) -> str:
        """The top-level package that it belongs to."""
        return self.name.partition(".")[0]

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def read(path: Path) -> Source:
    """Parse one file below ROOT."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    parts = path.relative_to(ROOT).with_suffix("").parts
    if any(path.is_relative_to(ROOT / folder) for folder in PACKAGES[1:]):
        parts = parts[1:]
    name = ".".join(parts).removesuffix(".__init__")
    at_run_time = (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    to_run = names(to_run_in(tree))
    return Source(path, name, text, tree, names(ast.walk(tree)), to_run, names(at_run_time))


def to_run_in(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes of a module without those for types alone."""
    ahead: list[ast.AST] = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            ahead += ast.iter_child_nodes(node)


def names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """The full names that import statements among the nodes bring."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def read_below(folders: tuple[str, ...]) -> list[Source]:
    """Every module of some of the project's folders."""
    return parsed(path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


def parsed(paths: Iterable[Path]) -> list[Source]:
    """Parsed files that stay until the run's end, and that the garbage collector leaves alone.

    Trees are some million objects. A worker goes on to other suites' tests, each full collection
    would look at them all, and one that takes a second or two is longer than such a test waits.
    """
    sources = [read(path) for path in paths]
    gc.freeze()
    return sources


@pytest.fixture(scope="session")
def modules() -> list[Source]:
    """The modules of the packages."""
    return read_below(PACKAGES)


@pytest.fixture(scope="session")
def scripts() -> list[Path]:
    return [path for path in sorted((ROOT / "benchmarks").iterdir()) if is_script(path)]


@pytest.fixture(scope="session")
def others(scripts: list[Path]) -> list[Source]:
    """Python outside of the packages: tests, examples, benchmarks with or without a `.py`."""
    return [*read_below(("tests", "examples", "benchmarks", "docs")), *parsed(scripts)]


def is_script(path: Path) -> bool:
    """Whether a file is a Python program without a suffix."""
    return path.is_file() and not path.suffix and path.read_bytes()[:80].find(b"python") > 0
