"""Staged entries: what becomes of those that nobody ends, and why a batch is decided once."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting.bodies.staged import Staged, decode_places, encode_places, parse_staged
from dledger.slices import drained
from mqbroker import limits
from mqbroker.leader.staged import Entry, HomeAnswer, ends_of
from mqbroker.state.aside import Unusable, encode_note
from mqbroker.state.decisions import (
    CLOSING,
    GROUP,
    Decided,
    Decisions,
    StagedNote,
    decode_staged_note,
    staged_full,
    staging_group,
)
from mqbroker.state.memory import Memory
from mqbroker.state.rows.picture import Fields
from mqbroker.state.saved.snapshot import FORMAT, decode_state, encode_state

OLD_MS = 1000
entries = st.builds(
    Entry,
    st.integers(0, 20),
    st.builds(Staged, st.just("q"), st.integers(1, 3), st.integers(0, 3), st.just("broker-a")),
    st.sampled_from((OLD_MS - 1, OLD_MS)),
)
tolds = st.builds(
    HomeAnswer,
    st.integers(0, 3),
    st.integers(-1, 3),
    st.none() | st.lists(st.integers(0, 20), unique=True),
)


@given(st.lists(entries, unique_by=lambda entry: entry.offset), tolds)
def test_nothing_that_may_count_is_dropped(found: list[Entry], told: HomeAnswer) -> None:
    """An entry is dropped if its batch is decided without it, or can't be decided any more; ended
    if the decision names it, in that order; else it waits."""
    of_batch = {entry.offset for entry in found if entry.staged.batch == told.batch}
    if told.offsets is not None:
        told = told._replace(offsets=[each for each in told.offsets if each in of_batch])
    ends = ends_of(found, told, OLD_MS)
    named = set(told.offsets or ())
    for offset, staged, stored_ms in found:
        counts = staged.batch == told.batch and offset in named
        is_unknown = staged.batch == told.batch and told.offsets is None
        is_past = staged.batch <= told.batch and not counts and not is_unknown
        is_fenced = staged.batch > told.batch and stored_ms < OLD_MS and told.epoch > staged.epoch
        assert (offset in ends.ended) == counts
        assert (offset in ends.dropped) == (is_past or is_fenced)
        assert (offset in ends.unknown) == is_unknown
        assert (offset in ends.unfenced) == (
            staged.batch > told.batch and stored_ms < OLD_MS and told.epoch <= staged.epoch
        )
    if ends.ended:
        assert list(ends.ended) == list(told.offsets or ())


@given(st.lists(st.integers(-1, 6), max_size=30))
def test_a_batch_is_decided_once(plan: list[int]) -> None:
    """A batch number is decided once, also over restarts (-1).

    A closed name is forgotten, and the one that waited longest if there are too many.
    """
    decisions, last = Decisions(names_max=2), -1
    for index, batch in enumerate(plan):
        if batch < 0:
            rows = decisions.picture()
            decisions = Decisions(names_max=2)
            decisions.restore(rows)
            assert decisions.picture() == rows
        elif batch <= last:
            with pytest.raises(Unusable, match=f"batch {last} is decided"):
                decisions.check("q", batch)
        else:
            decisions.check("q", batch)
            decisions.decide("q", Decided(batch, index, 1))
            last = batch
        decided = decisions.last("q")
        assert (-1 if decided is None else decided.batch) == last
    for name in ("r", "s"):
        decisions.decide(name, Decided(0, 1, 1))
    assert decisions.last("q") is None
    decisions.decide("s", Decided(CLOSING, 1, 1))
    assert len(decisions) == 1


def test_a_name_has_half_of_the_room_at_most() -> None:
    """A name's staged entries have half of their room at most, so that others find some."""
    bound = limits.STAGED_MAX
    assert staged_full({"P": limits.TRANSACTIONS_MAX}, GROUP + "q") is None
    assert staged_full({GROUP + "q": bound // 2 - 1}, GROUP + "q") is None
    assert "'%STAGED%q', which may not have more" in (
        staged_full({GROUP + "q": bound // 2}, GROUP + "q") or ""
    )
    assert staged_full({GROUP + "q": bound // 2}, GROUP + "r") is None
    names = {f"{GROUP}{n}": bound // 64 for n in range(63)}
    assert staged_full(names, GROUP + "1") is not None
    assert staged_full(names, GROUP + "new") is None


def test_a_user_fills_nobody_elses_share() -> None:
    """A user's staged entries count for the user under any name."""
    bound = limits.STAGED_MAX
    assert staging_group("q") == GROUP + "q"
    halves = {staging_group("q", "bob"): bound // 2}
    assert staged_full(halves, staging_group("q", "bob")) is not None
    assert staged_full(halves, staging_group("q", "ann")) is None
    assert staged_full(halves, staging_group("q")) is None


@given(
    st.binary(max_size=20)
    | st.builds(lambda sizes: encode_note(StagedNote(sizes)), st.lists(st.integers(-1, 9)))
)
def test_any_bytes_are_a_note_or_unusable(body: bytes) -> None:
    """A log may hold anything."""
    try:
        note = decode_staged_note(body)
    except Unusable:
        return
    assert decode_staged_note(encode_note(note)) == note


texts = st.text(max_size=30) | st.sampled_from(
    ("q 1 2 broker-a", "q 1 2 ", "q -1 2 a", "q 1 2 a b")
)


@given(texts)
def test_a_property_of_a_user_is_no_staged_entry(text: str) -> None:
    """A text is two numbers, a name and a group, and reads back the same, or is refused."""
    try:
        staged = parse_staged(text)
    except BadInput:
        return
    assert parse_staged(staged.text) == staged


@given(st.binary(max_size=40))
def test_any_bytes_are_places_or_refused(content: bytes) -> None:
    """A decision's content comes from a client."""
    try:
        places = decode_places(content)
    except BadInput:
        return
    assert decode_places(encode_places(places)) == places


def test_a_snapshot_from_before_has_no_decisions() -> None:
    """A snapshot of an older version has no decisions; a new one has them all."""
    old = msgspec.msgpack.encode({"format": FORMAT})
    assert drained(decode_state(old)).decided == []
    memory = Memory()
    decisions = [("q", 7, 100, 10), ("r", 0, 200, 10)]
    memory.decisions.restore(decisions)
    fields: Fields = {}
    drained(memory.picture(fields))
    kept = drained(decode_state(b"".join(encode_state(fields))))
    assert [tuple(row) for row in kept.decided] == decisions
