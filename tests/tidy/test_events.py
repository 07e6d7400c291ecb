"""Events that a server warns of are named in the docs, with what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Source

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "events.md"
SERVERS = {"dledger", "mqbroker", "mqnamesrv"}
LEVELS = {"warning": "warning", "error": "error", "exception": "error"}
LOGGERS = {"log", "_log"}
PASS_ON = {"note": "error", "_complain": "warning"}
"""Methods that log the event that they are given."""
ROW = re.compile(
    r"^- `([^`]+)` \((warning|error)\): (.+?)(?=^- |\Z|\n\n)", re.MULTILINE | re.DOTALL
)


def documented() -> dict[str, str]:
    """The events of the page, with their levels."""
    return {event: level for event, level, _ in ROW.findall(PAGE.read_text())}


def logged(module: Source) -> Iterator[tuple[str, str]]:
    """The events that a module logs, with their levels."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for function in ast.walk(module.tree):
        if not isinstance(function, functions):
            continue
        for call in ast.walk(function):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            level = level_of(call.func)
            if level is not None:
                yield from ((event, level) for event in texts(call.args[0], function))


def level_of(called: ast.expr) -> str | None:
    """The level at which a call logs; None if it does not."""
    if isinstance(called, ast.Name):
        return "warning" if called.id == "write" else None  # one event at two levels
    if not isinstance(called, ast.Attribute):
        return None
    if called.attr in PASS_ON:
        return PASS_ON[called.attr]
    of = called.value
    is_logger = isinstance(of, ast.Name) and of.id in LOGGERS
    return LEVELS.get(called.attr) if is_logger else None


def texts(event: ast.expr, function: ast.AST) -> Iterator[str]:
    """The texts that an event may be: of both branches, or of what the function assigned."""
    if isinstance(event, ast.Constant) and isinstance(event.value, str):
        yield event.value
    elif isinstance(event, ast.JoinedStr):
        yield f"not a constant text: {ast.unparse(event)}"
    elif isinstance(event, ast.IfExp):
        yield from texts(event.body, function)
        yield from texts(event.orelse, function)
    elif isinstance(event, ast.Name):
        for each in ast.walk(function):
            if isinstance(each, ast.Assign) and event.id in map(ast.unparse, each.targets):
                yield from texts(each.value, function)


def test_each_event_that_a_server_warns_of_is_documented(modules: list[Source]) -> None:
    """A warning's event is a constant text that the docs have with its level, and no other."""
    found = {
        event: level
        for module in modules
        if module.package in SERVERS and ".testing" not in module.name
        for event, level in logged(module)
    }
    told = documented()

    assert len(found) > 50
    assert {event: level for event, level in found.items() if event not in told} == {}
    assert {event: level for event, level in told.items() if event not in found} == {}


def test_each_event_says_what_happened_and_what_to_do() -> None:
    """Two sentences at least; the page is in order, so an event is found at once."""
    rows = ROW.findall(PAGE.read_text())
    names = [event for event, _, _ in rows]
    assert [event for event, _, text in rows if text.count(".") < 2] == []
    assert names == sorted(names, key=str.lower)
