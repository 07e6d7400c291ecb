"""A log with any content and right checksums is judged.

A broker that writes nonsense, and its checksums over that, is no disk that damages bytes: nothing
but the audit's own reading stands between what it wrote and the judges.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from dledger.log.entry import HEADER_BYTES, Kind
from dledger.log.head import LogHead, encode_head
from dledger.log.segments.segment import segment_path
from mqspark.auditing import judge_run, write_report
from mqspark.source.planning import Replica
from mqspark.testing import planting
from mqspark.testing.rewriting import read_log
from mqspark.testing.small_making import small_run
from mqspark.testing.small_runs import (
    SEGMENT_BYTES,
    TOPIC,
    Stored,
    write_runs,
)
from mqspark.testing.synthetic.log import LogWriter

pytestmark = pytest.mark.long

#: An entry's kind, what it holds where that begins, its term, and its index if it is odd.
Odd = tuple[int, bytes | Stored, int, int | None]
NUMBERS = [0, 1, 2**31, 2**62, 2**63, 2**64 - 1]
VALUES: list[Any] = [
    *(None, "", "x", "\0", "\ud7ff", True, False, 0, -1, 2**31, 2**62, 2**63, 2**64 - 1),
    *(0.5, float("nan"), b"", b"\xff", [], [[1]], [None], {}, {1: 2}, {"": []}),
]
CHANGES: dict[str, dict[str, Any]] = {
    "put_topics": {"topics": [{"topicName": "Odd", "perm": 6}], "now_ms": 1},
    "delete_topic": {"topic": "Odd", "now_ms": 1},
    "put_groups": {"groups": [{"groupName": "odd", "consumeEnable": True}], "now_ms": 1},
    "delete_group": {"group": "odd", "now_ms": 1},
    "commit_offsets": {"offsets": [["odd", "Odd", 0, 1]]},
    "settle_popped": {"acks": [["odd", "Odd", 0, 1, 2, b"\x01"]], "now_ms": 1},
}
PROPERTIES = ["", " ", "\0", "x" * 300, "1 2 3", "1 2 zz 3", "\u202e", "-1 -1 -1 0,0 0 0", "9" * 40]


def changed(value: Any) -> Iterator[Any]:
    """A value with another one in the place of each that it holds, one at a time."""
    yield from VALUES
    if isinstance(value, dict | list):
        places = value.items() if isinstance(value, dict) else enumerate(value)
        for place, inner in [*places]:
            for other in changed(inner):
                copy = value.copy()
                copy[place] = other
                yield copy


def odd_changes() -> Iterator[Odd]:
    """Changes of state: each field of each kind that judges read, and wrong ones."""
    for name, arguments in CHANGES.items():
        for other in changed(arguments):
            yield Kind.CONTROL, msgspec.msgpack.encode((name, other)), 9, None
    for body in (b"", b"\xc1", b"\x92", b"\x91\xa1x", b"\x92\x01\x80", bytes(64), b"\x93\xa1x\x80"):
        yield Kind.CONTROL, body, 9, None


def odd_records(draw: random.Random) -> Iterator[Odd]:
    """Messages: four bytes of a record at a time, and what names large bodies and their parts."""
    record = Stored("odd-record", TOPIC, 0, 9_999, b"body of a record")
    for at in range(0, len(record.raw(0)), 4):
        for noise in (bytes(4), b"\xff\xff\xff\xff", draw.randbytes(4)):
            raw = record.raw(0)
            yield Kind.MESSAGES, raw[:at] + noise[: len(raw) - at] + raw[at + 4 :], 9, None
    for number, text in enumerate(PROPERTIES):
        name = f"odd-{number}"
        yield Kind.MESSAGES, Stored(f"{name}{text}", TOPIC, 1, 10_000, b"", keys=text), 9, None
        yield Kind.MESSAGES, Stored(name, TOPIC, 1, 10_000, b"", own=text), 9, None
        yield Kind.MESSAGES, Stored(name, TOPIC, 1, 10_000, b"", part_of=text), 9, None


def odd_headers() -> Iterator[Odd]:
    """Entries with numbers that no log has."""
    for number in NUMBERS:
        yield Kind.NOOP, b"", number, None
        yield Kind.NOOP, b"", 9, number
        yield number % 2**32, b"", 9, None
        yield number % 2**32, bytes(64), 9, None


def odd_heads() -> Iterator[LogHead]:
    """Heads with right checksums, of another log."""
    for base in (0, SEGMENT_BYTES, 7 * SEGMENT_BYTES, 1, SEGMENT_BYTES * 2**40):
        for first in (1, 2, 2**31, 2**62):
            yield LogHead(base, first, 1)
    yield LogHead(SEGMENT_BYTES, 9, 1, b"\0" * HEADER_BYTES)


def write_behind(replica: Replica, odd: Sequence[Odd]) -> None:
    """Append entries to a log, with checksums that are right."""
    entries = read_log(replica)
    folder = Path(replica.directory)
    for base in replica.segments:
        segment_path(folder / "log", base).unlink()
    log = LogWriter(folder, replica.segment_bytes)
    for entry in entries:
        log.next_index = entry.index
        log.append(entry.kind, entry.body, entry.term)
    for kind, held, term, index in odd:
        body = held
        if isinstance(held, Stored):
            body = held.raw(log.body_position(len(held.raw(0))))
        assert isinstance(body, bytes)
        log.next_index = log.next_index if index is None else index
        log.append(kind, body, term)
        log.next_index %= 2**64
    log.close()


def test_no_entry_ends_an_audit(session: SparkSession, tmp_path: Path) -> None:
    """Odd records, changes of state, headers and heads end no audit, and the rest is judged."""
    draw = random.Random(11)
    behind: dict[str, Sequence[Odd]] = {"sound": []}
    for name, odd in (("changes", odd_changes()), ("records", odd_records(draw))):
        behind[name] = [*odd]
    behind |= {f"header{number}": [each] for number, each in enumerate(odd_headers())}
    heads = {f"head{number}": head for number, head in enumerate(odd_heads())}
    runs = [small_run(name, name, pops=True) for name in (*behind, *heads)]
    history, stores = write_runs(runs, tmp_path / "runs")
    for replica in planting.replicas_of(stores):
        alike = draw.random() < 0.5 or replica.broker in {"changes", "records"}
        if replica.broker in behind and (alike or replica.node == "n1"):
            write_behind(replica, behind[replica.broker])
        elif replica.broker in heads and replica.node == "n1":
            path = Path(replica.directory) / "log" / "head"
            path.write_bytes(encode_head(heads[replica.broker]))
    verdict = judge_run(session, history, planting.replicas_of(stores), lambda _: None)
    assert not verdict.holds
    write_report(verdict, tmp_path / "report", "mqaudit", 1.0)
    told = (tmp_path / "report" / "verdict.json").read_text()
    assert '"sound"' not in told
