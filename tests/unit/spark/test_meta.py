"""The first line of a history: taken as it is, or refused with the file's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import ConfigError
from mqspark.history.files import RETRIES_DEFAULT, read_meta

META = {"kind": "meta", "t": 1, "topic": "T", "idempotent": False, "retries": 3}
FIELDS = ("topic", "inputs", "group", "idempotent", "retries", "brokers", "levels", "tells")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)


@given(name=st.sampled_from(FIELDS), value=json_values)
def test_any_value_of_a_field_is_taken_or_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: object
) -> None:
    """Null is as if it were not there; what can't be read at all describes nothing."""
    history = tmp_path_factory.getbasetemp() / "any-meta.jsonl"
    history.write_text(json.dumps(META | {name: value}) + "\n")
    try:
        meta = read_meta(history, lambda: {"sent"})
    except ConfigError as refused:
        error = str(refused)
    else:
        error = ""
    if error:
        assert (str(history) in error, f"$.{name}" in error, value is None) == (True, True, False)
        return
    assert all(type(topic) is str for topic in meta.topics)
    assert meta.copies_max >= 1
    if value is None and name != "retries":
        assert meta.retries == (3 if meta.is_described else 0)
    if value is None and name == "retries":
        assert meta.retries == RETRIES_DEFAULT


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"null", b"[]", b'{"kind":"meta"', b'{"kind":"meta","topic":"\\ud800"}', b"\xff"],
)
def test_a_first_line_that_is_no_description_describes_nothing(tmp_path: Path, line: bytes) -> None:
    """A history without a description has the topics that were sent to."""
    history = tmp_path / "h.jsonl"
    history.write_bytes(line + b"\n" + json.dumps(META).encode() + b"\n")
    meta = read_meta(history, lambda: {"sent"})
    assert (meta.topics, meta.is_described) == (("sent",), False)
    with pytest.raises(ConfigError, match="nothing to judge"):
        read_meta(history, set)


@pytest.mark.parametrize("count", [0, -1, 0.5, True, "8", 2**40])
def test_a_number_of_queues_that_no_topic_has_is_refused(tmp_path: Path, count: object) -> None:
    """A wrong number of queues is refused, as the topic's priorities would not be judged."""
    history = tmp_path / "h.jsonl"
    history.write_text(json.dumps(META | {"levels": {"T": count}}) + "\n")
    with pytest.raises(ConfigError, match="levels"):
        read_meta(history, set)
