"""Plain English for users and readers: helps, errors, pages, docstrings, by patterns."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cyclopts import App

from mqbroker.mqbroker import app as mqbroker
from mqchaos.mqchaos import app as mqchaos
from mqchaos.mqcluster import app as mqcluster
from mqclient.commands.mqadmin import app as mqadmin
from mqnamesrv.mqnamesrv import app as mqnamesrv
from mqspark.mqaudit import app as mqaudit

if TYPE_CHECKING:
    from conftest import Source

APPS = (mqnamesrv, mqbroker, mqcluster, mqadmin, mqchaos, mqaudit)
NOT_PLAIN = re.compile(
    r"(?<![Tt]here )\b(?:is|are) (?:no|none)\b(?! longer)|\bno valid\b|\bis not any\b"
    r"|\b[Ww]hoever\b|\blikewise\b|\bas ever\b|\bof (?:which|whom)\b|, say,"
    r"|(?:^|[.:;] )[Ss]o many\b"
)
"""Subjects that are clauses, "is no X" for "is not an X", "say" for "for example", and more."""
NO_BEGINNING = re.compile(r"(?:^|(?<=[.] ))(?:What|Who|Have|Let|One|Those|So|Of|As of)\b")
"""A sentence of a help begins with its verb or its subject."""
OF_THE_STATE = "mqbroker.state."
"""Reasons there are part of the replicated state: all versions must give the same."""


def helps() -> Iterator[tuple[str, str]]:
    """Each command's own text, and that of each option."""
    for app in APPS:
        for name in ("", *(each for each in app if not each.startswith("-"))):
            command = app[name] if name else app
            yield f"{app.name[0]} {name}", inspect.cleandoc(command.help)
            yield from options(command, f"{app.name[0]} {name}")


def options(command: App, name: str) -> Iterator[tuple[str, str]]:
    if command.default_command is not None:
        for argument in command.assemble_argument_collection():
            yield f"{name} {argument.name}", str(argument.parameter.help or "")


def test_a_help_is_plain_english() -> None:
    """Helps are plain English: subject first, and the field's words."""
    wrong = [
        f"{name}: {text}"
        for name, text in ((name, " ".join(text.split())) for name, text in helps())
        if NOT_PLAIN.search(text) or NO_BEGINNING.search(text)
    ]

    assert not wrong, "\n".join(wrong)


def test_an_error_is_plain_english(modules: list[Source]) -> None:
    """Texts with which modules raise errors are plain English."""
    wrong = [
        f"{module.name}:{node.lineno}: {text}"
        for module in modules
        if not module.name.startswith(OF_THE_STATE) and ".testing." not in module.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        for text in texts(node.exc)
        if NOT_PLAIN.search(text)
    ]

    assert not wrong, "\n".join(wrong)


def texts(call: ast.Call) -> Iterator[str]:
    """Arguments of a call that are texts, without what is filled in."""
    for node in (*call.args, *(keyword.value for keyword in call.keywords)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield "".join(map(str, parts))


NO_SUBJECT = re.compile(
    r"(?:Those|They|This|These|Their|Its?|So|Of|Until|That|Who|Whoever|Whose|What|One(?!-)|Have|Let"
    r"|None|As|Such|The same|And|Or|Nor|Also|Else|But|Then|Likewise)\b"
)
"""Docstrings and comments that begin so need what stands above them."""


def test_a_docstring_begins_with_its_subject(modules: list[Source], others: list[Source]) -> None:
    """A noun or a verb begins each docstring of a module, class, function, test or constant."""
    wrong = [
        f"{module.name}:{node.lineno}: {text}"
        for module in (*modules, *others)
        for node, text in docstrings(module.tree)
        if NO_SUBJECT.match(text)
    ]

    assert not wrong, "\n".join(wrong)


def test_a_comment_begins_with_its_subject(modules: list[Source], others: list[Source]) -> None:
    """Comments begin with their subject, as docstrings do, on their first lines."""
    wrong = [
        f"{module.name}:{line}: {text}"
        for module in (*modules, *others)
        for line, text in comments(module.text)
        if NO_SUBJECT.match(text)
    ]

    assert not wrong, "\n".join(wrong)


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments of a module: the number and the words of the first line of each."""
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, _ = token.start
            is_alone = token.line.lstrip().startswith("#")
            if not (is_alone and last == line - 1):
                yield line, token.string.lstrip("#: ")
            last = line if is_alone else last


FIRST_WORDS_MIN = 4
WORDS_MIN = 5
SHORT = re.compile(r"(?:See )?`|[A-Z_]+ \(\d+\)")
"""A reference to another docstring, or a header's request with its code, may be shorter."""


def test_a_docstring_says_more_than_its_name(modules: list[Source], others: list[Source]) -> None:
    """A first sentence of three words, or four words in all, only repeat the name."""
    short = [
        f"{module.name}:{getattr(node, 'lineno', 1)}: {text}"
        for module in (*modules, *others)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if (text := ast.get_docstring(node)) and not SHORT.match(text)
        if len(re.split(r"[.!?]\s", text)[0].split()) < FIRST_WORDS_MIN
        or len(text.split()) < WORDS_MIN
    ]

    assert not short, "\n".join(short)


def docstrings(tree: ast.AST) -> Iterator[tuple[ast.Expr, str]]:
    """Texts that are statements: those of constants and fields stand behind them."""
    ahead = [tree]
    while ahead:
        for node in ast.iter_child_nodes(ahead.pop()):
            match node:
                case ast.Expr(ast.Constant(str(text))):
                    yield node, inspect.cleandoc(text)
                case ast.stmt() | ast.ExceptHandler() | ast.match_case():
                    ahead.append(node)


ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NO_PROSE = re.compile(r"^```.*?^```$|<!--.*?-->|^#.*?$", re.MULTILINE | re.DOTALL)
PART = re.compile(r"\n\s*\n|\n(?= *(?:[-*]|\d+[.]) )|\n(?=[|])|(?<!\\)[|]")
"""Between paragraphs, items of lists, and cells."""
SENTENCE = re.compile(r"(?<=[.?!:])(?:[*_]{1,2})?\s+(?=[A-Z`*])")
CLAUSE_AS_SUBJECT = re.compile(
    r"(?:- )?(?:What|Who|Whoever|Have|Those|One that|Of|So many) [^:]*[.]$"
)
"""A statement that begins so; a question may, a title in bold, and a line that announces a list."""


def sentences(page: Path) -> Iterator[str]:
    """The sentences of a page, outside of code, comments and headings."""
    for part in PART.split(NO_PROSE.sub("\n\n", page.read_text())):
        yield from SENTENCE.split(" ".join(part.split()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_plain_english(page: Path) -> None:
    """Sentences of a page have their subject first, and the field's words."""
    wrong = [
        sentence
        for sentence in sentences(page)
        if NOT_PLAIN.search(sentence) or CLAUSE_AS_SUBJECT.match(sentence)
    ]

    assert wrong == []


NOT_OF_THE_FIELD = re.compile(
    r"(?<![a-z])(?:seat(?:s|ed)?|footing|greeting|sealing|weather(?!/)"
    r"|(?:step|stand|lay|laid|left)s?[ _]aside)(?![a-z])",
    re.IGNORECASE,
)
"""Private words for: may vote, progress, handshake, checkpoints, odds, giving up."""


def test_words_are_the_fields(modules: list[Source], others: list[Source]) -> None:
    """Private words are not in code, tests and pages; the list of changes may name them."""
    sources = (each.path for each in (*modules, *others) if each.path != Path(__file__))
    pages = (page for page in PAGES if page.name != "CHANGELOG.md")
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in (*sources, *pages)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if NOT_OF_THE_FIELD.search(line)
    ]

    assert not wrong, "\n".join(wrong)
