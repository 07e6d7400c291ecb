"""A history as Parquet: its rows have all that its lines had."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dledger.errors import ConfigError
from mqspark.history import packing
from mqspark.history.files import _meta_of, find_history, is_parquet, size_bytes
from mqspark.history.packing import pack
from mqspark.limits import LINE_BYTES_MAX

META = {"kind": "meta", "t": 1, "seed": 7, "topic": "T", "brokers": {"b": {"n0": "/x"}}}
ACK = {"kind": "ack", "t": 2, "id": "é", "topic": "T", "offset": 5, "waiting": True, "size": 9}
ODD = {"kind": "ack", "t": 2**63, "id": 5, "queue_id": 2**31, "definite": 1, "offset": True}


def rows_of(lines: list[bytes], tmp_path: Path) -> list[dict[str, object]]:
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "p.jsonl").write_bytes(b"\n".join(lines))
    rows, size = pack(tmp_path / "h", tmp_path / "packed")
    assert rows == len(lines)
    assert size == (tmp_path / "packed" / "p.parquet").stat().st_size
    table: list[dict[str, object]] = pq.read_table(tmp_path / "packed" / "p.parquet").to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in table]


def test_every_field_is_kept(tmp_path: Path) -> None:
    """A field is kept in its column, or in the column `rest`."""
    meta, ack = rows_of([json.dumps(event).encode() for event in (META, ACK)], tmp_path)

    for row, event in ((meta, META), (ack, ACK)):
        assert row | json.loads(str(row["rest"])) == event | {"rest": row["rest"]}
    assert json.loads(str(ack["rest"])) == {"size": 9}
    assert _meta_of(tmp_path / "packed" / "p.parquet") == META


def test_what_fits_no_column_proves_nothing_and_is_not_lost(tmp_path: Path) -> None:
    """Lines that fit no column prove nothing and are kept: wrong types, halves, no events."""
    rows = rows_of([json.dumps(ODD).encode(), b"[1]", b"7", b"\xff\xfe", b'{"kind":"a'], tmp_path)

    assert [row.get("kind") for row in rows] == [None] * 5
    assert [str(row["rest"]).strip() for row in rows] == [
        json.dumps(ODD),
        "[1]",
        "7",
        "\ufffd\ufffd",
        '{"kind":"a',
    ]


def test_many_lines_and_endless_ones_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by lines, and lines by their length."""
    monkeypatch.setattr(packing, "PACKED_LINES_MAX", 3)
    endless = b'{"kind":"' + b"x" * LINE_BYTES_MAX * 3 + b'"}'

    rows = rows_of([*[json.dumps(ACK).encode()] * 7, endless, json.dumps(META).encode()], tmp_path)

    assert [row.get("kind") for row in rows] == ["ack"] * 7 + [None, "meta"]
    assert len(str(rows[7]["rest"])) == LINE_BYTES_MAX


def test_a_history_is_of_one_kind(tmp_path: Path) -> None:
    """A history is lines or Parquet, by its files' names, and is never written over."""
    rows_of([json.dumps(ACK).encode()] * 3, tmp_path)
    packed = tmp_path / "packed"

    assert (is_parquet(tmp_path / "h"), is_parquet(packed)) == (False, True)
    assert size_bytes(packed) == 3 * 170
    with pytest.raises(ConfigError, match="is Parquet already"):
        pack(packed, tmp_path / "again")
    with pytest.raises(ConfigError, match="is not empty"):
        pack(tmp_path / "h", packed)
    (packed / "x.jsonl").touch()
    with pytest.raises(ConfigError, match="files of both kinds"):
        find_history(packed)
    with pytest.raises(ConfigError, match="no history there"):
        find_history(tmp_path / "none")
