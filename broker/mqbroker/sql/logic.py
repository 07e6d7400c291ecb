"""Evaluates conditions: comparisons of texts and numbers, and three-valued logic.

A value of None is SQL's NULL: unknown. AND is false if one side is false; OR is true if one side is
true; NOT of unknown is unknown.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from mqbroker.limits import SQL_NEEDLE_CHARACTERS_MAX, SQL_NUMBER_CHARACTERS_MAX

Properties: TypeAlias = "Mapping[str, str]"
Value: TypeAlias = "str | int | float | bool | None"
#: Whether a message with these properties meets the condition; None if that is unknown.
Condition: TypeAlias = "Callable[[Properties], bool | None]"
Expression: TypeAlias = "Callable[[Properties], Value]"

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ORDERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_SEARCHES: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def number(value: Value) -> int | float | None:
    """A value as a number; None if it is none. Text for an infinity is no number."""
    if isinstance(value, bool) or value is None:
        return None
    if not isinstance(value, str):
        return value
    if len(value) > SQL_NUMBER_CHARACTERS_MAX:
        return None
    if _INTEGER.fullmatch(value):
        return int(value)
    return float(value) if _DECIMAL.fullmatch(value) else None


def constant(value: Value) -> Expression:
    """An expression with a constant value."""
    return lambda _: value


def named(name: str) -> Expression:
    """The value of a property; None if the message does not have it."""
    return lambda properties: properties.get(name)


def equal(left: Expression, right: Expression) -> Condition:
    """Two texts are compared as they are written.

    Otherwise the other side decides: a text beside TRUE or FALSE is read as one of them, and a text
    beside a number as a number.
    """

    def check(properties: Properties) -> bool | None:
        one, other = left(properties), right(properties)
        if one is None or other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return one == other
        if isinstance(one, bool) or isinstance(other, bool):
            return _truth(one) is _truth(other)
        return _compare(operator.eq, one, other)

    return check


def ordered(sign: str, left: Expression, right: Expression) -> Condition:
    """`>`, `>=`, `<` or `<=` of numbers."""
    compare = _ORDERS[sign]
    return lambda properties: _compare(compare, left(properties), right(properties))


def is_null(of: Expression) -> Condition:
    """Whether there is no value; never unknown."""
    return lambda properties: of(properties) is None


def within(of: Expression, texts: Sequence[str]) -> Condition:
    """IN: whether a property is one of these."""
    wanted = frozenset(texts)

    def check(properties: Properties) -> bool | None:
        value = of(properties)
        return value in wanted if isinstance(value, str) else None

    return check


def searched(keyword: str, of: Expression, text: str, *, wanted: bool) -> Condition:
    """CONTAINS, STARTSWITH, ENDSWITH, or (not `wanted`) the opposite.

    As with RocketMQ, both are false for a missing property, and for an empty text.
    """
    search = _SEARCHES[keyword]
    if keyword == "CONTAINS" and len(text) > SQL_NEEDLE_CHARACTERS_MAX:
        # `in` compares at each place anew, which is slow for a hundred a's in thirty thousand.
        find = re.compile(re.escape(text)).search
        search = lambda value, _: find(value) is not None  # noqa: E731 -- it replaces a function

    def check(properties: Properties) -> bool:
        value = of(properties)
        return bool(text) and isinstance(value, str) and search(value, text) == wanted

    return check


def negated(condition: Condition) -> Condition:
    """NOT in three-valued logic: unknown (None) stays unknown."""

    def check(properties: Properties) -> bool | None:
        value = condition(properties)
        return None if value is None else not value

    return check


def joined(conditions: Sequence[Condition], *, decided_by: bool) -> Condition:
    """AND (decided by one that is false) or OR (by one that is true)."""

    def check(properties: Properties) -> bool | None:
        unknown = False
        for condition in conditions:
            value = condition(properties)
            if value is decided_by:
                return value
            unknown = unknown or value is None
        return None if unknown else not decided_by

    return check


def _truth(value: Value) -> Value:
    """A text that is compared with TRUE or FALSE, read like Java's Boolean.valueOf."""
    return value.lower() == "true" if isinstance(value, str) else value


def _compare(compare: Callable[[float, float], bool], left: Value, right: Value) -> bool | None:
    one, other = number(left), number(right)
    return None if one is None or other is None else compare(one, other)
