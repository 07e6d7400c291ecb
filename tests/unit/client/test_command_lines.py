"""Numbers on the command lines of all our programs are taken as they stand, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args

import pytest
from cyclopts import App, CycloptsError
from cyclopts.argument import Argument

PROGRAMS = (
    "mqclient.commands.mqadmin",
    "mqchaos.mqcluster",
    "mqchaos.mqchaos",
    "mqchaos.demo",
    "mqspark.mqaudit",
    "mqbroker.mqbroker",
    "mqnamesrv.mqnamesrv",
)


def arguments_of(app: App) -> Iterator[Argument]:
    """The arguments of a program and of its commands."""
    if app.default_command is not None:
        yield from app.assemble_argument_collection()
    for name in app:
        if not name.startswith("-"):
            yield from arguments_of(app[name])


def takes(argument: Argument, kind: type) -> bool:
    """Whether a value of this kind is meant, or none."""
    hint: Any = argument.hint
    return hint is kind or kind in get_args(hint)


def refused(argument: Argument, text: str) -> str | None:
    """Why a text is refused as the argument's value; None if it is not."""
    given = App()

    def run(*, value: Any = None) -> None:
        """Do nothing with the option's value."""

    hint = argument.field_info.annotation
    run.__annotations__ = {"value": hint}
    given.default(run)
    option = given.assemble_argument_collection()[0].name
    try:
        given.parse_args([option, text], print_error=False, exit_on_error=False)
    except CycloptsError as error:
        return str(error)
    return None


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_whole_number_is_neither_rounded_nor_read_otherwise(program: str) -> None:
    """A whole number with a fraction is refused with the option's name, and not rounded."""
    for argument in arguments_of(import_module(program).app):
        if takes(argument, int):
            for text in ("1.5", "2.0", "1e3", "0x10", "1_000", "nan", "\u0663", "9" * 20, ""):
                reason = refused(argument, text) or "taken"
                assert "is not a whole number" in reason, (argument.names, text)
            assert refused(argument, "5") is None, argument.names
