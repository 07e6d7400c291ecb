"""Turns tokens into a condition, by recursive descent.

::

    or         and ("OR" and)*
    and        not ("AND" not)*
    not        "NOT" not | equality
    equality   comparison (("=" | "<>") comparison | "IS" "NOT"? "NULL")*
    comparison term (order term | "NOT"? ("BETWEEN" term "AND" term | "IN" texts | search text))*
    term       ("+" | "-") term | number | text | TRUE | FALSE | NULL | name | "(" or ")"

Length and depth are bounded, so that neither parsing nor evaluating can run out of stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn, cast

from dledger.errors import BadInput
from mqbroker import limits
from mqbroker.sql import logic
from mqbroker.sql.lexer import Token, tokens
from mqbroker.sql.logic import Condition, Expression, Value

_ORDER_SIGNS: Final = frozenset({">", ">=", "<", "<="})
_SEARCHES: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_INT64: Final = range(-(1 << 63), 1 << 63)


class _Term(NamedTuple):
    """A part of a condition. `kind` is "constant", "property" or "condition"."""

    kind: str
    evaluate: Expression
    depth: int
    value: Value = None


class Filter(NamedTuple):
    """A compiled expression, and the cost of checking one message."""

    condition: Condition
    operations: int
    """The number of comparisons and the like: one message may need all of them."""
    searches: int
    """The number of those that search a whole text."""

    def __call__(self, properties: logic.Properties) -> bool | None:
        """Whether a message with these properties meets the condition; None if that is unknown."""
        return self.condition(properties)


def parse_condition(text: str) -> Filter:
    """Compile an SQL92 expression of a subscription. Raises BadInput saying where it goes wrong."""
    if len(text) > limits.SQL_CHARACTERS_MAX:
        raise BadInput(
            f"an expression of {len(text)} characters; at most {limits.SQL_CHARACTERS_MAX} are read"
        )
    parser = _Parser(text)
    condition = parser.condition(parser.any_of())
    parser.expect("end")
    return Filter(condition, parser.operations, parser.searches)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(tokens(text))
        self._next = 0
        self._depth = 0
        self.operations = 0
        self.searches = 0

    # -- tokens -----------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _take(self, *kinds: str) -> Token | None:
        """Take the next token if it is of one of these kinds."""
        token = self._token
        if token.kind not in kinds:
            return None
        self._next += token.kind != "end"
        return token

    def expect(self, kind: str) -> Token:
        """Take the next token, which must be of this kind."""
        return self._take(kind) or self._fail(kind if kind != "end" else "the end")

    def _fail(self, wanted: str) -> NoReturn:
        token = self._token
        found = "the end" if token.kind == "end" else repr(token.text)
        raise BadInput(f"character {token.at}: expected {wanted}, found {found}")

    def _refuse(self, problem: str) -> BadInput:
        return BadInput(f"before character {self._token.at}: {problem}")

    # -- conditions -------------------------------------------------------------------------

    def any_of(self) -> _Term:
        return self._joined("OR", self._all_of, decided_by=True)

    def _all_of(self) -> _Term:
        return self._joined("AND", self._not, decided_by=False)

    def _joined(self, keyword: str, part: Callable[[], _Term], *, decided_by: bool) -> _Term:
        parts = [part()]
        while self._take(keyword):
            parts.append(part())
        if len(parts) == 1:
            return parts[0]
        conditions = [self.condition(each) for each in parts]
        return self._made(logic.joined(conditions, decided_by=decided_by), *parts)

    def _not(self) -> _Term:
        if not self._take("NOT"):
            return self._equality()
        with_not = self._deeper(self._not)
        return self._made(logic.negated(self.condition(with_not)), with_not)

    def _equality(self) -> _Term:
        left = self._comparison()
        while sign := self._take("=", "<>", "IS"):
            if sign.kind == "IS":
                negative = self._take("NOT") is not None
                self.expect("NULL")
                condition, parts = logic.is_null(left.evaluate), [left]
            else:
                negative = sign.kind == "<>"
                parts = [left, self._comparison()]
                self._check_equal(parts)
                condition = logic.equal(*(part.evaluate for part in parts))
            left = self._made(logic.negated(condition) if negative else condition, *parts)
        return left

    def _comparison(self) -> _Term:
        left = self._term()
        while True:
            if sign := self._take(*_ORDER_SIGNS):
                left = self._ordered(sign.kind, left, self._term())
                continue
            negative = self._token.kind == "NOT"
            self._next += negative
            if self._take("BETWEEN"):
                left = self._between(left, negative)
            elif self._take("IN"):
                left = self._within(left, negative)
            elif search := self._take(*_SEARCHES):
                text = self.expect("string").text
                self.searches += search.kind == "CONTAINS"
                found = logic.searched(search.kind, left.evaluate, text, wanted=not negative)
                left = self._made(found, left)
            elif negative:
                self._fail("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
            else:
                return left

    def _ordered(self, sign: str, left: _Term, right: _Term) -> _Term:
        for each in (left, right):
            if each.kind == "condition" or (
                each.kind == "constant" and logic.number(each.value) is None
            ):
                raise self._refuse(f"only numbers and properties can be compared by {sign}")
            if isinstance(each.value, str):
                raise self._refuse(f"a text can't be compared by {sign}")
        return self._made(logic.ordered(sign, left.evaluate, right.evaluate), left, right)

    def _between(self, left: _Term, negative: bool) -> _Term:
        low = self._term()
        self.expect("AND")
        high = self._term()
        parts = [self._ordered(">=", left, low), self._ordered("<=", left, high)]
        bounds = logic.number(low.value), logic.number(high.value)
        if bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]:
            raise self._refuse(f"nothing is between {low.value} and {high.value}")
        conditions = [self.condition(part) for part in parts]
        condition = logic.joined(conditions, decided_by=False)
        return self._made(logic.negated(condition) if negative else condition, *parts)

    def _within(self, left: _Term, negative: bool) -> _Term:
        if left.kind != "property":
            raise self._refuse("IN needs a property before it")
        self.expect("(")
        texts = [self.expect("string").text]
        while self._take(","):
            texts.append(self.expect("string").text)
        self.expect(")")
        condition = logic.within(left.evaluate, texts)
        return self._made(logic.negated(condition) if negative else condition, left)

    # -- terms ------------------------------------------------------------------------------

    def _term(self) -> _Term:
        if sign := self._take("+", "-"):
            return self._signed(sign.kind, self._deeper(self._term))
        if token := self._take("number"):
            return self._constant(self._number(token))
        if token := self._take("string"):
            return self._constant(token.text)
        if token := self._take("TRUE", "FALSE", "NULL"):
            return self._constant({"TRUE": True, "FALSE": False, "NULL": None}[token.kind])
        if token := self._take("name"):
            return _Term("property", logic.named(token.text), 1)
        if not self._take("("):
            self._fail("a property, a value or a bracket")
        inner = self._deeper(self.any_of)
        self.expect(")")
        return inner

    def _signed(self, sign: str, term: _Term) -> _Term:
        """A number with a sign. A property is text and can't have one."""
        value = logic.number(term.value)
        if term.kind != "constant" or value is None or isinstance(term.value, str):
            raise self._refuse(f"{sign} needs a number behind it")
        return self._constant(-value if sign == "-" else value)

    def _number(self, token: Token) -> int | float:
        if token.text.rstrip("lL").isdecimal():
            value = int(token.text.rstrip("lL")) if len(token.text) <= 20 else 1 << 64
            if value not in _INT64:
                raise BadInput(f"character {token.at}: {token.text[:40]} is beyond 64 bits")
            return value
        approximate = float(token.text)
        if math.isinf(approximate):
            raise BadInput(f"character {token.at}: {token.text[:40]} is beyond a double")
        return approximate

    @staticmethod
    def _constant(value: Value) -> _Term:
        return _Term("constant", logic.constant(value), 1, value)

    # -- what parts may be ------------------------------------------------------------------

    def condition(self, term: _Term) -> Condition:
        """A term as something that is true, false or unknown. A property alone is never true."""
        if term.kind == "constant" and not (term.value is None or isinstance(term.value, bool)):
            raise self._refuse(f"{term.value!r} is not a condition")
        evaluate = term.evaluate
        if term.kind == "condition":
            return cast("Condition", evaluate)

        def check(properties: logic.Properties) -> bool | None:
            value = evaluate(properties)
            return None if value is None else value is True

        return check

    def _check_equal(self, terms: list[_Term]) -> None:
        if any(term.kind == "constant" and term.value is None for term in terms):
            raise self._refuse("nothing equals NULL: write IS NULL or IS NOT NULL")

    def _made(self, condition: Condition, *parts: _Term) -> _Term:
        self.operations += 1
        depth = 1 + max(part.depth for part in parts)
        if depth > limits.SQL_DEPTH_MAX:
            raise self._refuse(f"the expression is deeper than {limits.SQL_DEPTH_MAX}")
        return _Term("condition", condition, depth)

    def _deeper(self, part: Callable[[], _Term]) -> _Term:
        self._depth += 1
        if self._depth > limits.SQL_DEPTH_MAX:
            raise self._refuse(f"the expression is deeper than {limits.SQL_DEPTH_MAX}")
        found = part()
        self._depth -= 1
        return found
