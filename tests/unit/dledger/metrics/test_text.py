"""Figures as text are parsed by Prometheus's parser as they were written."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parsed

from dledger.metrics import limits
from dledger.metrics.shown import OTHER, Shown
from dledger.metrics.text import Buckets, Family, Writer

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "le")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LABELS = st.dictionaries(NAMES, TEXTS, max_size=4)
VALUES = st.one_of(st.integers(0, 1 << 60), st.floats(allow_nan=False))


def choose(shown: Shown, names: str, weights: dict[str, int], now_s: float) -> None:
    """Take all steps of a choice."""
    for _ in shown.choosing(names, lambda: weights, now_s):
        pass


@given(LABELS, LABELS, VALUES, TEXTS)
def test_samples_are_read_back(
    fixed: dict[str, str], own: dict[str, str], value: float, told: str
) -> None:
    """Samples are read back with any label: quotes, backslashes, line ends, any letters."""
    own = {name: text for name, text in own.items() if name not in fixed}
    family = Family("figure", "gauge", told)
    text = "".join(Writer(fixed).family(family, [(own, value)]))
    ((sample,),) = [each.samples for each in parsed(text)]
    assert sample.labels == fixed | own
    assert sample.value == pytest.approx(float(value))


@given(st.lists(st.floats(0, 1e9), max_size=50), LABELS)
def test_a_histogram_is_read_back(values: list[float], labels: dict[str, str]) -> None:
    """A histogram's buckets have all values up to their bounds, the last one all."""
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
    """A figure that a server does not have is left out, and not 0."""
    assert "".join(Writer({"a": "b"}).family(Family("f", "gauge", "F."), [])) == ""


def test_few_names_are_all_shown() -> None:
    """No name is folded below the bound."""
    shown = Shown(3)
    choose(shown, "abc", {}, 0.0)
    assert [shown.name(name) for name in "abc"] == ["a", "b", "c"]
    assert shown.folded == 0


def test_of_many_names_those_with_most_traffic_are_shown() -> None:
    """The most active of many names are shown, and the others summed up and counted."""
    shown = Shown(2)
    choose(shown, "abcd", {"b": 5, "d": 7}, 0.0)
    assert [shown.name(name) for name in "abcd"] == [OTHER, "b", OTHER, "d"]
    assert shown.folded == 2


def test_a_shown_name_stays_for_a_while() -> None:
    """A shown name stays for a while, so that its counter does not end; a deleted one goes."""
    shown = Shown(2)
    choose(shown, "abcd", {"b": 5, "d": 7}, 0.0)
    choose(shown, "abcd", {"a": 9, "b": 5, "d": 7}, 60.0)
    assert shown.name("a") == OTHER
    choose(shown, "abc", {"a": 9, "b": 5}, 120.0)
    assert [shown.name(name) for name in "abcd"] == ["a", "b", OTHER, OTHER]
    choose(shown, "abcd", {"c": 9, "d": 8}, 700.0)
    assert [shown.name(name) for name in "abcd"] == [OTHER, OTHER, "c", "d"]


@given(st.integers(1, 30), st.lists(st.integers(0, 5), max_size=100), st.integers(1, 40))
def test_a_choice_in_steps_is_that_of_all_at_once(
    names_max: int, traffic: list[int], at_once: int
) -> None:
    """A choice in steps is the same as all at once."""
    weights = {f"{number:03}": weight for number, weight in enumerate(traffic)}
    shown, whole = Shown(names_max), sorted(weights, key=lambda name: (-weights[name], name))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "NAMES_PER_STEP", at_once)
        steps = [*shown.choosing([*weights], lambda: weights, 0.0)]
    assert [name for name in whole if shown.name(name) == name] == sorted(
        whole[:names_max], key=whole.index
    )
    assert len(steps) == (-(-len(whole) // at_once) if len(whole) > names_max else 0)
