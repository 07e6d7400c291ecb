"""SQL92 filters: which messages a condition is true for, and which texts are refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from mqbroker import limits
from mqbroker.sql import parse_condition

ORDER = {"a": "5", "b": "x", "city": "Oslo", "yes": "true", "price": "3.14", "odd": "a 'b'"}

TRUE = [
    "a = 5",
    "a = 5.0 and a <> 6 And a > 4.5 AND a >= 5 AND a < 6 AND a <= 5",
    "5 = a and 4 < a",
    "a between 5 and 5 AND price not between 4 and 5",
    "a BETWEEN price AND 10",
    "b = 'x' AND b <> 'y'",
    "b in ('y', 'x') and b NOT IN ('z')",
    "a in ('5')",
    "a = '5'",
    "price > 3 AND price > 3.1E0 AND price < 31.5e-1 AND price > .5 AND price < 4.",
    "yes = TRUE and yes <> false",
    "missing is null AND a is not null",
    "missing = 1 or a = 5",
    "NOT (missing = 1 and a = 6)",
    "not a = 6",
    "NOT NOT a = 5",
    "city contains 'sl' and city startswith 'Os' and city endswith 'lo'",
    "city not contains 'x' and city not startswith 'x' and city not endswith 'x'",
    "'axb' contains 'x'",
    "odd = 'a ''b'''",
    "odd contains ''''",
    "a > -5 and a > +4 and a > - -4",
    "a = 5L and a < 9223372036854775807",
    "TRUE",
    "(a = 5) = TRUE",
    "a = 5 -- and a = 6",
    "a /* the number */ = /**/ 5",
    "a = 1 or b = 'x' and a = 5",
    "_x$1 is null",
]
FALSE = [
    "a = 6",
    "a <> 5",
    "b in ('y')",
    "not TRUE",
    "a = 1 and missing = 1",
    "a = TRUE",
]
UNKNOWN = [
    "missing = 1",
    "missing <> 1",
    "b > 1",
    "b <> 1",
    "b between 1 and 2",
    "NOT missing = 1",
    "missing in ('x')",
    "missing not in ('x')",
    "missing = 1 or a = 6",
    "missing = 1 and a = 5",
    "NULL",
    "missing",
]
NEVER_TRUE = ["a", "yes", "missing not contains 'x'", "city contains ''", "city not contains ''"]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        *((text, True) for text in TRUE),
        *((text, False) for text in FALSE),
        *((text, None) for text in UNKNOWN),
        *((text, False) for text in NEVER_TRUE),
    ],
)
def test_a_condition_is_true_false_or_unknown(text: str, outcome: bool | None) -> None:
    """Conditions have the outcomes of RocketMQ's documentation, unknown without a property."""
    assert parse_condition(text)(ORDER) is outcome


def test_the_examples_of_the_documentation_hold() -> None:
    """The documentation's examples hold, with tags as a property."""
    text = (
        "(TAGS is not null and TAGS in ('TagA', 'TagB')) and (a is not null and a between 0 and 3)"
    )
    condition = parse_condition(text)
    passing = [{"TAGS": "TagA", "a": "0"}, {"TAGS": "TagB", "a": "3"}]
    others: list[Mapping[str, str]] = [{"TAGS": "TagC", "a": "1"}, {"TAGS": "TagA", "a": "4"}, {}]
    assert [condition(each) for each in passing] == [True, True]
    assert True not in [condition(each) for each in others]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "character 0: expected a property, a value or a bracket, found the end"),
        ("a = ", "character 4: expected a property"),
        ("a and between 2 and 10", "character 6: expected a property"),
        ("a = 5 b", "character 6: expected the end, found 'b'"),
        ("(a = 5", "expected )"),
        ("a between 10 and 0", "nothing is between 10 and 0"),
        ("a between 'x' and 'y'", "can be compared"),
        ("a > 'x'", "can be compared"),
        ("a > TRUE", "can be compared"),
        ("a > NULL", "can be compared"),
        ("a = NULL", "IS NULL"),
        ("5 in ('5')", "IN needs a property"),
        ("a in (5)", "expected string"),
        ("a in ()", "expected string"),
        ("a contains x", "expected string"),
        ("a not", "expected BETWEEN, IN"),
        ("a + 5 > 3", "expected the end, found '+'"),
        ("-a > 3", "needs a number"),
        ("5", "5 is not a condition"),
        ("'x' or a = 1", "'x' is not a condition"),
        ("a > 100000000000000000000000", "beyond 64 bits"),
        ("a > 9223372036854775808", "beyond 64 bits"),
        ("a > 1" + "1" * 400 + ".5", "beyond a double"),
        ("a = 'open", "begins no word"),
        ("a = 5; drop", "begins no word"),
        ("a = 'x' /* open", "begins no word"),
        ("a LIKE 'x'", "expected the end, found 'LIKE'"),
        ("a = 007", "expected the end"),
    ],
)
def test_what_can_not_be_read_is_refused_with_its_place(text: str, words: str) -> None:
    """A text that can't be parsed is a BadInput with the place of its mistake."""
    with pytest.raises(BadInput) as caught:
        parse_condition(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 4000,
        "(" * 65 + "a = 1" + ")" * 65,
        "not " * 2000 + "TRUE",
        "a = " + "+" * 8000 + "1",
        "TRUE" + " = TRUE" * 1000,
        "a = 1 or " * 1000,
    ],
)
def test_no_expression_is_deeper_or_longer_than_the_bound(text: str) -> None:
    """An expression's depth and length are bounded, so no parse runs out of stack."""
    with pytest.raises(BadInput, match=r"deeper than 64|characters; at most 8192"):
        parse_condition(text)


def test_a_long_and_flat_expression_is_read() -> None:
    """A flat expression of the largest length is parsed: AND and OR cost no depth."""
    text = " or ".join(["a = 1"] * 900) + " or a = 5"
    assert len(text) <= limits.SQL_CHARACTERS_MAX
    assert parse_condition(text)(ORDER) is True


KEYWORDS = "and or not in is null between true contains <> >= 'x' 1.5 2e9"
WORDS = st.sampled_from([*"abc()=<>,'-+.0159", *KEYWORDS.split(" ")])
PROPERTIES = st.dictionaries(st.sampled_from("abc"), st.text(max_size=5) | st.just("1"), max_size=3)


@given(text=st.lists(WORDS, max_size=20).map(" ".join) | st.text(max_size=60), of=PROPERTIES)
def test_any_text_is_a_condition_or_refused(text: str, of: dict[str, str]) -> None:
    """A text is refused, or can be evaluated for any message."""
    try:
        condition = parse_condition(text)
    except BadInput:
        return
    assert condition(of) in (True, False, None)


CONDITIONS = st.recursive(
    st.sampled_from(["a = 1", "b = 1", "TRUE", "FALSE", "NULL", "c is null", "a > b"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: "(" + " ".join(parts) + ")"
        )
        | inner.map(lambda each: f"NOT ({each})")
    ),
    max_leaves=12,
)


def reference(text: str, of: dict[str, str]) -> bool | None:
    """The outcome by Python's own operators; an unknown condition is tried both ways."""
    known = {
        "TRUE": True,
        "FALSE": False,
        "NULL": None,
        "c is null": "c" not in of,
        "a = 1": float(of["a"]) == 1 if "a" in of else None,
        "b = 1": float(of["b"]) == 1 if "b" in of else None,
        "a > b": float(of["a"]) > float(of["b"]) if {"a", "b"} <= of.keys() else None,
    }
    if text in known:
        return known[text]
    if text.startswith("NOT "):
        inner = reference(text[5:-1], of)
        return None if inner is None else not inner
    left, keyword, right = split(text[1:-1])
    values = {reference(left, of), reference(right, of)}
    decided = keyword == "OR"
    if decided in values:
        return decided
    return None if None in values else not decided


def split(text: str) -> tuple[str, str, str]:
    """The two sides of the outermost AND or OR."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        for keyword in (" AND ", " OR "):
            if depth == 0 and text.startswith(keyword, at):
                return text[:at], keyword.strip(), text[at + len(keyword) :]
    raise AssertionError(text)


@given(
    text=CONDITIONS,
    of=st.dictionaries(st.sampled_from("abc"), st.sampled_from(["0", "1", "2.5"]), max_size=3),
)
def test_the_logic_is_sqls(text: str, of: dict[str, str]) -> None:
    """AND, OR and NOT of what is true, false and unknown, however they are nested."""
    assert parse_condition(text)(of) is reference(text, of)
