"""The manifest of a large message, which names the parts of its body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.record import encode_record
from mqclient import BadMessage, Message, limits
from mqclient.large.manifest import Manifest, parts_of, runs_of
from mqclient.large.sending import check_large
from mqclient.models import ReceivedMessage

QUEUE = MessageQueue("%PARTS%T", "broker-a", 3)
GOOD = "id 9 0000ffff %PARTS%T broker-a 3 7-9,12"


@given(
    st.sets(st.integers(0, 400), min_size=1, max_size=limits.LARGE_PARTS_MAX),
    st.integers(1, limits.LARGE_BODY_BYTES_MAX),
    st.integers(0, 2**32 - 1),
)
def test_a_manifest_is_read_as_it_was_written(offsets: set[int], size: int, crc: int) -> None:
    """A manifest is read as it was written, for any offsets, and fits into a property."""
    runs = runs_of(sorted(offsets))
    assert [each for a, b in runs for each in range(a, b + 1)] == sorted(offsets)
    manifest = Manifest("id", size, crc, QUEUE, runs)
    assert Manifest.decode(manifest.encode()) == manifest


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (0, "a b"),
        (1, "-1"),
        (1, str(limits.LARGE_BODY_BYTES_MAX + 1)),
        (1, "9" * 5000),
        (1, "x"),
        (2, "xyz"),
        (3, "Orders"),
        (4, ""),
        (5, "-1"),
        (5, "65537"),
        (6, ""),
        (6, "9-7"),
        (6, "7,7"),
        (6, "9,7"),
        (6, "-5"),
        (6, "7-"),
        (6, f"0-{limits.LARGE_PARTS_MAX}"),
        (6, f"0-{2**63}"),
        (6, "\u0667"),
    ],
)
def test_what_names_no_parts_is_refused(part: int, value: str) -> None:
    """A manifest with numbers beyond bounds, other topics, or offsets that go back is refused."""
    fields = GOOD.split(" ")
    assert Manifest.decode(GOOD).runs == [(7, 9), (12, 12)]
    fields[part] = value
    if part == 4:
        fields = fields[:4] + fields[5:]
    with pytest.raises(BadInput, match="names no parts"):
        Manifest.decode(" ".join(fields))


@given(st.text(max_size=60) | st.lists(st.sampled_from([*GOOD, " "])).map("".join))
def test_no_text_does_harm(text: str) -> None:
    """A manifest's text is read, or refused as bad input."""
    try:
        manifest = Manifest.decode(text)
    except BadInput:
        return
    assert sum(last - first + 1 for first, last in manifest.runs) <= limits.LARGE_PARTS_MAX


def test_a_body_is_cut_without_a_gap() -> None:
    """A body is cut without a gap into parts that bear the set's id and fit into records."""
    body = bytes(range(256)) * 10_000
    parts = list(parts_of(Message("T", body), "id"))
    assert b"".join(part.body for part in parts) == body
    assert {part.topic for part in parts} == {"%PARTS%T"}
    assert [len(part.body) for part in parts] == [limits.LARGE_PART_BYTES] * 2 + [462_848]
    assert all(part.properties == {"LARGE_PART": "id"} for part in parts)


def test_what_can_not_be_sent_in_parts_is_refused() -> None:
    """A message that can't be sent in parts is refused before any part is sent."""
    with pytest.raises(BadMessage, match="at most 268435456 are sent"):
        check_large(Message("T", b"x" * (limits.LARGE_BODY_BYTES_MAX + 1)))
    with pytest.raises(BadMessage, match="can't be delayed"):
        check_large(Message("T", b"x", delay_s=1))


def test_a_malformed_message_is_handed_out_as_it_is() -> None:
    """A malformed message is handed out; fields that can't be read are absent."""
    data = encode_record(
        topic=b"T",
        queue_id=0,
        body=b"",
        properties=b"\xff\xfe\x01x\x02",
        born_timestamp_ms=0,
        born_host=bytes(8),
    )
    for cut in (len(data), len(data) - 3, 88, 80):
        message = ReceivedMessage(memoryview(data)[:cut], "b")
        assert (message.large_bytes, message.manifest) == (0, "")
        assert (message.expires_ms, message.priority) == (None, -1)
        assert message.held_bytes == cut
