"""Bodies in parts, senders' properties, and queues that no client tells of."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dledger.remoting.message import ADDED, properties_encode, sender_crc
from mqspark.screening.large import Lacking, Large, crc_of_both, lacking
from mqspark.screening.logs import OtherQueues, QueuesLook, are_odd
from mqspark.source.planning import SegmentPartition
from mqspark.source.records import sender_crc_in

PIECES = [b"first ", b"second ", b"third"]
BODY = b"".join(PIECES)
NAMED = f"set-1 {len(BODY)} {zlib.crc32(BODY):08x} %PARTS%T b 4 7-8,12"
MESSAGE = Large("b", 0b111, "T", 0, 3, 900, "m", 0, True, NAMED)
PARTS = [
    Large(
        "b",
        0b111,
        "%PARTS%T",
        4,
        offset,
        at,
        f"p{at}",
        zlib.crc32(piece),
        True,
        f"set-1 {len(piece)}",
    )
    for offset, at, piece in zip((7, 8, 12), (100, 200, 300), PIECES, strict=True)
]


@given(st.binary(max_size=300), st.binary(max_size=3000))
def test_two_crcs_make_that_of_both(first: bytes, second: bytes) -> None:
    """The CRC of two pieces follows from theirs, without the bytes."""
    whole = crc_of_both(zlib.crc32(first), zlib.crc32(second), len(second))
    assert whole == zlib.crc32(first + second)


def faults(*found: Large, removed: bool = False) -> list[tuple[int, str]]:
    told = lacking(found, ["T"], {"b": 3}, {"b": removed})
    return [(each.bit, each.what) for each in told]


def test_a_body_whose_parts_are_all_there_is_whole() -> None:
    """A body is whole if all its parts are there, in any order."""
    assert faults(MESSAGE, *PARTS) == []
    assert faults(*reversed(PARTS), MESSAGE) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"holders": 0b101}, [(1, "lost")]),
        ({"is_whole": False}, [(0, "lost"), (1, "lost"), (2, "lost")]),
        ({"large": "set-2 7"}, [(0, "lost"), (1, "lost"), (2, "lost")]),
        ({"queue_offset": 9}, [(0, "lost"), (1, "lost"), (2, "lost")]),
        ({"crc": 5}, [(0, "altered"), (1, "altered"), (2, "altered")]),
        ({"large": "a set 7"}, [(0, "lost"), (1, "lost"), (2, "lost")]),
        ({"large": "set-1 8"}, [(0, "altered"), (1, "altered"), (2, "altered")]),
        ({"crc": None}, [(0, "altered"), (1, "altered"), (2, "altered")]),
    ],
)
def test_a_part_that_is_not_what_was_named_is_told(
    changed: dict[str, object], expected: list[tuple[int, str]]
) -> None:
    """A part that differs from the manifest is told for each replica that has the message."""
    parts = [PARTS[0], replace(PARTS[1], **changed), PARTS[2]]
    assert faults(MESSAGE, *parts) == expected


def test_parts_that_may_have_been_removed_with_old_segments_are_not_missed() -> None:
    """Retention takes parts a little before their message."""
    assert faults(MESSAGE, *PARTS[1:], removed=True) == []
    assert faults(MESSAGE, PARTS[0], PARTS[2], removed=True) != []


@pytest.mark.parametrize(
    "large",
    [
        *("", "a b c", "s 1 zz %PARTS%T b 4 1", "s 1 0 %PARTS%T b 4 1-"),
        *("s 1 0 %PARTS%T b 4 2-1", "s 1 0 %PARTS%T b 4 -5", "s 1 0 %PARTS%T b 4 0-999999999"),
        "s 1 0 %PARTS%T b 4 0-999999999,999999999-0",
    ],
)
def test_what_names_no_parts_is_altered(large: str) -> None:
    """A manifest that can't be read is an altered message, and ends no audit."""
    (found,) = lacking([replace(MESSAGE, large=large)], ["T"], {"b": 3}, {"b": False})
    assert isinstance(found, Lacking)
    assert found.what == "altered"


texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=6)


@given(
    own=st.dictionaries(texts.filter(bool), texts, max_size=5),
    added=st.dictionaries(st.sampled_from(sorted(ADDED)), texts, max_size=3),
    flag=st.integers(-(2**31), 2**31 - 1),
)
def test_what_a_sender_says_is_read_alike_from_a_record(
    own: dict[str, str], added: dict[str, str], flag: int
) -> None:
    """A sender's CRC is the same from a record, whatever properties brokers have added."""
    expected = sender_crc({**own, **added}, flag)
    backwards = dict(reversed([*own.items(), *added.items()]))
    assert sender_crc_in(properties_encode(backwards), flag) == expected
    kept = {name: value for name, value in own.items() if name not in ADDED}
    assert sender_crc(kept, flag) == expected
    assert sender_crc({**kept, "another": "x"}, flag) != expected


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=30), st.data())
def test_queues_of_other_topics_are_odd_where_an_offset_does_not_follow(
    records: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Queues of other topics are odd where an offset does not follow, in any division."""
    whole = data.draw(st.booleans())
    expected, last = False, dict[int, int]()
    for queue, offset in records:
        before = last.get(queue, -1 if whole else offset - 1)
        expected |= offset != before + 1
        last[queue] = offset
    looks: list[QueuesLook] = []
    while records:
        segment = SegmentPartition("b", "n0", ("d",), 0, len(looks), 1)
        seen = OtherQueues(segment)
        for _ in range(data.draw(st.integers(1, 3))):
            size = data.draw(st.integers(1, 10))
            some, records = records[:size], records[size:]
            if some:
                rows = np.array(some, np.int64)
                seen.take(rows[:, 0], rows[:, 1])
        looks.append(seen.look)
    assert are_odd(looks[::-1], {"b": whole}) == expected
