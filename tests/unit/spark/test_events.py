"""Lines as columns: the quick reader and the careful one find the same events."""

from __future__ import annotations

import json
import random

import pytest

from mqspark.history import events
from mqspark.history.events import columns, event_of, fitting

GOOD = json.dumps(
    {"kind": "ack", "t": 5, "id": "m", "topic": "T", "queue_id": 1, "offset": 2, "size": 7}
).encode()
ODD = [
    *(b"null", b"[1]", b"7", b"", b"  ", b'{"kind":"a', b'{"kind":"x"}{"kind":"y"}', b"{}"),
    *(
        b'{"kind":"\xff"}',
        b'{"kind":"x","t":"5"}',
        b'{"kind":"x","t":5.0}',
        b'{"kind":"x","t":NaN}',
    ),
    *(b'{"kind":"x","t":9223372036854775808}', b'{"kind":"x","queue_id":2147483648}'),
    *(
        b'{"kind":"x","waiting":1}',
        b'{"kind":null}',
        b'{"kind":"x","z":{"t":[1]}}',
        b'{"kind":"\x01"}',
    ),
    *(b'{"kind":"x","due":5}', b'{"kind":"x","d\\u0075e":5}', b'{"kind":"x","key":"\\"due\\""}'),
    *(b' {"kind":"x"} ', b'{"kind":"x"},', b'{"kind":"x","id":"\\ud800"}', b"{'kind':'x'}"),
]


def careful(lines: bytes) -> list[dict[str, object]]:
    """Line by line, without Arrow's reader."""
    return [fitting(event_of(line) or {}) for line in lines.split(b"\n") if line.strip()]


def found(lines: bytes) -> list[dict[str, object]]:
    rows = columns(lines).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_line_takes_nothing_from_its_neighbours(odd: bytes) -> None:
    """An odd line proves nothing, and the lines beside it count."""
    lines = GOOD + b"\n" + odd + b"\n" + GOOD + b"\n"
    rows = found(lines)
    assert rows == [
        {name: value for name, value in row.items() if value is not None} for row in careful(lines)
    ]
    assert (
        rows.count({"kind": "ack", "t": 5, "id": "m", "topic": "T", "queue_id": 1, "offset": 2})
        == 2
    )


def test_the_quick_reader_takes_good_lines_at_once() -> None:
    """Good lines are taken at once, the last one also without its end."""
    assert events._read_at_once(GOOD + b"\n" + GOOD) is not None
    assert len(columns(GOOD + b"\n" + GOOD)) == 2


def test_broken_bytes_are_read_as_the_careful_reader_reads_them() -> None:
    """Lines with bytes changed, lost and added are read as by the careful reader."""
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    for _ in range(300):
        lines = bytearray((GOOD + b"\n") * 2)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(lines))
            lines[at : at + draw.randint(0, 20)] = draw.choice(
                [b"", b"\n", b'"', b"{", b"}", b"\xff"]
            )
        expected = [
            {name: value for name, value in row.items() if value is not None}
            for row in careful(bytes(lines))
        ]
        assert found(bytes(lines)) == expected, (seed, bytes(lines))
