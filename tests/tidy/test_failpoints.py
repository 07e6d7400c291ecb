"""The table of failpoints and the places in our code hold together."""

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
    """And the code has none that the table lacks: an order for it would wait for ever."""
    found = Counter(place for module in modules for place in places(module))

    assert found == dict.fromkeys(PLACES, 1)


def test_there_are_enough_places() -> None:
    """At least forty; what may fail, and what is written by halves, is among them."""
    assert len(PLACES) >= 40
    assert {*FAILING, TORN_WRITE} <= {*PLACES}
