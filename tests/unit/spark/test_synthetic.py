"""A synthetic run for measurements is the same as lines and as columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mqspark.history.packing import pack
from mqspark.limits import PACKED_LINES_MAX
from mqspark.testing.synthetic import Run, write_run


@pytest.mark.parametrize("messages", [0, 1, 7, PACKED_LINES_MAX // 2 + 150])
def test_a_history_in_columns_is_what_its_lines_would_be_packed_to(
    tmp_path: Path, messages: int
) -> None:
    """Row by row and field by field, over more rows than are made at once."""
    run = Run(
        messages=messages,
        batch=70,
        body_bytes_min=1,
        body_bytes_max=20,
        segment_bytes=2**20,
        seed=7,
    )
    lines, stores = write_run(run, tmp_path / "lines")
    pack(lines, tmp_path / "packed")
    columns, _ = write_run(run, tmp_path / "columns", packed=True)

    expected = sorted((tmp_path / "packed").iterdir())
    assert [file.name for file in expected] == [file.name for file in sorted(columns.iterdir())]
    for file in expected:
        if file.stem != "harness":  # it names the stores' paths
            assert pq.read_table(columns / file.name).equals(pq.read_table(file)), file.name
    assert len(stores) == len(run.nodes)


def test_linked_replicas_have_the_same_log_in_the_room_of_one(tmp_path: Path) -> None:
    """A run of a hundred million messages fits on a disk so."""
    run = Run(messages=100, segment_bytes=65_536)
    _, copied = write_run(run, tmp_path / "copied")
    _, linked = write_run(run, tmp_path / "linked", linked=True)
    for one, other in zip(copied, linked, strict=True):
        files = sorted((one / "log").iterdir())
        assert [file.read_bytes() for file in files] == [
            (other / "log" / file.name).read_bytes() for file in files
        ]
        assert {file.stat().st_nlink for file in (other / "log").iterdir()} == {len(run.nodes)}
