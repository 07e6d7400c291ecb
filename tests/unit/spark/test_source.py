"""The data source's options, and its plan of directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from dledger.errors import ConfigError
from mqspark.source.data_source import DledgerSource
from mqspark.source.planning import SegmentPartition, find_replicas, plan, split_paths, tasks
from mqspark.testing.synthetic import Run, write_run

RUN = Run(messages=100, segment_bytes=16_384, nodes=("n0", "n1"))


@pytest.fixture
def stores(tmp_path: Path) -> list[str]:
    _, stores = write_run(RUN, tmp_path)
    return [str(store) for store in stores]


def source(**options: str) -> DledgerSource:
    return DledgerSource(CaseInsensitiveDict(options))


def test_large_columns_come_only_if_asked_for() -> None:
    """Bodies and properties are left out by default, and come by flag or by name."""
    assert "body" not in source().schema().names
    assert "body" in source(includeBody="true").schema().names
    assert "properties" in source(includeProperties="true").schema().names
    assert source(columns="body, topic").schema().names == ["body", "topic"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"colums": "topic"}, "no option 'colums'"),
        ({"columns": "topik"}, "no column 'topik'"),
        ({"level": "records"}, "level='records'"),
        ({"includeBody": "yes"}, "includeBody='yes'"),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, str], complaint: str) -> None:
    """The message has the option and the value."""
    with pytest.raises(ConfigError, match=complaint):
        source(**options).schema()


def test_a_path_is_needed(stores: list[str]) -> None:
    """A reader needs a path and a known verification."""
    with pytest.raises(ConfigError, match="needs a path"):
        source().reader(schema=source().schema())
    with pytest.raises(ConfigError, match="verify='maybe'"):
        source(path=stores[0], verify="maybe").reader(schema=source().schema())


def test_paths_are_separated_by_semicolons_or_a_json_list() -> None:
    """Paths are given with semicolons or as a JSON list, as Spark passes both."""
    assert split_paths("a;b c;") == ["a", "b c"]
    assert split_paths('["a", "b;c"]') == ["a", "b;c"]


def test_there_is_one_partition_for_each_segment(stores: list[str]) -> None:
    """Replicas stand side by side at the same position."""
    partitions = plan(find_replicas(stores))
    first, second = partitions[:2]
    assert [first.replica, second.replica] == ["n0", "n1"]
    assert first.position == second.position == 0
    assert first.previous_path is None
    later = SegmentPartition("b", "n1", ("x", "y"), 1, 32_768, 16_384)
    assert str(later.previous_path) == "y/log/00000000000000016384.seg"
    assert str(later.path_of(0)) == "x/log/00000000000000032768.seg"


def test_directories_that_are_no_replicas_are_refused(tmp_path: Path, stores: list[str]) -> None:
    """Directories without a whole description, twice, or of other segments are refused."""
    with pytest.raises(ConfigError, match="has no replica.json"):
        find_replicas([str(tmp_path)])
    with pytest.raises(ConfigError, match="both hold node n0 of broker-a"):
        find_replicas([stores[0], stores[0]])
    description = Path(stores[0]) / "replica.json"
    fields = json.loads(description.read_text())
    description.write_text(json.dumps({**fields, "segment_bytes": 4096 * 3}))
    with pytest.raises(ConfigError, match="multiple of 12288 bytes"):
        find_replicas(stores)
    description.write_text("{}")
    with pytest.raises(ConfigError, match="not the description of a replica"):
        find_replicas(stores)


def test_small_segments_share_a_task() -> None:
    """A task costs more than reading a few KiB; a large segment has one for itself."""
    small = [SegmentPartition("b", "n1", ("x",), 0, at * 16_384, 16_384) for at in range(100)]
    large = [SegmentPartition("c", "n1", ("x",), 0, at << 30, 1 << 30) for at in range(3)]

    shared = tasks([*small, *large])

    assert [len(task.segments) for task in shared] == [64, 36, 1, 1, 1]
    assert [segment for task in shared for segment in task.segments] == [*small, *large]
