"""Figures as text: what Prometheus's own parser reads is what was written."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parsed

from dledger.metrics.shown import OTHER, Shown
from dledger.metrics.text import Buckets, Family, Writer

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "le")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LABELS = st.dictionaries(NAMES, TEXTS, max_size=4)
VALUES = st.one_of(st.integers(0, 1 << 60), st.floats(allow_nan=False))


@given(LABELS, LABELS, VALUES, TEXTS)
def test_samples_are_read_back(
    fixed: dict[str, str], own: dict[str, str], value: float, told: str
) -> None:
    """Whatever is in a label: quotes, backslashes, line ends, any letters."""
    own = {name: text for name, text in own.items() if name not in fixed}
    family = Family("figure", "gauge", told)
    text = "".join(Writer(fixed).family(family, [(own, value)]))
    ((sample,),) = [each.samples for each in parsed(text)]
    assert sample.labels == fixed | own
    assert sample.value == pytest.approx(float(value))


@given(st.lists(st.floats(0, 1e9), max_size=50), LABELS)
def test_a_histogram_is_read_back(values: list[float], labels: dict[str, str]) -> None:
    """Each bucket has all values up to its bound; the last one has all."""
    buckets = Buckets((1, 5, 1_048_576))
    for value in values:
        buckets.add(value)
    text = "".join(Writer({}).family(Family("size", "histogram", "Sizes."), [(labels, buckets)]))
    ((*samples,),) = [each.samples for each in parsed(text)]
    by_bound = {s.labels["le"]: s.value for s in samples if s.name == "size_bucket"}
    assert by_bound == {
        le: sum(value <= float(le) for value in values)
        for le in ("1.0", "5.0", "1048576.0", "+Inf")
    }
    others = {s.name: s.value for s in samples if s.name != "size_bucket"}
    assert others["size_count"] == len(values)
    assert others["size_sum"] == pytest.approx(math.fsum(values))


def test_a_family_without_samples_is_not_told() -> None:
    """Nothing that a server does not have is told as 0."""
    assert "".join(Writer({"a": "b"}).family(Family("f", "gauge", "F."), [])) == ""


def test_few_names_are_all_shown() -> None:
    """Nothing is folded below the bound."""
    shown = Shown(3)
    shown.choose(["a", "b", "c"], {}, 0.0)
    assert [shown.name(name) for name in "abc"] == ["a", "b", "c"]
    assert shown.folded == 0


def test_of_many_names_those_with_most_traffic_are_shown() -> None:
    """The others have one name, and their number is told."""
    shown = Shown(2)
    shown.choose("abcd", {"b": 5, "d": 7}, 0.0)
    assert [shown.name(name) for name in "abcd"] == [OTHER, "b", OTHER, "d"]
    assert shown.folded == 2


def test_a_shown_name_stays_for_a_while() -> None:
    """Else its counter would end, and that of the others jump, at every look; a deleted one goes at
    once."""
    shown = Shown(2)
    shown.choose("abcd", {"b": 5, "d": 7}, 0.0)
    shown.choose("abcd", {"a": 9, "b": 5, "d": 7}, 60.0)
    assert shown.name("a") == OTHER
    shown.choose("abc", {"a": 9, "b": 5}, 120.0)
    assert [shown.name(name) for name in "abcd"] == ["a", "b", OTHER, OTHER]
    shown.choose("abcd", {"c": 9, "d": 8}, 700.0)
    assert [shown.name(name) for name in "abcd"] == [OTHER, OTHER, "c", "d"]
