"""Failpoints of the table are the places in our code."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

from dledger.failpoints import FAILING, PLACES, TORN_WRITE

if TYPE_CHECKING:
    from conftest import Source


def places(module: Source) -> list[str]:
    """The names that a module's calls of `failpoint` have; "?" for one that is computed."""
    calls = [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    named = [call.args[0] for call in calls if call.func.id == "failpoint"]
    return [str(name.value) if isinstance(name, ast.Constant) else "?" for name in named]


def test_each_place_of_the_table_is_in_our_code_once(modules: list[Source]) -> None:
    """A place of the table is in our code once, and the code has no other."""
    found = Counter(place for module in modules for place in places(module))

    assert found == dict.fromkeys(PLACES, 1)


def test_there_are_enough_places() -> None:
    """Places are forty at least, with those that may fail, and the torn write."""
    assert len(PLACES) >= 40
    assert {*FAILING, TORN_WRITE} <= {*PLACES}
