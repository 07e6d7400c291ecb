"""Helps at several widths: paragraphs fill the terminal, and examples can be copied."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from cyclopts import App
from cyclopts.help import format_doc
from rich.console import Console

from dledger.program.helping import FlowingHelp, flowing
from mqbroker.mqbroker import app as mqbroker
from mqchaos.mqchaos import app as mqchaos
from mqchaos.mqcluster import app as mqcluster
from mqclient.commands.mqadmin import app as mqadmin
from mqnamesrv.mqnamesrv import app as mqnamesrv
from mqspark.mqaudit import app as mqaudit

APPS = (mqnamesrv, mqbroker, mqcluster, mqadmin, mqchaos, mqaudit)


def commands() -> Iterator[tuple[App, list[str]]]:
    for app in APPS:
        yield app, []
        for name in app:
            if not name.startswith("-"):
                yield app, [name]


def paragraphs(app: App, tokens: list[str], width: int) -> list[list[str]]:
    """Paragraphs above the tables, without the usage."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False)
    command = app[tokens[0]] if tokens else app
    FlowingHelp().render_description(console, console.options, format_doc(command, "plaintext"))
    above = out.getvalue().rstrip().split("\n\n")
    return [[line.rstrip() for line in each.strip("\n").splitlines()] for each in above]


@pytest.mark.parametrize("app", APPS, ids=lambda app: app.name[0])
def test_a_help_shows_its_paragraphs(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` has its paragraphs between the usage and the tables."""
    app.help_print([], console=Console(width=80, force_terminal=False))

    above = capsys.readouterr().out.partition("╭")[0].split("\n\n", 1)[1]
    shown = [line.rstrip() for line in above.splitlines() if line.strip()]
    assert shown == [line for each in paragraphs(app, [], 80) for line in each if line]


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_of_a_help_ends_early(width: int) -> None:
    """The first word of the next line would not have had room."""
    early = [
        (tokens, line)
        for app, tokens in commands()
        for paragraph in paragraphs(app, tokens, width)
        if not paragraph[0].startswith(" ")
        for line, following in pairwise(paragraph)
        if len(line) + 1 + len(following.split()[0]) < width
    ]

    assert early == []


def test_an_example_of_a_help_stays_a_line() -> None:
    """An example stays on one line, as in the source, on a terminal as wide as an editor."""
    shown = 0
    for app, tokens in commands():
        source = inspect.cleandoc((app[tokens[0]] if tokens else app).help)
        examples = re.findall("^    m.+$", source.partition("For example:\n\n")[2], re.MULTILINE)
        lines = [line for each in paragraphs(app, tokens, 120) for line in each]
        shown += len(examples)
        assert [line for line in lines if line in examples] == examples

    assert shown > 70


def test_paragraphs_flow_and_nothing_else() -> None:
    """Lists and code keep their lines, and blank lines stay between them."""
    assert flowing("One\ntwo.\n\nThree\n\n    a\n    b\n\n- c\n- d\n") == (
        "One two.\n\nThree\n\n    a\n    b\n\n- c\n- d\n"
    )
    assert flowing("") == ""
