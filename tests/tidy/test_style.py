"""The house style, as far as a program can hold it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Source

FUNCTION_LINES_MAX = 50
"""Lines without signature and docstring: a function fits on a screen."""
UNROLLED = {"dledger.remoting.record.encode.encode_record"}
"""Called once a message: its parts are inlined for speed."""
MODULE_LINES_MAX = 500
THEORY_CHARACTERS_MIN = 24


WITH_UNITS = re.compile(r"_?[A-Z_]*(?<=_)(S|MS|MAX|MIN)$")
CONVERSION = re.compile(r"_?[NMU]?S_PER_[NMU]?S")
"""How many of one unit another one is: a fact, no bound."""


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement on: what one has to hold in mind."""
    told = ast.get_docstring(function) is not None
    statements = function.body[1:] if told else function.body
    return (function.end_lineno or 0) - statements[0].lineno + 1 if statements else 0


def test_functions_fit_on_a_screen(modules: list[Source]) -> None:
    """A longer one has two jobs, or a table in it that wants a name."""
    long = [
        f"{module.name}.{function.name}: {body_lines(function)}"
        for module in modules
        for function in module.functions()
        if body_lines(function) > FUNCTION_LINES_MAX
        and f"{module.name}.{function.name}" not in UNROLLED
    ]

    assert not long, chr(10).join(long)


def test_modules_are_short(modules: list[Source]) -> None:
    """Modules have a bound of lines; a longer one is two."""
    long = [
        f"{module.name}: {len(module.text.splitlines())}"
        for module in modules
        if len(module.text.splitlines()) > MODULE_LINES_MAX
    ]

    assert not long, chr(10).join(long)


def test_bounds_and_waits_are_kept_in_limits(modules: list[Source]) -> None:
    """A number with a unit that a module gives a name to is one that an operator may look for."""
    elsewhere = [
        f"{module.name}.{target.id}"
        for module in modules
        if not module.name.endswith(".limits") and ".testing" not in module.name
        for target, value in constants(module.tree)
        if WITH_UNITS.fullmatch(target.id) and not CONVERSION.fullmatch(target.id)
        if is_number(value)
    ]

    assert not elsewhere, chr(10).join(elsewhere)


def constants(tree: ast.Module) -> Iterator[tuple[ast.Name, ast.expr]]:
    """Names and values that a module gives outside of functions and classes."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target, node.value


def is_number(value: ast.expr) -> bool:
    """Whether a value is a number, a product of numbers, or both ends of a range.

    A value that follows from another bound is not.
    """
    if isinstance(value, ast.Tuple):
        return all(map(is_number, value.elts))
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float)


def test_modules_open_with_their_theory(modules: list[Source]) -> None:
    """Each module's docstring says in a sentence or more what the module is about."""
    silent = [
        module.name
        for module in modules
        if len(ast.get_docstring(module.tree) or "") < THEORY_CHARACTERS_MIN
        and not module.name.endswith("__main__")
        and len(module.text.splitlines()) > 1
    ]

    assert not silent, chr(10).join(silent)


def test_tests_say_what_they_show(others: list[Source]) -> None:
    """Each test has a docstring: read in a row, they are the specification."""
    silent = [
        f"{module.name}.{function.name}"
        for module in others
        if module.name.startswith("tests.")
        for function in module.functions()
        if function.name.startswith("test_") and ast.get_docstring(function) is None
    ]

    assert not silent, chr(10).join(silent)


def test_no_test_folder_hides_a_package(others: list[Source]) -> None:
    """A folder tests/mqbroker would stand in for the package mqbroker."""
    packages = {"mqbroker", "mqnamesrv", "mqclient", "mqchaos", "mqspark", "mqlocal"}
    folders = {part for module in others for part in module.name.split(".")[1:-1]}

    assert folders & packages == set()


def test_nothing_is_left_for_later(modules: list[Source]) -> None:
    """Stubs and marks are not left; missing work stands in an issue."""
    marks = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    left = [
        f"{module.name}:{number}"
        for module in modules
        for number, line in enumerate(module.text.splitlines(), 1)
        if marks.search(line)
    ]

    assert not left, chr(10).join(left)
